"""Calls to the API server over HTTP/1.1, each with one deadline for the whole call.

The HTTP client of lightkube is not used: its limits apply to each read and write, so a server that replies byte by byte
could make a renewal last for ever. Here the deadline is checked before every receive.

A connection is closed after any failure. If an idle one is broken, the call is retried once on a new one. This is safe,
because every call compares a version, a uid or a grant id.
"""

from __future__ import annotations

import io
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from fencepost.core.runtime import Mutex, Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.beside import within
from fencepost.leases.stores.kubernetes.clock import ServerClock
from fencepost.leases.stores.kubernetes.config import ApiAddress
from fencepost.leases.stores.kubernetes.objects import Json

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_IDLE_MAX = 8  # as many as callers at once usually are
UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A reply of the API server."""

    status: int
    body: Json

    @property
    def reason(self) -> str:
        """The server's message, for an error."""
        return str(self.body.get("message") or f"HTTP status {self.status}")


class ApiServer:
    """One namespace's Leases on one API server, with a pool of connections."""

    def __init__(self, find: Callable[[], ApiAddress], runtime: Runtime, clock: ServerClock) -> None:
        self._find = find
        self._runtime = runtime
        self._clock = clock
        self._lock: Mutex = runtime.lock()
        self._idle: list[_Connection] = []
        self._is_ended = False
        self.requests = 0
        """The number of requests that were sent, for tests and benchmarks."""

    @property
    def address(self) -> ApiAddress:
        """The server's address and credentials. Raises `StoreRefused` while the configuration cannot be read."""
        return self._find()

    @property
    def leases(self) -> str:
        """The path of the namespace's Leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.address.namespace}/leases"

    def call(
        self, method: str, path: str, body: Json | None = None, *, until: float, kind: str = "application/json"
    ) -> ApiAnswer:
        """Send a request and return the reply, with any status. Raises `StoreUnavailable` if none came by `until`."""
        content = b"" if body is None else json.dumps(body).encode()
        authorization = self._authorization(until)
        answer = self._ask(self._request(method, path, content, kind, authorization), until)
        if answer.status == UNAUTHORIZED:
            fresh = self._authorization(until, refused=authorization)
            if fresh != authorization:
                answer = self._ask(self._request(method, path, content, kind, fresh), until)
        return answer

    def watch(self, path: str, *, until: float) -> EventStream:
        """Open a stream of events on a separate connection."""
        connection = self._connect(until)
        try:
            response = self._send(connection, self._request("GET", path, b"", "", self._authorization(until)), until)
        except _Broken as broken:
            connection.close()
            raise StoreUnavailable(f"the Kubernetes API server broke the connection: {broken}") from None
        except BaseException:
            connection.close()
            raise
        return EventStream(connection, response)

    def end(self) -> None:
        """Close the idle connections, and from now on every connection that is returned."""
        with self._lock:
            self._is_ended = True
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forget(self) -> None:
        """Reset in a forked child. Nothing is sent on the inherited connections, which belong to the parent."""
        self._lock = self._runtime.lock()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()  # closes only this process's descriptor, without a TLS message

    def _ask(self, request: bytes, until: float) -> ApiAnswer:
        connection = self._take_idle()
        if connection is not None:
            try:
                return self._exchange(connection, request, until)
            except _Broken:
                self.close()  # the other idle connections are probably broken too
        try:
            return self._exchange(self._connect(until), request, until)
        except _Broken as broken:
            raise StoreUnavailable(f"the Kubernetes API server broke the connection: {broken}") from None

    def _exchange(self, connection: _Connection, request: bytes, until: float) -> ApiAnswer:
        try:
            response = self._send(connection, request, until)
            content = _guarded(response.read)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection, response)
        return ApiAnswer(response.status, _parsed(content))

    def _send(self, connection: _Connection, request: bytes, until: float) -> HTTPResponse:
        self.requests += 1
        sent_at = self._runtime.monotonic()
        response = connection.send(request, until)
        date = response.headers.get("Date", "")
        self._clock.note(date, sent_at=sent_at, received_at=self._runtime.monotonic())
        return response

    def _request(self, method: str, path: str, content: bytes, kind: str, authorization: str) -> bytes:
        lines = [
            f"{method} {self.address.base_path}{path} HTTP/1.1",
            f"Host: {self.address.host}:{self.address.port}",
            "User-Agent: fencepost",
            "Accept: application/json",
        ]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        if content:
            lines += [f"Content-Type: {kind}", f"Content-Length: {len(content)}"]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content

    def _authorization(self, until: float, *, refused: str | None = None) -> str:
        credentials = self.address.credentials
        header = credentials.header
        if header is not None and header != refused:
            return header
        if not credentials.may_block:
            return credentials.make(refused=refused)
        return self._in_time(lambda: credentials.make(refused=refused), until)

    def _in_time(self, make: Callable[[], str], until: float) -> str:
        """Run `make` on a separate task: an exec plugin has no time limit."""
        made: list[str] = []
        failed: list[Exception] = []
        done = self._runtime.event()

        def work() -> None:
            try:
                made.append(make())
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                failed.append(error)
            done.set()

        self._runtime.spawn("fencepost-kubernetes-credentials", work)
        done.wait(max(0.0, until - self._runtime.monotonic()))
        if failed:
            raise failed[0]
        if not made:
            raise StoreUnavailable("the program that makes the Kubernetes credentials did not end in time")
        return made[0]

    def _take_idle(self) -> _Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: _Connection, response: HTTPResponse) -> None:
        with self._lock:
            if not (self._is_ended or response.will_close) and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, until: float) -> _Connection:
        try:
            address, left_s = self.address, until - self._runtime.monotonic()
            return within(self._runtime, left_s, lambda: _Connection(address, self._runtime, until), _Connection.close)
        except TimeoutError:
            raise StoreUnavailable(f"{self._place} did not answer in time") from None
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
            raise StoreUnavailable(f"{self._place} cannot be used: {why}") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise StoreUnavailable(f"{self._place} cannot be reached: {why}") from None

    @property
    def _place(self) -> str:
        return f"the Kubernetes API server at {self.address.host}:{self.address.port}"


class EventStream:
    """A stream of events. End it with `close`, or use it as a context manager."""

    def __init__(self, connection: _Connection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status

    def next_event(self, until: float) -> Json | None:
        """Return the next event; None if the stream ended, broke, or `until` has passed."""
        self._connection.until = until
        try:
            line = _guarded(self._response.readline)
        except (_Broken, StoreUnavailable):
            return None
        return _parsed(line) if line.endswith(b"\n") else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


class _Broken(Exception):
    """The connection broke; whether the request was carried out is unknown."""


class _Connection:
    """A socket that checks the deadline before every receive."""

    def __init__(self, address: ApiAddress, runtime: Runtime, until: float) -> None:
        self._runtime = runtime
        self.until = until
        self._socket = self._open(address)

    def _open(self, address: ApiAddress) -> socket.socket:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        plain = self._first_that_answers([place[4] for place in found])
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(self._left_s())
            return plain if address.tls is None else address.tls.wrap_socket(plain, server_hostname=address.host)
        except BaseException:
            plain.close()
            raise

    def _first_that_answers(self, places: list[Any]) -> socket.socket:
        """Try the addresses of the host in turn, each with an equal share of the remaining time."""
        for rest, place in zip(range(len(places), 0, -1), places, strict=True):
            try:
                return socket.create_connection(place[:2], timeout=self._left_s() / rest)
            except OSError:
                if rest == 1:
                    raise
        raise OSError("the host has no address")

    def send(self, request: bytes, until: float) -> HTTPResponse:
        """Send, and read the headers of the reply."""
        self.until = until
        response = HTTPResponse(cast("socket.socket", self))  # it only uses `makefile`
        _guarded(lambda: self._limited().sendall(request))
        _guarded(response.begin)
        return response

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    def receive_into(self, buffer: WriteableBuffer) -> int:
        return self._limited().recv_into(buffer)

    def close(self) -> None:
        self._socket.close()

    def _limited(self) -> socket.socket:
        self._socket.settimeout(self._left_s())
        return self._socket

    def _left_s(self) -> float:
        left_s = self.until - self._runtime.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Incoming(io.RawIOBase):
    """The receiving side of a connection as a file. Closing it, as after a reply, leaves the connection open."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._connection.receive_into(buffer)

    def readable(self) -> bool:
        return True


def _guarded(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except TimeoutError:
        raise StoreUnavailable("the Kubernetes API server did not answer in time") from None
    except (OSError, HTTPException, ValueError) as error:
        raise _Broken(type(error).__name__) from None


def _parsed(content: bytes) -> Json:
    try:
        parsed = json.loads(content)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}

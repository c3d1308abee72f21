"""One HTTP exchange with one member of etcd, with a deadline.

Connections are kept and reused, by one caller at a time. If an idle one is broken, the request is retried once on a new
one: every request of this store is idempotent. After a timeout or any other error a connection is closed, because a
late reply would be taken for the reply to the next request.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import NamedTuple

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from urllib3.response import HTTPResponse

from fencepost.core.runtime import Runtime
from fencepost.leases.stores.beside import within

BROKE = "the connection broke"
_IDLE_LIMIT = 16  # idle connections: enough for the threads of most processes
_BROKEN = (ProtocolError, ConnectionError, HTTPException)


class NotConnected(Exception):
    """The member could not be reached; no request was sent. The text gives the reason."""


class NotAnswered(Exception):
    """The member got a request and did not reply. The text gives the reason."""


class NotTrusted(Exception):
    """TLS with the member failed. The text gives the reason."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply. `repeated`: the request may have reached etcd twice."""

    status: int
    date: str
    body: bytes
    repeated: bool = False


class Question(NamedTuple):
    """A request: its path, its body (without one it is a GET), its headers and its deadline."""

    path: str
    payload: bytes | None
    headers: Mapping[str, str]
    deadline: float


class Endpoint:
    """An endpoint of the cluster and the idle connections to it."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, runtime: Runtime) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host = host
        self._port = port
        self._tls = tls
        self._runtime = runtime
        self._idle: list[HTTPConnection] = []
        self._is_closed = False

    def ask(self, question: Question, connect_s: float) -> Reply:
        """Send a request and read the whole reply. Raises `NotConnected`, `NotAnswered` or `NotTrusted`."""
        repeated = False
        try:
            if (connection := self._take_idle()) is not None:
                try:
                    return self._exchange(connection, question)
                except _BROKEN:
                    repeated = True  # it was closed while idle: retry on a new one
            return self._exchange(self._connect(connect_s), question, repeated=repeated)
        except ssl.SSLError as error:
            raise NotTrusted(error.reason or "the handshake failed") from error
        except (TimeoutError, ReadTimeoutError) as error:
            raise NotAnswered("no answer in time") from error
        except (*_BROKEN, HTTPError, OSError) as error:
            raise NotAnswered(BROKE) from error

    def stream(self, question: Question, connect_s: float) -> Iterator[bytes]:
        """Send a request on a separate connection, yield the reply in pieces until the deadline, then close it."""
        connection = self._connect(connect_s)
        try:
            response = self._send(connection, question)
            for piece in response.stream():
                yield piece
                if connection.sock is not None:
                    connection.sock.settimeout(self._left(question.deadline))
        except (TimeoutError, ReadTimeoutError):
            return
        except (*_BROKEN, HTTPError, OSError) as error:
            raise NotAnswered(BROKE) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and from now on every other connection after its use."""
        self._is_closed = True
        while (connection := self._take_idle()) is not None:
            connection.close()

    def forget(self) -> None:
        """Leave the connections to the process that opened them."""
        self._idle = []

    def _take_idle(self) -> HTTPConnection | None:
        try:
            while not (connection := self._idle.pop()).is_connected:
                connection.close()
        except IndexError:
            return None
        return connection

    def _connect(self, connect_s: float) -> HTTPConnection:
        try:
            return within(self._runtime, connect_s, lambda: self._dialled(connect_s), HTTPConnection.close)
        except ssl.SSLError as error:
            raise NotTrusted(error.reason or "the handshake failed") from error
        except (HTTPError, OSError) as error:
            raise NotConnected(_reason(error)) from error

    def _dialled(self, connect_s: float) -> HTTPConnection:
        connection = self._new()
        connection.timeout = connect_s
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _new(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port)
        return HTTPSConnection(self._host, self._port, ssl_context=self._tls)

    def _exchange(self, connection: HTTPConnection, question: Question, *, repeated: bool = False) -> Reply:
        try:
            response = self._send(connection, question)
            body = response.read()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None and len(self._idle) < _IDLE_LIMIT and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        return Reply(response.status, response.headers.get("Date", ""), body, repeated)

    def _send(self, connection: HTTPConnection, question: Question) -> HTTPResponse:
        path, payload, headers, deadline = question
        connection.timeout = self._left(deadline)
        connection.request("POST" if payload else "GET", path, body=payload, headers=headers, preload_content=False)
        response = connection.getresponse()
        if connection.sock is not None:  # the body only gets the time that the header has left
            connection.sock.settimeout(self._left(deadline))
        return response

    def _left(self, deadline: float) -> float:
        left = deadline - self._runtime.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, TimeoutError):
        return "no connection in time"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__

"""One HTTP exchange with one member of etcd, ended by a deadline.

Connections are kept and used again, one caller at a time. One that turns out to be dead although it was idle a
moment ago is replaced once, silently: every request of this store may safely be repeated. After a
timeout or any other trouble a connection is thrown away, because its late answer would be taken for the next one's.
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
_IDLE_LIMIT = 16
_BROKEN = (ProtocolError, ConnectionError, HTTPException)


class NotConnected(Exception):
    """The member could not be reached; nothing was asked. The text says why."""


class NotAnswered(Exception):
    """The member was asked and did not answer. The text says why."""


class NotTrusted(Exception):
    """TLS with the member failed. The text says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `repeated`: the request may have reached etcd twice."""

    status: int
    date: str
    body: bytes
    repeated: bool = False


class Question(NamedTuple):
    """A request: to which path, with which body (without one it is a GET), and until when."""

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
        """Ask and read the whole answer. Raises `NotConnected`, `NotAnswered` or `NotTrusted`."""
        repeated = False
        try:
            if (connection := self._take_idle()) is not None:
                try:
                    return self._exchange(connection, question)
                except _BROKEN:
                    repeated = True  # it was closed while idle: once more on a fresh one
            return self._exchange(self._connect(connect_s), question, repeated=repeated)
        except ssl.SSLError as error:
            raise NotTrusted(error.reason or "the handshake failed") from error
        except (TimeoutError, ReadTimeoutError) as error:
            raise NotAnswered("no answer in time") from error
        except (*_BROKEN, HTTPError, OSError) as error:
            raise NotAnswered(BROKE) from error

    def stream(self, question: Question, connect_s: float) -> Iterator[bytes]:
        """Ask on a connection of its own and yield the answer in pieces until the deadline, then hang up."""
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
        """Close the idle connections, and from now on every other after its use."""
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
        if connection.sock is not None:  # the body must not get the time anew that the header has used up
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

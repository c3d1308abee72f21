"""A kazoo client with deadlines.

kazoo has no deadlines: it queues requests while it reconnects, for as long as that takes. Here every request has a
deadline. After a missed deadline the connection is dropped, and kazoo opens another, to another server if necessary,
for the same ZooKeeper session. A request that was interrupted is retried once; all requests of this store are
idempotent.

A request whose deadline has passed may still be carried out later, so its outcome is unknown.
"""

from __future__ import annotations

import atexit
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.beside import begin

logging.getLogger("kazoo").addHandler(logging.NullHandler())

Request = Callable[[Any], Any]
ANSWERS = (NoNodeError, NodeExistsError, BadVersionError)
_GIVEN_UP = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
_NEGOTIATED_PER_READ_TIMEOUT = 1.5  # kazoo's read timeout is two thirds of the negotiated one


class NoRights(StoreUnavailable):
    """The user lacks a permission."""


class SessionEnded(StoreUnavailable):
    """The ZooKeeper session has expired or was closed."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The addresses of the servers, and the credentials."""

    hosts: str
    login: str | None
    connect_s: float


class Answers(NamedTuple):
    """The result of each request (an exception, if it failed), and whether they were sent twice."""

    values: list[Any]
    repeated: bool = False


class Link:
    """A ZooKeeper session, and requests on it."""

    def __init__(self, place: Ensemble, runtime: Runtime, *, timeout_s: float, is_renewed_by_us: bool) -> None:
        self._place = place
        self._runtime = runtime
        self._is_renewed_by_us = is_renewed_by_us
        self._has_connected = False
        self.has_ended = False
        handler = _Handler(place.connect_s)
        self._kazoo = KazooClient(
            hosts=place.hosts,
            timeout=timeout_s,
            handler=handler,
            auth_data=[("digest", place.login)] if place.login else None,
            default_acl=CREATOR_ALL_ACL if place.login else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, sleep_func=handler.sleep_func),
        )
        self._connection = _Connection(self._kazoo, is_renewed_by_us=is_renewed_by_us)
        self._kazoo._connection = self._connection
        self._kazoo.add_listener(self._note_state)

    @property
    def negotiated_s(self) -> float:
        """The session timeout that the server granted. Known after the first reply."""
        return self._connection.negotiated_s

    @property
    def is_dead(self) -> bool:
        """Whether kazoo has given up, and will never connect again."""
        return self.has_ended or (self._has_connected and self._kazoo.client_state in _GIVEN_UP)

    def start(self) -> None:
        """Begin to connect."""
        self._is_connected = self._kazoo.start_async()

    def wait_connected(self, deadline: float) -> None:
        """Wait for the first connection, or raise `StoreUnavailable`; kazoo continues to try."""
        if self._has_connected:
            return
        if not self._is_connected.wait(max(0.0, deadline - self._runtime.monotonic())):
            raise StoreUnavailable(f"ZooKeeper at {self._place.hosts} cannot be reached: no connection in time")
        self._has_connected = True

    def ask(self, request: Request, deadline: float) -> Any:
        """Send one request. A missing node, an existing node and another version are raised as kazoo's exceptions."""
        value = self.ask_all([request], deadline).values[0]
        if isinstance(value, Exception):
            raise value
        return value

    def ask_all(self, requests: Sequence[Request], deadline: float) -> Answers:
        """Send several requests at once; the results have the same order."""
        for repeated in (False, True):
            self._ensure_alive()
            results = [request(self._kazoo) for request in requests]
            try:
                return Answers([self._answer(result, deadline) for result in results], repeated)
            except ConnectionLoss:
                continue
            except SessionExpiredError:
                if self._is_renewed_by_us:
                    self.has_ended = True
        self._ensure_alive()
        raise StoreUnavailable(f"ZooKeeper at {self._place.hosts}: the connection broke")

    def server_says(self, word: bytes) -> str:
        """Return the server's reply to a four-letter command, or an empty text if there is none."""
        try:
            return str(self._kazoo.command(word))
        except (KazooException, OSError):
            return ""

    def stop(self) -> Callable[[float], bool]:
        """Start to end the session. The returned function waits for that, and returns whether it was confirmed."""
        self.has_ended = True
        done = self._runtime.event()

        def stop() -> None:
            with suppress(Exception):  # the link is not used any more
                self._kazoo.stop()
                self._kazoo.close()
            done.set()

        begin(self._runtime, "fencepost-zookeeper-stop", stop)
        return done.wait

    def abandon(self) -> None:
        """End the session without waiting."""
        self.stop()
        self._connection.drop()

    def forget(self) -> None:
        """In a forked child: kazoo's threads do not exist, and the connection belongs to the parent."""
        self.has_ended = True
        atexit.unregister(self._kazoo.handler.stop)

    def _ensure_alive(self) -> None:
        if self.has_ended:
            raise SessionEnded("the ZooKeeper session has ended")

    def _answer(self, result: Any, deadline: float) -> Any:
        try:
            return result.get(timeout=max(0.0, deadline - self._runtime.monotonic()))
        except ANSWERS as error:
            return error
        except KazooTimeoutError as error:
            self._connection.drop()
            raise StoreUnavailable(f"ZooKeeper at {self._place.hosts}: no answer in time") from error
        except NoAuthError as error:
            raise NoRights("ZooKeeper says that we have no right to do that") from error
        except (ConnectionLoss, SessionExpiredError):
            raise
        except KazooException as error:
            raise StoreUnavailable(f"ZooKeeper refused: {type(error).__name__}") from error

    def _note_state(self, state: str) -> None:
        """Handle a state change, in kazoo's own thread. kazoo must not replace a lost session with a new one."""
        if state == KazooState.LOST and self._is_renewed_by_us and not self.has_ended:
            self.stop()


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection. It can be dropped, knows the negotiated timeout, and can omit heartbeats."""

    def __init__(self, client: Any, *, is_renewed_by_us: bool) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self.negotiated_s = 0.0
        self._is_renewed_by_us = is_renewed_by_us

    def drop(self) -> None:
        """Drop the connection; kazoo notices and opens another."""
        if (connected := self._socket) is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _connect(self, *args: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(*args)
        self.negotiated_s = read_timeout_ms * _NEGOTIATED_PER_READ_TIMEOUT / 1000
        return read_timeout_ms, connect_timeout_ms

    def _send_ping(self, connect_timeout: float) -> None:
        if not self._is_renewed_by_us:
            super()._send_ping(connect_timeout)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads. Connecting to one server is limited in time, so that another can be tried."""

    def __init__(self, connect_s: float) -> None:
        super().__init__()
        self._connect_s = connect_s

    def create_connection(self, *args: Any, **options: Any) -> Any:
        options["timeout"] = min(options.get("timeout") or self._connect_s, self._connect_s)
        return super().create_connection(*args, **options)

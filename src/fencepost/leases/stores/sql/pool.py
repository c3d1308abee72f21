"""A bounded pool of connections, whose every wait has a deadline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fencepost.core.runtime import Event, Runtime
from fencepost.leases.stores.sql.backend import CallTimedOut, Connection


@dataclass(slots=True, eq=False)
class _Ticket:
    """Somebody in the queue. Served with a connection, or with leave to make one."""

    served: Event
    connection: Connection | None = None


_UNUSED_S = 5.0  # to open one takes milliseconds, and each costs the server memory


class Pool:
    """At most `limit` connections, made when needed. Who comes too many waits in line.

    The one used last is used next, so those at the bottom rest; what has rested for long is closed by whoever comes,
    and by `drop_unused`, where perhaps nobody comes.
    """

    def __init__(self, runtime: Runtime, connect: Callable[[float], Connection], *, limit: int) -> None:
        self._runtime = runtime
        self._connect = connect
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._lock = self._runtime.lock()
        self._idle: list[tuple[Connection, float]] = []  # and since when
        self._queue: deque[_Ticket] = deque()
        self._made = 0
        self._is_open = True

    def take(self, deadline: float) -> tuple[Connection, bool]:
        """Return a connection, and whether it was used before."""
        ticket = None
        with self._lock:
            if self._idle:
                return self._idle.pop()[0], True
            if self._made < self._limit:
                self._made += 1
            else:
                ticket = _Ticket(self._runtime.event())
                self._queue.append(ticket)
        if ticket is not None and (connection := self._stand_in_line(ticket, deadline)) is not None:
            return connection, True
        return self._new(deadline), False

    def give(self, connection: Connection) -> None:
        """Put a connection back that is in good order."""
        with self._lock:
            if self._queue:
                ticket = self._queue.popleft()
                ticket.connection = connection
                ticket.served.set()
                return
            if self._is_open:
                unused = self._swapped(connection)
                if unused is None:
                    return
                connection = unused
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Throw away a connection that is not."""
        _close(connection)
        with self._lock:
            self._free_place()

    def drop_idle(self) -> None:
        """Throw away all that are not in use: where one broke, the others are likely broken, too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            self.drop(connection)

    def drop_unused(self) -> None:
        """Throw away those that nobody has needed for long."""
        unused_since = self._runtime.monotonic() - _UNUSED_S
        with self._lock:
            unused = [connection for connection, since in self._idle if since < unused_since]
            self._idle = [kept for kept in self._idle if kept[1] >= unused_since]
        for connection in unused:
            self.drop(connection)

    def open(self) -> None:
        """Keep connections from now on."""
        self._is_open = True

    def close(self) -> None:
        """Throw away what is not in use now, and what is in use when it comes back."""
        self._is_open = False
        self.drop_idle()

    def open_now(self) -> tuple[list[Connection], int]:
        """Return the idle connections, and how many are in use."""
        return [connection for connection, _ in self._idle], self._made - len(self._idle)

    def forget(self) -> tuple[list[Connection], int]:
        """Start anew after a fork. Return the idle connections of the parent, and how many were in use."""
        opened = self.open_now()
        self._reset()
        return opened

    def _swapped(self, connection: Connection) -> Connection | None:
        """Keep a connection; return another in its place that nobody has needed for long."""
        now = self._runtime.monotonic()
        self._idle.append((connection, now))
        if len(self._idle) > 1 and self._idle[0][1] < now - _UNUSED_S:
            return self._idle.pop(0)[0]
        return None

    def _new(self, deadline: float) -> Connection:
        try:
            return self._connect(deadline - self._runtime.monotonic())
        except BaseException:
            with self._lock:
                self._free_place()
            raise

    def _free_place(self) -> None:
        if self._queue:
            self._queue.popleft().served.set()
        else:
            self._made -= 1

    def _stand_in_line(self, ticket: _Ticket, deadline: float) -> Connection | None:
        try:
            ticket.served.wait(max(deadline - self._runtime.monotonic(), 0.0))
        except BaseException:  # a signal's: what is handed to us from now on, nobody would give back
            if not self._is_withdrawn(ticket):
                self._pass_on(ticket)
            raise
        if self._is_withdrawn(ticket):
            raise CallTimedOut("all connections were busy")
        return ticket.connection

    def _is_withdrawn(self, ticket: _Ticket) -> bool:
        """Leave the line; False if it was our turn already."""
        with self._lock:
            if is_waiting := ticket in self._queue:
                self._queue.remove(ticket)
        return is_waiting

    def _pass_on(self, ticket: _Ticket) -> None:
        if ticket.connection is not None:
            self.give(ticket.connection)
            return
        with self._lock:
            self._free_place()


def _close(connection: Connection) -> None:
    with suppress(Exception):
        connection.close()

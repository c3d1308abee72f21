"""Connections that are kept open between calls, and replaced when one is broken.

A call takes an idle connection or opens a new one. If an idle one is broken (the server was restarted, or closed it for
idleness) or leads to a server that was demoted, the call is retried once on a new one: every call of this store is
idempotent. Nothing is retried after a timeout. A connection is closed after any error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencepost.core.duration import spelled
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.redis.route import Clock, Route
from fencepost.leases.stores.redis.scripts import Command
from fencepost.leases.stores.redis.wire import Wire

MOST_IDLE = 16  # idle connections: enough for the threads of most processes

T = TypeVar("T")


class Wires:
    """Connections for one kind of call. Any number of threads may use it at once, each on its own connection."""

    def __init__(self, route: Route, clock: Clock) -> None:
        self._route = route
        self._clock = clock
        self._idle: list[Wire] = []
        self._is_open = True

    def ask(self, command: Command, timeout_s: float, *, repetition: Command | None = None) -> Any:
        """Return the reply to one command; on a retry, `repetition` is sent instead."""
        repeat = None if repetition is None else _asking(repetition)
        return self.talk(_asking(command), timeout_s, repeat=repeat)

    def talk(self, talk: Callable[[Wire], T], timeout_s: float, *, repeat: Callable[[Wire], T] | None = None) -> T:
        """Run one exchange within `timeout_s`, or raise `StoreUnavailable`."""
        answer_by = self._clock() + timeout_s
        try:
            try:
                wire = self._idle.pop()
            except IndexError:
                return self._use(self._route.connect(answer_by), talk, answer_by)
            try:
                return self._use(wire, talk, answer_by)
            except RedisError as error:
                if not _is_stale(error):
                    raise
            self.drop_idle()
            return self._use(self._route.connect(answer_by), repeat or talk, answer_by)
        except RedisError as error:
            raise StoreUnavailable(self._sentence(error, timeout_s)) from error

    def drop_idle(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for wire in idle:
            wire.hang_up()

    def open(self) -> None:
        """Keep returned connections from now on."""
        self._is_open = True

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        self._is_open = False
        self.drop_idle()

    def forget(self) -> None:
        """Drop connections inherited through fork: only this process's copy of the socket is closed."""
        self._idle = []

    def _use(self, wire: Wire, talk: Callable[[Wire], T], answer_by: float) -> T:
        wire.answer_by = answer_by
        try:
            answer = talk(wire)
        except BaseException:
            wire.hang_up()
            raise
        if self._is_open and wire.is_connected and len(self._idle) < MOST_IDLE:
            self._idle.append(wire)
        else:
            wire.hang_up()
        return answer

    def _sentence(self, error: RedisError, timeout_s: float) -> str:
        if isinstance(error, RedisTimeoutError):
            return f"{self._route} did not answer within {spelled(timeout_s)}"
        if isinstance(error, AuthenticationError):
            return f"{self._route} does not accept the user or password: {error}"
        if isinstance(error, RedisConnectionError):
            return f"{self._route} cannot be reached: {error}"
        return f"{self._route} answered with an error: {error}"


def _asking(command: Command) -> Callable[[Wire], Any]:
    return lambda wire: wire.ask(command)


def _is_stale(error: RedisError) -> bool:
    """Whether a new connection may work: this one broke, or its server no longer accepts writes."""
    if isinstance(error, AuthenticationError):
        return False
    # Servers before version 7 wrap the error of a command inside a script.
    return isinstance(error, RedisConnectionError | ReadOnlyError) or "-READONLY" in str(error)

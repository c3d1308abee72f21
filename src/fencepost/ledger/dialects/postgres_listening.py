"""Notifications on PostgreSQL: a listening connection, and a pipe that ends a wait from within this process."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.ledger.dialects.dialect import Dialect
from fencepost.ledger.dialects.statements_postgres import channel
from fencepost.sql.psycopg_channel import Channel
from fencepost.sql.psycopg_link import ERRORS

# The minimum interval between two hints: a thousand requests a second must not cause a thousand searches.
_QUIET_S = 0.02
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # doubled while it cannot connect: nodes look anyway
_ROUND_S = 60.0  # a dead connection is noticed within a minute at the latest
_DIAL_S = 3.0  # hints are worth no longer wait: nodes look anyway
_GONE: tuple[type[Exception], ...] = (*ERRORS, OSError)


class LedgerListener:
    """Waits for notifications on the ledger's channel."""

    def __init__(self, dialect: Dialect, runtime: Runtime) -> None:
        self._dialect = dialect
        self._runtime = runtime
        self._clock = runtime.monotonic
        self._channel: Channel | None = None
        self._dial_at = self._quiet_until = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._is_closed = False
        self._open_pipe()
        runtime.after_fork(self, self._forget)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a hint; return False on timeout, or if the listener is closed."""
        is_hinted = self._is_hinted_by(self._clock() + timeout_s)
        if self._is_closed:
            self._give_up()
            return False
        if is_hinted:
            self._quiet_until = self._clock() + _QUIET_S
        return is_hinted

    def wake(self) -> None:
        """End the wait with a hint."""
        with suppress(BlockingIOError, OSError):  # full: it will be read; closed: no thread waits
            os.write(self._write_end, b"!")

    def close(self) -> None:
        """End this wait and all later ones. The waiting thread closes the connection."""
        self._is_closed = True
        self.wake()

    def _is_hinted_by(self, until: float) -> bool:
        quiet_s = min(self._quiet_until, until) - self._clock()
        if quiet_s > 0:
            self._runtime.sleep(quiet_s)
        while not self._is_closed:
            if self._is_hinted(min(until, self._next_dial_at()) - self._clock()):
                return True
            if self._clock() >= until:
                break
        return False

    def _next_dial_at(self) -> float:
        return float("inf") if self._channel is not None else max(self._dial_at, self._clock())

    def _is_hinted(self, timeout_s: float) -> bool:
        """Wait for a notification for at most `timeout_s`; close a broken connection."""
        self._dial_if_due()
        limit_s = min(max(timeout_s, 0.0), _ROUND_S)
        if self._channel is None:
            self._wait_for_pipe(limit_s)
            return self._is_read()
        try:
            has_news = bool(self._channel.wait(limit_s, also=self._read_end))
        except ERRORS:
            self._give_up()
            has_news = True  # notifications may have been missed
        return self._is_read() or has_news

    def _wait_for_pipe(self, limit_s: float) -> None:
        poll = select.poll()  # unlike select, it accepts descriptors above 1023
        poll.register(self._read_end, select.POLLIN)
        poll.poll(limit_s * 1000)

    def _is_read(self) -> bool:
        with suppress(BlockingIOError):
            return bool(os.read(self._read_end, 4096))
        return False

    def _dial_if_due(self) -> None:
        if self._channel is not None or self._clock() < self._dial_at:
            return
        try:
            connection: Any = self._dialect.dial(_DIAL_S)
            if connection.is_proxied:  # by a pooler: LISTEN would not stay with the connection
                connection.close()
                self._dial_at = float("inf")
                return
            self._channel = Channel(connection, channel(self._dialect))
        except _GONE:
            self._give_up()
            return
        self._pause_s = _FIRST_PAUSE_S

    def _give_up(self) -> None:
        """Close a broken connection, and try again after a pause."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._dial_at = self._clock() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _open_pipe(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def _forget(self) -> None:
        """In a forked child, start over: connection and pipe belong to the parent."""
        if self._channel is not None:
            self._dialect.forget([self._channel.connection], in_use=0)
        self._channel = None
        self._open_pipe()

    def __del__(self) -> None:
        for descriptor in (self._read_end, self._write_end):
            with suppress(OSError, AttributeError):
                os.close(descriptor)

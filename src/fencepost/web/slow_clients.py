"""Clients that send their request slowly, or never to its end: they must not keep places that others need.

uvicorn ends connections that are idle between two requests, but waits for ever for the rest of a request's headers.
Here a connection is closed if no request is whole, up to the end of its headers, within `HEADERS_WITHIN_S` after it was
opened, or after the first byte of a further request. Bodies are bounded by the guard, for other servers too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_WITHIN_S = 10.0  # browsers send headers at once; a slow client keeps its place no longer than this


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with an end to waiting for headers."""

    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read what has come, and wait for the rest, if it is not a whole request yet."""
        super().data_received(data)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._stop_waiting()

    @property
    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _wait_for_headers(self) -> None:
        if self._is_answering:
            self._stop_waiting()  # a request has begun
        elif self._headers_due is None and self.timeout_keep_alive_task is None:
            self._headers_due = self.loop.call_later(HEADERS_WITHIN_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _give_up(self) -> None:
        self._headers_due = None
        if not self._is_answering and not self.transport.is_closing():
            self.transport.close()

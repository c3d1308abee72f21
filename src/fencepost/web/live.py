"""Live pages: a stream of hints that something has changed, never of what. The page then asks for its part itself.

**Promises.** One thread of the process asks the ledger once a second, and only while a page is open, however many there
are. A stream ends within five seconds after its login or API token has ended, and after a minute where a proxy or the
host application identifies people. **Not promised.** That a hint means a change that the caller may see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fencepost.core.rights import HumanAct
from fencepost.errors import FencepostError
from fencepost.web.guard import PASSING, Passing
from fencepost.web.routes import needs
from fencepost.web.threads import in_thread

if TYPE_CHECKING:
    from fencepost.web.doors import Door, Visitor

ASK_EVERY_S = 1.0  # how late a change is shown; the ledger is asked as often, however many pages are open
CHECK_EVERY_S = 3.0  # with twice `TRUSTED_S`, it makes the five seconds that are promised above
PING_EVERY_S = 15.0  # proxies close a connection on which nothing comes for long: nginx after a minute
MOST_STREAMS = 500  # half of the connections that `fencepost serve` accepts, so that pages can still be loaded
MOST_FOR_ONE = 20  # open pages of one person, who cannot use up `MOST_STREAMS`
_logger = logging.getLogger("fencepost.web")


class Hints:
    """Knows whether something has changed, for all open pages of the process."""

    def __init__(self, door: Door) -> None:
        """Ask the ledger behind `door`."""
        self._door = door
        self._runtime = door.runtime
        self._lock = self._runtime.lock()
        self._streams: dict[str, int] = {}
        self._is_asking = False
        self._mark: object = None
        self.version = 0

    def has_room(self, who: str) -> bool:
        """Whether another stream may begin."""
        with self._lock:
            return sum(self._streams.values()) < MOST_STREAMS and self._streams.get(who, 0) < MOST_FOR_ONE

    def enter(self, who: str) -> None:
        """Count a stream. The first one begins the asking."""
        with self._lock:
            self._streams[who] = self._streams.get(who, 0) + 1
            begins = not self._is_asking
            self._is_asking = True
        if begins:
            self._runtime.spawn("fencepost-web-hints", self._ask)

    def leave(self, who: str) -> None:
        """Count a stream that has ended."""
        with self._lock:
            left = self._streams.get(who, 1) - 1
            if left > 0:
                self._streams[who] = left
            else:
                self._streams.pop(who, None)

    def _ask(self) -> None:
        while True:
            with self._lock:
                if not self._streams:
                    self._is_asking = False
                    return
            next_at = self._runtime.monotonic() + ASK_EVERY_S
            self._look()
            self._runtime.sleep(max(next_at - self._runtime.monotonic(), ASK_EVERY_S / 4))

    def _look(self) -> None:
        try:
            mark: object = self._door.authentication.changes()
            self._door.authentication.refusals.write()
        except FencepostError as error:
            mark = type(error).__name__  # pages should say so, and say when it is over
        except Exception:
            _logger.exception("looking for changes failed")
            return
        if mark != self._mark:
            self._mark = mark
            self.version += 1


def live_route(hints: Hints) -> Route:
    """Return the route of the streams."""

    @needs(HumanAct.LOOK)
    async def events(request: Request) -> Response:
        passing: Passing = request.scope[PASSING]
        entry = passing.entry
        if entry is None or not hints.has_room(entry.name):
            return PlainTextResponse("too many open pages\n", 503, {"retry-after": "30"})
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_stream(hints, entry), headers=headers, media_type="text/event-stream")

    return Route("/events", events, methods=["GET"])


async def _stream(hints: Hints, entry: Visitor) -> AsyncIterator[str]:
    """Send a hint for each change, until the caller may no longer look, or has to ask anew."""
    loop = asyncio.get_running_loop()
    begun = checked = pinged = loop.time()
    seen = hints.version
    hints.enter(entry.name)
    try:
        yield "retry: 3000\n: hints only\n\n"  # milliseconds until the browser connects again
        while True:
            await asyncio.sleep(ASK_EVERY_S / 4)
            now = loop.time()
            if entry.stream_lasts_s is not None and now - begun >= entry.stream_lasts_s:
                return
            if now - checked >= CHECK_EVERY_S:
                checked = now
                if not await in_thread(_is_still_in, entry):
                    yield "event: ended\ndata: 0\n\n"
                    return
            if hints.version != seen:
                seen = hints.version
                yield f"event: changed\nid: {seen}\ndata: {seen}\n\n"
            elif now - pinged >= PING_EVERY_S:
                pinged = now
                yield ": still here\n\n"
    finally:
        hints.leave(entry.name)


def _is_still_in(entry: Visitor) -> bool:
    try:
        return entry.is_still_in()
    except FencepostError:  # the ledger is away: nothing can be shown, so nothing is given away
        return True

"""Open tabs: what a hundred of them cost the ledger, idle and under load, and how soon a change is seen.

A tab does what the script of the pages does: it keeps a stream of hints open, and fetches the changing part of its page
at each hint, one at a time. A person may have twenty streams, so five people have a hundred.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from web_visits import FRAGMENT, Pages, Person

from fencepost.core.runs import Requested
from fencepost.ledger import requests

BUSY_PER_S, IDLE_PER_S, CHANGE_S = 4.0, 2.0, 1.5
RUNS_PER_S = 1_000
PEOPLE, TABS_EACH = 5, 20
PAGE = "/runs"
CHANGES = 5
_LOAD = Path(__file__).parent / "web_load.py"


class Tab:
    """One open tab."""

    def __init__(self, site: Pages, cookie: str) -> None:
        self._site = site
        self._cookie = cookie
        self._is_stale = asyncio.Event()
        self._closed = asyncio.Event()
        self._shown = b""
        self.is_open = asyncio.Event()
        self.fetched = 0
        self.shows = asyncio.Condition()
        self._tasks = [asyncio.ensure_future(self._stream()), asyncio.ensure_future(self._fetch())]

    async def _stream(self) -> None:
        async def receive() -> dict[str, Any]:
            await self._closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("status", 200) != 200:
                raise RuntimeError(f"a stream was refused: {message}")
            body = message.get("body", b"")
            if b"hints only" in body:
                self.is_open.set()
            if b"event: changed" in body:
                self._is_stale.set()

        await self._site.asgi(self._site.scope("/events", self._cookie, ("accept", "text/event-stream")), receive, send)

    async def _fetch(self) -> None:
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            status, self._shown = await self._site.get(PAGE, self._cookie, FRAGMENT)
            if status != 200:
                raise RuntimeError(f"a part was refused: {status} {self._shown[-500:]!r}")
            self.fetched += 1
            async with self.shows:
                self.shows.notify_all()

    async def until(self, text: str, limit_s: float) -> None:
        """Wait until the part that is shown has a text."""

        async def seen() -> None:
            async with self.shows:
                await self.shows.wait_for(lambda: text.encode() in self._shown)

        await asyncio.wait_for(seen(), limit_s)

    async def close(self) -> None:
        self._closed.set()
        self._tasks[1].cancel()
        await asyncio.wait(self._tasks, timeout=30)


def measured(site: Pages, url: str, seconds: float) -> Iterator[tuple[str, float, float, str]]:
    """Yield what was measured: its name, value, target and unit."""
    people = [Person(site.app, f"pat-{number}", "viewer") for number in range(PEOPLE)]
    cookies = [person.login() for person in people for _ in range(TABS_EACH)]
    yield from asyncio.run(_measured(site, url, seconds, cookies))


async def _measured(site: Pages, url: str, seconds: float, cookies: list[str]) -> list[tuple[str, float, float, str]]:
    tabs = [Tab(site, cookie) for cookie in cookies]
    try:
        for tab in tabs:
            await asyncio.wait_for(tab.is_open.wait(), 60)
        await asyncio.sleep(5)  # all have read their logins
        found = [("100 tabs, idle", await _statements_per_s(site, seconds), IDLE_PER_S, "stm/s")]
        found.append(("a change is shown", await _change(site, tabs), CHANGE_S, "s"))
        load = await asyncio.create_subprocess_exec(
            sys.executable, str(_LOAD), url, str(RUNS_PER_S), str(seconds + 4), stdout=subprocess.PIPE
        )
        if load.stdout is None or not await load.stdout.readline():
            raise RuntimeError("the load has ended before it began")
        await asyncio.sleep(2)
        before = sum(tab.fetched for tab in tabs)
        per_s = await _statements_per_s(site, seconds)
        fetched = (sum(tab.fetched for tab in tabs) - before) / seconds
        done, took = (await load.communicate())[0].split()
        made = round(float(done) / float(took))
        if not fetched:
            raise RuntimeError(f"{made} runs/s were made, and no tab has fetched its part: nothing was measured")
        return [*found, (f"100 tabs, {made} runs/s, {fetched:.0f} parts/s", per_s, BUSY_PER_S, "stm/s")]
    finally:
        await asyncio.gather(*(tab.close() for tab in tabs))


async def _statements_per_s(site: Pages, seconds: float) -> float:
    before, began_at = site.watch.statements, time.perf_counter()
    await asyncio.sleep(seconds)
    return (site.watch.statements - before) / (time.perf_counter() - began_at)


async def _change(site: Pages, tabs: list[Tab]) -> float:
    """Return the seconds from the commit of a run to the part that shows it, the longest of some."""
    longest = 0.0
    for number in range(CHANGES):
        await asyncio.sleep(0.37 * number % 1)  # at another moment between two looks
        [made] = await asyncio.to_thread(requests.enqueue, site.app.ledger, [Requested("job-0001", "manual")])
        began_at = time.perf_counter()
        await tabs[number].until(f"/runs/{made.run_id}", 30)
        longest = max(longest, time.perf_counter() - began_at)
    return longest

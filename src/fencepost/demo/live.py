"""``fencepost demo --web``: nodes are killed and started again and again, and the pages show it live."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.runtime import Runtime
from fencepost.demo.pages import pages_of
from fencepost.demo.screen import PlainScreen
from fencepost.demo.show import NODES, CtrlC, Show
from fencepost.demo.stage import TTL_S
from fencepost.demo.watching import View

if TYPE_CHECKING:
    from rich.console import Console

LONGEST_S = 24 * 3600.0  # a demo that somebody has forgotten ends after a day
_START_WITHIN_S = 180.0  # people wait for the page, and the machine may be busy
_KILL_EVERY_S = 12.0  # four ttls: the takeover and the new node can be seen before the next node is killed
_LOOK_EVERY_S = 0.2  # while no node is busy
_REPLACE_AFTER_S = TTL_S + 2.0  # the death can be seen, and that the others go on, before another node joins


class LiveShow(Show):
    """A demo without an end of its own: the busiest node is killed, another one joins, and so on."""

    def __init__(self, folder: Path, runtime: Runtime, *, seconds: float, console: Console, ctrl_c: CtrlC) -> None:
        super().__init__(folder, runtime, seconds=seconds, screen=PlainScreen(console), ctrl_c=ctrl_c)
        self._numbers = count(len(NODES) + 1)
        self.killed = 0

    def play_with_pages(self, console: Console, *, port: int, least_s: float) -> None:
        """Prepare the ledger, serve its pages, then kill and start nodes until the time is over."""
        self._prepare()
        with pages_of(self.stage, self._runtime, port=port) as link:
            console.print(f"log in, once and within ten minutes: {link}", highlight=False, markup=False, soft_wrap=True)
            for name in NODES:
                self.stage.start(name)
            self._watch(_has_begun, within_s=_START_WITHIN_S, what="a run succeeds")
            self._say("nodes take part; the busiest one is killed every 12 s. Look at Now, Nodes and Runs")
            until = self._runtime.monotonic() + least_s
            while self._runtime.monotonic() < until:
                self._one_death(until)

    def _one_death(self, until: float) -> None:
        began = self._runtime.monotonic()
        self._watch_until(min(began + _KILL_EVERY_S - _REPLACE_AFTER_S, until))
        if self._runtime.monotonic() >= until:
            return
        killed = self._watcher.look().busiest()
        while killed is None or killed not in self.stage.actors:  # nobody is busy at this moment
            self._watch_until(self._runtime.monotonic() + _LOOK_EVERY_S)
            if self._runtime.monotonic() >= until:
                return
            killed = self._watcher.look().busiest()
        self.stage.kill(killed)
        self.killed += 1
        self._say(f"kill -9 {killed}; its lease ends within {TTL_S:g} s, then other nodes take over its runs")
        self._watch_until(self._runtime.monotonic() + _REPLACE_AFTER_S)
        name = f"node-{next(self._numbers)}"
        self._say(f"starting {name} to replace {killed}")
        self.stage.start(name)


def show_live(runtime: Runtime, *, seconds: float | None, port: int, console: Console) -> int:
    """Run it until Ctrl-C, or for so long; return the exit code."""
    ctrl_c, least_s = CtrlC(), LONGEST_S if seconds is None else min(seconds, LONGEST_S)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-demo-"))
        stack.enter_context(runtime.on_signals(("INT",), ctrl_c.press))
        show = LiveShow(Path(folder), runtime, seconds=least_s, console=console, ctrl_c=ctrl_c)
        try:
            show.play_with_pages(console, port=port, least_s=least_s)
            console.print(f"ended after {least_s:g} s; nodes killed: {show.killed}", highlight=False)
        except KeyboardInterrupt:
            ctrl_c.answered()
            console.print("stopped; the nodes leave")
        finally:
            show.stage.end(3.0)
    return 0


def _has_begun(view: View) -> bool:
    return any(run.state == "succeeded" for run in view.runs)

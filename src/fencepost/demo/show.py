"""The steps of the demo: start, watch, kill the busiest node, watch the takeover, count."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.rights import Scope
from fencepost.core.runtime import Runtime
from fencepost.core.tick import instant
from fencepost.demo.pages import offer_pages
from fencepost.demo.plan import TABLES
from fencepost.demo.recount import Tally, read_books, recount, total
from fencepost.demo.screen import Screen, table_of
from fencepost.demo.stage import TTL_S, WORKERS, DemoStage
from fencepost.demo.watching import LedgerWatcher, View, clock
from fencepost.errors import FencepostError, LedgerUnavailable
from fencepost.sql.sqlite import opened

if TYPE_CHECKING:
    from rich.console import Console

    from fencepost.app.operations import Operations
    from fencepost.app.schedules import Schedules

LEAST_S = 10.0  # a shorter demo would end before the takeover
_LOOK_EVERY_S = 0.2  # how late something is shown; each time, the ledger's file is read
NODES = ("node-1", "node-2", "node-3")
_REPLACEMENT = "node-4"
_START_WITHIN_S = 60.0  # three nodes start at once, and the machine may be busy
_SETTLE_WITHIN_S = 120.0  # a moment, unless the machine is busy
_LEAVE_WITHIN_S = 8.0  # the grace of nodes is 3 s; what has not left by then is killed
_IMPORT_WITHIN_S = 8.0  # an import is due every four seconds


class CtrlC:
    """Remembers Ctrl-C: Python loses a `KeyboardInterrupt` raised in a callback, for example during an import."""

    def __init__(self) -> None:
        self._was_pressed = False

    def press(self, _number: int) -> None:
        """Remember the signal, and interrupt the current code."""
        self._was_pressed = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self._was_pressed:
            raise KeyboardInterrupt

    def answered(self) -> None:
        """Forget the signal, because it was handled."""
        self._was_pressed = False


class Show:
    """One demo, on a new ledger in its own folder."""

    def __init__(self, folder: Path, runtime: Runtime, *, seconds: float, screen: Screen, ctrl_c: CtrlC) -> None:
        self._runtime = runtime
        self._screen = screen
        self._ctrl_c = ctrl_c
        self._seconds = max(seconds, LEAST_S)
        patience_s = self._seconds + _START_WITHIN_S + 2 * _SETTLE_WITHIN_S + 2 * _LEAVE_WITHIN_S
        self.stage = DemoStage(folder, runtime, ends_at=runtime.monotonic() + patience_s)
        self._watcher = LedgerWatcher(self.stage.ledger)
        self._reports = 0
        self._until_us: int | None = None

    def play(self) -> None:
        """Run all steps."""
        self._prepare()
        for name in NODES:
            self.stage.start(name)
        self._watch(_has_begun, within_s=_START_WITHIN_S, what="three nodes take part")
        began = self._runtime.monotonic()
        self._say("three nodes take part; the fastest one claims what is due")
        self._ask_for_a_report()
        # A third of the time shows nodes at work; in the rest, the takeover has to happen, which takes about a ttl.
        self._watch_until(began + self._seconds * 0.35)
        killed = self._kill_the_busiest()
        self._watch_until(began + self._seconds * 0.35 + 1.0)
        self._say(f"starting {_REPLACEMENT} to replace {killed}")
        self.stage.start(_REPLACEMENT)
        self._watch_until(began + self._seconds * 0.6)
        self._ask_for_a_report()
        self._watch_until(began + self._seconds)

    def end(self) -> None:
        """Wait for the runs that are due by now, then stop the nodes. What falls due from now on is not planned."""
        self._until_us = until_us = self._runtime.wall_us()
        if any(actor.is_alive() for actor in self.stage.actors.values()):
            self._say("ending: waiting for the runs that are due by now, then the nodes leave")
            with self._operations() as operations:
                self._watch(
                    lambda _: pause_planned(operations.schedules, until_us), within_s=_SETTLE_WITHIN_S, what=None
                )
            self._watch(lambda _: self._is_settled(), within_s=_SETTLE_WITHIN_S, what=None)
        self.stage.end(_LEAVE_WITHIN_S)

    def count(self) -> list[Tally]:
        """Count independently what was due, its results and what was written."""
        if self._until_us is None or not self.stage.ledger.exists():
            return []
        return recount(read_books(str(self.stage.ledger)), until_us=self._until_us, reports=self._reports)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415 - SQLAlchemy is slow to import
        from fencepost.ledger.migrations import migrate  # noqa: PLC0415

        ledger = open_ledger(self.stage.url, self._runtime)
        migrate(ledger)
        ledger.close()
        with closing(opened(Path(self.stage.ledger), 10.0)) as connection, connection:
            for statement in TABLES:
                connection.execute(statement)

    @contextmanager
    def _operations(self) -> Iterator[Operations]:
        from fencepost.app.operations import Operations  # noqa: PLC0415
        from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415

        with closing(open_ledger(self.stage.url, self._runtime)) as ledger:
            yield Operations(ledger, Scope.direct())

    def _ask_for_a_report(self) -> None:
        with self._operations() as operations:
            requested = operations.trigger("report", {"month": "2026-01"}, by="demo", reason="part of the demo")
        self._reports += 1
        self._say(f"requested a report: run {requested.run_id}")

    def _kill_the_busiest(self) -> str:
        view = self._watch(_is_importing, within_s=_IMPORT_WITHIN_S, what=None)
        if view.busiest() is None:  # a busy machine was late with the import
            view = self._watch(
                lambda now: now.busiest() is not None, within_s=_START_WITHIN_S, what="a node is at work"
            )
        name = view.busiest() or NODES[0]
        for run in view.running(name):
            self._say(f"{name} is working on {run.at_work}")
        self.stage.kill(name)
        self._say(f"kill -9 {name}; its lease ends within {TTL_S:g} s, then other nodes take over its runs")
        return name

    # -- watching ----------------------------------------------------------------------------------------------------

    def _watch(self, is_seen: Callable[[View], bool], *, within_s: float, what: str | None) -> View:
        """Show what happens until `is_seen`. With `what`, raise if that does not happen in time."""
        give_up_at = self._runtime.monotonic() + within_s
        while True:
            self._ctrl_c.check()
            view = self._watcher.look()
            self._screen.show(view)
            if is_seen(view):
                return view
            if self._runtime.monotonic() > give_up_at:
                if what is None:
                    return view
                raise FencepostError(f"the demo waited {within_s:g} s in vain until {what}: {self._last_words()}")
            if what is not None and (fallen := self.stage.fallen()):
                raise FencepostError(f"{fallen[0].name} ended by itself: {fallen[0].last_words()}")
            self._runtime.sleep(_LOOK_EVERY_S)

    def _watch_until(self, at: float) -> None:
        self._watch(lambda _: self._runtime.monotonic() >= at, within_s=self._seconds * 2, what=None)

    def _is_settled(self) -> bool:
        return not any(tally.open or tally.missing for tally in self.count())

    def _last_words(self) -> str:
        return "; ".join(f"last line of {actor.name}: {actor.last_words()}" for actor in self.stage.actors.values())

    def _say(self, line: str) -> None:
        self._screen.say(f"{clock(self._runtime.wall_us())}  {line}")


def show(
    runtime: Runtime, *, seconds: float, console: Console, screen: Screen, stays: bool = False
) -> tuple[int, dict[str, object]]:
    """Run the demo; return the exit code, and the count for JSON output. `stays`: serve its pages at the end."""
    ctrl_c = CtrlC()
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder, runtime.on_signals(("INT",), ctrl_c.press):
        play = Show(Path(folder), runtime, seconds=seconds, screen=screen, ctrl_c=ctrl_c)
        screen.say(
            f"Three nodes with {WORKERS} workers each on one SQLite file, ttl {TTL_S:g} s, for about {seconds:g} s. "
            "Press Ctrl-C to end it."
        )
        was_interrupted = False
        try:
            try:
                play.play()
            except KeyboardInterrupt:
                was_interrupted = True
                ctrl_c.answered()
                screen.say("stopped")
            play.end()
        finally:
            screen.close()
            play.stage.end(1.0)
        tallies = play.count()
        console.print(table_of(tallies))
        verdict = _verdict(tallies, console, was_interrupted=was_interrupted)
        if not was_interrupted:
            offer_pages(play.stage, runtime, console, serves=stays)
    return verdict


def _verdict(tallies: list[Tally], console: Console, *, was_interrupted: bool) -> tuple[int, dict[str, object]]:
    whole = total(tallies)
    is_right = bool(tallies) and all(tally.is_right for tally in tallies)
    console.print(in_words(whole) if tallies else "nothing was counted", highlight=False)
    code = 0 if is_right else 130 if was_interrupted and not (whole.duplicates or whole.missing) else 1
    return code, {"right": is_right, "jobs": [asdict(tally) for tally in tallies], "together": asdict(whole)}


def in_words(whole: Tally) -> str:
    """Return the last line: what the count found, and whether that breaks a promise."""
    words = f"duplicates {whole.duplicates}, missing {whole.missing}, lost writes {whole.lost_writes}"
    if whole.is_right:
        return f"{words}: every due time has one result, every success one write"
    if whole.duplicates or whole.missing or whole.lost_writes:
        return f"{words}: A PROMISE WAS BROKEN"
    words = f"{words}; open {whole.open}, failed {whole.failed}: no promise was broken, but not all ran to its end"
    if whole.failed:
        return words
    return f"{words} within {_SETTLE_WITHIN_S:g} s, because this machine is too busy; try again when it does less else"


def pause_planned(schedules: Schedules, until_us: int) -> bool:
    """Pause the schedules of which all that is due until then is planned; return whether that is all of them."""
    until = instant(until_us)
    try:
        found = schedules.list(limit=100)
        for each in found:
            if each.next_due_at is not None and each.next_due_at > until:
                schedules.pause(each.id, by="demo", reason="the demo ends")
    except LedgerUnavailable:  # a busy file
        return False
    return all(each.next_due_at is None or each.next_due_at > until for each in found)


def _has_begun(view: View) -> bool:
    living = sum(state == "living" for state in view.nodes.values())
    return living == len(NODES) and any(run.state == "succeeded" for run in view.runs)


def _is_importing(view: View) -> bool:
    return any(run.job == "import_orders" and run.state == "running" and (run.progress or 0) > 0.1 for run in view.runs)

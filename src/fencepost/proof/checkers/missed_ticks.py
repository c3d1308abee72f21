"""15. A due time is missed only if no node could run it, and missed ones are handled by the misfire policy.

``notes["missed"]`` maps a schedule to what is known about it: ``able``, periods in which a node with the job lived;
``unable``, periods in which certainly none did; ``misfire``, its policy; ``shaken``, periods in which the ledger's
clock was set, which are not checked. A period is a pair of the ledger's times; its end may be None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencepost.proof.evidence import Evidence, RunSeen, Violation
from fencepost.proof.telling import run_text, time_text

NAME = "missed ticks"
_MARGIN_US = 30_000_000  # starting and stopping a node takes some time


def check(evidence: Evidence) -> Iterator[Violation]:
    """Check the ticks of each schedule for which it is known when a node could run them."""
    known: Mapping[str, Mapping[str, Any]] = evidence.notes.get("missed", {})
    ticks: dict[str, list[RunSeen]] = {schedule: [] for schedule in known}
    for run in evidence.runs:
        if run.is_tick and run.schedule in ticks:
            ticks[run.schedule].append(run)
    for schedule, about in known.items():
        yield from _needlessly(ticks[schedule], about)
        yield from _made_up(ticks[schedule], about)


def _needlessly(ticks: list[RunSeen], about: Mapping[str, Any]) -> Iterator[Violation]:
    for run in ticks:
        if (
            run.state == "misfired"
            and any(_within(run, stretch) for stretch in about["able"])
            and not _shaken(run, about)
        ):
            yield Violation(NAME, f"{run_text(run)} was missed, though a node that could run it lived all the time", "")


def _made_up(ticks: list[RunSeen], about: Mapping[str, Any]) -> Iterator[Violation]:
    """Of what was due while no node could run it: one run at most if the policy is ``once``, none if it is ``skip``."""
    most = {"once": 1, "skip": 0}.get(about["misfire"] or "")
    if most is None:
        return
    for stretch in about["unable"]:
        inside = [run for run in ticks if _within(run, stretch) and not _shaken(run, about)]
        begun = [run for run in inside if run.state not in ("misfired", "cancelled")]
        if len(begun) > most:
            yield Violation(
                NAME,
                f"nobody could run {begun[0].schedule!r} from {time_text(stretch[0])} to {time_text(stretch[1])}; its "
                f"misfire policy is {about['misfire']!r}, and there are {len(begun)} runs for that time",
                "; ".join(map(run_text, begun[:4])),
            )


def _within(run: RunSeen, stretch: tuple[int, int | None]) -> bool:
    first, last = run.span_us
    return stretch[0] + _MARGIN_US <= first and (stretch[1] is None or last <= stretch[1] - _MARGIN_US)


def _shaken(run: RunSeen, about: Mapping[str, Any]) -> bool:
    first, last = run.span_us
    return any(begin <= last and first <= end for begin, end in about.get("shaken", ()))

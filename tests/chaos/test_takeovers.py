"""How long a takeover took is measured from the fault to the next start, and only where there was one."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.proof.chaos.faults import Fault, FaultKind
from fencepost.proof.chaos.sparing import Sparing
from fencepost.proof.chaos.takeovers import Takeover, quantile, takeovers
from fencepost.proof.evidence import AttemptSeen, Evidence, Timing
from fencepost.proof.history import Entry, EntryKind, History

TTL_S = 3.0
NAMES = ("node-1", "node-2", "node-3", "contender-1", "contender-2")


class Told:
    """A history that is told line by line."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.attempts: list[AttemptSeen] = []

    def begin(self, at: float, run: int, node: str, *, token: int, job: str = "settle", lost: bool = True) -> None:
        detail = {"job": job, "pid": 100 + token}
        self.entries.append(
            Entry(at, EntryKind.NOTE, "begin", f"{node}:1:x", name=str(run), token=token, detail=detail)
        )
        outcome = "lost" if lost else "succeeded"
        self.attempts.append(AttemptSeen(run, token, token, node, outcome, None, None))

    def acquire(self, at: float, name: str, who: str, grant: str) -> None:
        self.entries.append(Entry(at, EntryKind.OK, "acquire", who, name=name, grant=grant, token=int(at * 10)))

    def release(self, at: float, name: str, who: str, grant: str) -> None:
        self.entries.append(Entry(at, EntryKind.INVOKE, "release", who, name=name, grant=grant))

    def taken(self, *faults: Fault, **more: Any) -> list[Takeover]:
        history = History(sorted(self.entries, key=lambda entry: entry.at))
        evidence = Evidence(history, Timing(TTL_S, 1.0, 100.0, 120.0), attempts=tuple(self.attempts))
        return takeovers(evidence, faults, names=NAMES, **more)


def fault(kind: FaultKind, target: str, at: float, until: float | None = None, *, pid: int = 0) -> Fault:
    ends = at if until is None else until
    return Fault(kind, target, at, ends, pid, over_at=ends)


def test_a_killed_nodes_run_is_taken_over_when_its_function_begins_again() -> None:
    told = Told()
    told.begin(9.0, 1, "node-1", token=1)
    told.begin(13.5, 1, "node-2", token=2, lost=False)
    (found,) = told.taken(fault(FaultKind.KILL_NODE, "node-1", 10.0))
    assert (found.what, found.winner, found.took_s, found.was_disturbed) == ("job settle", "node-2", 3.5, False)


def test_a_run_that_had_ended_when_its_node_was_killed_is_no_takeover() -> None:
    told = Told()
    told.begin(9.0, 1, "node-1", token=1, lost=False)
    told.begin(13.5, 2, "node-2", token=2, lost=False)
    assert told.taken(fault(FaultKind.KILL_NODE, "node-1", 10.0)) == []


def test_runs_of_a_job_that_allows_others_are_told_apart() -> None:
    told = Told()
    told.begin(9.0, 1, "node-1", token=1, job="mail")
    told.begin(11.0, 2, "node-2", token=2, job="mail", lost=False)
    told.begin(14.0, 1, "node-2", token=3, job="mail", lost=False)
    assert [each.took_s for each in told.taken(fault(FaultKind.KILL_NODE, "node-1", 10.0))] == [4.0]


def test_of_a_killed_worker_only_its_own_run_is_lost() -> None:
    told = Told()
    told.begin(9.0, 1, "node-1", token=1)
    told.begin(9.0, 2, "node-1", token=2, job="quote")
    told.begin(10.5, 2, "node-1", token=3, job="quote", lost=False)
    told.begin(10.6, 1, "node-1", token=4, lost=False)
    (found,) = told.taken(fault(FaultKind.KILL_WORKER, "node-1", 10.0, pid=102))
    assert (found.what, found.took_s) == ("job quote", 0.5)


def test_a_lock_counts_from_the_kill_of_who_held_it() -> None:
    told = Told()
    told.acquire(9.0, "a", "contender-1", "g1")
    told.acquire(9.0, "b", "contender-1", "g2")
    told.release(9.5, "b", "contender-1", "g2")
    told.acquire(12.0, "b", "contender-2", "g3")
    told.acquire(13.0, "a", "contender-2", "g4")
    (found,) = told.taken(fault(FaultKind.KILL_CONTENDER, "contender-1", 10.0))
    assert (found.what, found.took_s) == ("lock a", 3.0)


def test_what_was_lost_by_an_earlier_kill_is_not_lost_again() -> None:
    told = Told()
    told.acquire(9.0, "a", "contender-1", "g1")
    told.acquire(13.0, "a", "contender-2", "g2")
    kills = [fault(FaultKind.KILL_CONTENDER, "contender-1", at) for at in (10.0, 12.0)]
    assert [each.took_s for each in told.taken(*kills)] == [3.0]


@pytest.mark.parametrize(("until", "next_at", "counts"), [(12.0, 13.0, False), (15.0, 13.2, True), (16.0, 17.0, True)])
def test_a_stop_counts_if_somebody_took_over_meanwhile_or_should_have(
    until: float, next_at: float, counts: bool
) -> None:
    told = Told()
    told.acquire(9.0, "a", "contender-1", "g1")
    told.acquire(next_at, "a", "contender-2", "g2")
    assert bool(told.taken(fault(FaultKind.PAUSE_CONTENDER, "contender-1", 10.0, until))) is counts


def test_a_takeover_during_an_outage_or_with_nobody_well_is_counted_apart() -> None:
    told = Told()
    told.begin(9.0, 1, "node-1", token=1)
    told.begin(16.0, 1, "node-2", token=2, lost=False)
    kill = fault(FaultKind.KILL_NODE, "node-1", 10.0)
    kill.over_at = 15.0
    cuts = [fault(FaultKind.CUT, name, 11.0) for name in ("node-2", "node-3")]
    assert [each.was_disturbed for each in told.taken(kill, fault(FaultKind.OUTAGE, "ledger", 8.0, 9.0))] == [True]
    assert [each.was_disturbed for each in told.taken(kill, *cuts)] == [True]
    assert [each.was_disturbed for each in told.taken(kill, cuts[0])] == [False]


def test_the_quantile_is_a_value_that_was_measured() -> None:
    assert quantile([], 0.99) is None
    assert quantile([2.0], 0.99) == 2.0
    assert quantile(list(map(float, range(100))), 0.5) == 50.0
    assert quantile(list(map(float, range(200))), 0.99) == 198.0


def test_one_is_always_spared_and_was_well_for_a_ttl_before() -> None:
    names = ["a", "b", "c"]
    sparing = Sparing(names, ttl_s=TTL_S, begins_at=50.0)
    well_since = dict.fromkeys(names, 0.0)
    for tenths in range(500, 3000):
        now = tenths / 10
        for name in names:
            if sparing.is_free(name, now, now + 1.0):
                well_since[name] = now + 1.0
        assert min(well_since.values()) <= max(now - TTL_S, 0.0)

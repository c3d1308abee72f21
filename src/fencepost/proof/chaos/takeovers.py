"""How long a takeover took: from the kill or stop of a holder to the next start.

The holder is a contender with a lock, or a node or worker that executes a run. The next start is the next grant of
the lock, or the next time that the function of the run begins, or that of another run under the same key.

**What counts.** After a kill, always. After a stop, if another took over while the holder was stopped, or it was for
so long that one should have. A takeover during which the servers failed, or no peer was undisturbed all the time, is
counted separately: it takes longer by design, since a node that lost contact itself declares no other node dead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fencepost.proof.chaos.faults import ENDS, EVERYBODY, KILLS, STOPS, Fault, FaultKind
from fencepost.proof.chaos.plan import BY_NAME
from fencepost.proof.evidence import Evidence
from fencepost.proof.history import Entry, EntryKind, History

GRACE_S = 2.0  # what a takeover may take beyond the ttl
_SIGHT_S = 0.5  # a node notes that it has contact only when it next asks


@dataclass(frozen=True, slots=True)
class Takeover:
    """One takeover: of what, from and by which actor, and how long it took."""

    what: str
    loser: str
    winner: str
    fault: FaultKind
    at: float
    took_s: float
    was_disturbed: bool

    def __str__(self) -> str:
        return f"{self.what} from {self.loser} ({self.fault}) by {self.winner} after {self.took_s:.2f} s"


@dataclass(frozen=True, slots=True)
class _Hold:
    """A holder had something from `since` on; `until` is when it released it itself."""

    what: str
    name: str
    pid: int
    since: float
    until: float


def takeovers(
    evidence: Evidence, faults: Sequence[Fault], *, names: Sequence[str], is_one_file: bool = False
) -> list[Takeover]:
    """Return all takeovers, in the order of faults; `names` are all actors.

    In one file (SQLite), a process that is stopped in the middle of a transaction keeps all others from writing.
    """
    general = EVERYBODY | (STOPS | {FaultKind.PAUSE_WORKER} if is_one_file else frozenset())
    starts: dict[str, list[_Hold]] = defaultdict(list)
    history, ttl_s = evidence.history, evidence.timing.ttl_s
    lost_ones = {(str(each.run_id), each.token) for each in evidence.attempts if each.outcome == "lost"}
    for hold in sorted((*_runs(history, lost_ones), *_locks(history)), key=lambda each: each.since):
        starts[hold.what].append(hold)
    found: list[Takeover] = []
    for fault in faults:
        if fault.kind in KILLS | STOPS:
            for what, holds in starts.items():
                lost, won = _around(holds, fault.at)
                if lost is not None and won is not None and _is_hit(lost, fault, faults) and _counts(won, fault, ttl_s):
                    disturbed = _is_disturbed(fault, won, faults, names=names, ttl_s=ttl_s, general=general)
                    took_s = won.since - fault.at
                    found.append(Takeover(what, lost.name, won.name, fault.kind, fault.at, took_s, disturbed))
    return found


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def _runs(history: History, lost: Collection[tuple[str, int]]) -> Iterator[_Hold]:
    """Return the runs that began; one that the ledger has not noted as lost had ended before."""
    ends = {(entry.name, entry.token): entry.at for entry in history.of("end")}
    for entry in history.of("begin"):
        node, which = entry.node.partition(":")[0], (entry.name, entry.token or 0)
        until = ends.get(which, float("inf")) if which in lost else entry.at
        yield _Hold(_key(entry), node, int(entry.detail["pid"]), entry.at, until)


def _key(entry: Entry) -> str:
    """Name what a run holds: its job, of which there is one at a time, or itself."""
    job = str(entry.detail["job"])
    return f"run {entry.name}" if BY_NAME[job].overlap == "allow" else f"job {job}"


def _locks(history: History) -> Iterator[_Hold]:
    released: dict[str, float] = {}
    for entry in history.of("release"):
        released.setdefault(entry.grant, entry.at)
    for entry in history.of("acquire"):
        if entry.kind is EntryKind.OK:
            yield _Hold(f"lock {entry.name}", entry.node, 0, entry.at, released.get(entry.grant, float("inf")))


def _around(holds: list[_Hold], at: float) -> tuple[_Hold | None, _Hold | None]:
    """Return the last holder before an instant, and the next one."""
    position = bisect_right([each.since for each in holds], at)
    before = holds[position - 1] if position else None
    return before, holds[position] if position < len(holds) else None


def _is_hit(hold: _Hold, fault: Fault, faults: Sequence[Fault]) -> bool:
    if hold.name != fault.target or hold.until <= fault.at:
        return False
    if fault.kind is FaultKind.KILL_WORKER:
        return hold.pid == fault.pid
    return not any(  # it was ended before, and this is what came after it
        other.target == hold.name and other.kind in ENDS and hold.since < other.at < fault.at for other in faults
    )


def _counts(won: _Hold, fault: Fault, ttl_s: float) -> bool:
    if fault.kind in KILLS or won.since <= fault.until:
        return True
    return fault.until - fault.at >= ttl_s + GRACE_S


def _is_disturbed(
    fault: Fault,
    won: _Hold,
    faults: Sequence[Fault],
    *,
    names: Sequence[str],
    ttl_s: float,
    general: Collection[FaultKind],
) -> bool:
    """Whether servers failed meanwhile, or no peer was undisturbed from beginning to end."""
    sight_s = ttl_s + _SIGHT_S if fault.kind not in _OF_CONTENDERS else 0.0
    meanwhile = [other for other in faults if other.at <= won.since and other.over_at + sight_s >= fault.at]
    if any(other.kind in general for other in meanwhile):
        return True
    ailing = {other.target for other in meanwhile if other.kind not in _OF_WORKERS}
    others = {name for name in names if _is_contender(name) == _is_contender(fault.target)}
    return fault.kind is not FaultKind.KILL_WORKER and others <= ailing


def _is_contender(name: str) -> bool:
    return name.startswith("contender")


_OF_CONTENDERS = frozenset({FaultKind.KILL_CONTENDER, FaultKind.PAUSE_CONTENDER})
_OF_WORKERS = frozenset({FaultKind.KILL_WORKER, FaultKind.PAUSE_WORKER})

"""The states of a run, and the table of transitions between them.

A run is recorded once (planned from a tick, or enqueued on request), may wait and be claimed several times, and ends
once. `diagram()` draws the table; the diagram in the docs is generated from it.

- `waiting`: cannot be claimed. It waits (`WaitsFor`) for the exclusive key of another run, for a time beyond the
  planning horizon, for a node that has its job, or for the decision of an operator.
- `queued`: may be claimed once its `available_at` has come. A retry's back-off is such a time.
- `running`: a node has claimed it. Only this state has an attempt.
- `succeeded`, `dead`, `cancelled`, `skipped`, `misfired`: terminal. To repeat a finished run, a new run is created that
  refers to the old one.

**Promises.** A run never leaves a terminal state. Every transition has a name (`Move`), and every move that ends an
attempt has an outcome.

**Not promised.** That a move succeeds: this module knows the table, not the rows. Each move is a compare-and-set in the
ledger; if the state has changed in the meantime, it has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from fencepost.errors import IllegalMove


class RunState(StrEnum):
    """The state of a run, as the ledger stores it."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISFIRED = "misfired"


class WaitsFor(StrEnum):
    """What a waiting run waits for."""

    KEY = "key"
    TIME = "time"
    PERSON = "person"
    NODE = "node"  # no living node has its job and takes runs from its queue


class AttemptOutcome(StrEnum):
    """How an attempt ended. A claim that was returned before it started leaves no attempt, so it has no outcome."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    INTERRUPTED = "interrupted"  # its node was shut down in an orderly way before it ended


class Move(StrEnum):
    """The transitions of a run."""

    PLAN = "plan"  # a tick became a run
    MISFIRE = "misfire"  # a tick was too late, and its policy does not run it
    ENQUEUE = "enqueue"  # it was requested
    BLOCK = "block"  # its exclusive key is taken
    PROMOTE = "promote"  # the key is free, its time is near, or a node that can take it has joined
    RELEASE = "release"  # an operator released a held run
    PARK = "park"  # no living node can take it, and none could for ten minutes
    HOLD = "hold"  # the ledger was restored, and an operator has to decide first
    CLAIM = "claim"
    HAND_BACK = "hand_back"  # claimed, and returned before it was started
    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    TIME_OUT_AND_RETRY = "time_out_and_retry"
    TIME_OUT_AND_FAIL = "time_out_and_fail"
    SKIP = "skip"  # by overlap, by a paused schedule, or because the job raised Skip
    CANCEL = "cancel"
    LOSE_AND_RERUN = "lose_and_rerun"
    LOSE_AND_FAIL = "lose_and_fail"
    LOSE_AND_HOLD = "lose_and_hold"
    LOSE_AND_CANCEL = "lose_and_cancel"  # its node died while it was being cancelled
    INTERRUPT_AND_RERUN = "interrupt_and_rerun"
    INTERRUPT_AND_FAIL = "interrupt_and_fail"
    INTERRUPT_AND_HOLD = "interrupt_and_hold"


_WAITING, _QUEUED, _RUNNING = RunState.WAITING, RunState.QUEUED, RunState.RUNNING
_AGAIN = frozenset({_QUEUED, _WAITING})

State = RunState | None
"""None is the state of a run that is not recorded yet."""

TRANSITIONS: Mapping[tuple[State, Move], frozenset[RunState]] = MappingProxyType(
    {
        (None, Move.PLAN): _AGAIN,
        (None, Move.ENQUEUE): _AGAIN,
        (None, Move.MISFIRE): frozenset({RunState.MISFIRED}),
        (None, Move.SKIP): frozenset({RunState.SKIPPED}),
        (_WAITING, Move.PROMOTE): frozenset({_QUEUED}),
        (_WAITING, Move.RELEASE): frozenset({_QUEUED}),
        (_WAITING, Move.HOLD): frozenset({_WAITING}),
        (_WAITING, Move.SKIP): frozenset({RunState.SKIPPED}),
        (_WAITING, Move.MISFIRE): frozenset({RunState.MISFIRED}),
        (_WAITING, Move.CANCEL): frozenset({RunState.CANCELLED}),
        (_QUEUED, Move.BLOCK): frozenset({_WAITING}),
        (_QUEUED, Move.HOLD): frozenset({_WAITING}),
        (_QUEUED, Move.PARK): frozenset({_WAITING}),
        (_QUEUED, Move.CLAIM): frozenset({_RUNNING}),
        (_QUEUED, Move.SKIP): frozenset({RunState.SKIPPED}),
        (_QUEUED, Move.MISFIRE): frozenset({RunState.MISFIRED}),
        (_QUEUED, Move.CANCEL): frozenset({RunState.CANCELLED}),
        (_RUNNING, Move.HAND_BACK): frozenset({_QUEUED}),
        (_RUNNING, Move.SUCCEED): frozenset({RunState.SUCCEEDED}),
        (_RUNNING, Move.RETRY): _AGAIN,
        (_RUNNING, Move.FAIL): frozenset({RunState.DEAD}),
        (_RUNNING, Move.TIME_OUT_AND_RETRY): _AGAIN,
        (_RUNNING, Move.TIME_OUT_AND_FAIL): frozenset({RunState.DEAD}),
        (_RUNNING, Move.SKIP): frozenset({RunState.SKIPPED}),
        (_RUNNING, Move.CANCEL): frozenset({RunState.CANCELLED}),
        (_RUNNING, Move.LOSE_AND_RERUN): _AGAIN,
        (_RUNNING, Move.LOSE_AND_FAIL): frozenset({RunState.DEAD}),
        (_RUNNING, Move.LOSE_AND_HOLD): frozenset({_WAITING}),
        (_RUNNING, Move.LOSE_AND_CANCEL): frozenset({RunState.CANCELLED}),
        (_RUNNING, Move.INTERRUPT_AND_RERUN): _AGAIN,
        (_RUNNING, Move.INTERRUPT_AND_FAIL): frozenset({RunState.DEAD}),
        (_RUNNING, Move.INTERRUPT_AND_HOLD): frozenset({_WAITING}),
    }
)

TERMINAL: frozenset[RunState] = frozenset(RunState) - {_WAITING, _QUEUED, _RUNNING}

# An attempt of a job that raises Skip or Cancel counts as cancelled: it neither succeeded nor failed.
_OUTCOMES: Mapping[Move, AttemptOutcome] = {
    Move.SUCCEED: AttemptOutcome.SUCCEEDED,
    Move.RETRY: AttemptOutcome.FAILED,
    Move.FAIL: AttemptOutcome.FAILED,
    Move.TIME_OUT_AND_RETRY: AttemptOutcome.TIMED_OUT,
    Move.TIME_OUT_AND_FAIL: AttemptOutcome.TIMED_OUT,
    Move.SKIP: AttemptOutcome.CANCELLED,
    Move.CANCEL: AttemptOutcome.CANCELLED,
    Move.LOSE_AND_RERUN: AttemptOutcome.LOST,
    Move.LOSE_AND_FAIL: AttemptOutcome.LOST,
    Move.LOSE_AND_HOLD: AttemptOutcome.LOST,
    Move.LOSE_AND_CANCEL: AttemptOutcome.LOST,
    Move.INTERRUPT_AND_RERUN: AttemptOutcome.INTERRUPTED,
    Move.INTERRUPT_AND_FAIL: AttemptOutcome.INTERRUPTED,
    Move.INTERRUPT_AND_HOLD: AttemptOutcome.INTERRUPTED,
}


def is_terminal(state: RunState) -> bool:
    """Whether `state` is a terminal state."""
    return state in TERMINAL


def next_state(state: State, move: Move, to: RunState | None = None) -> RunState:
    """Return the state after `move`, or raise `IllegalMove`.

    If a move can lead to two states (a retry is queued, or waits for its key), `to` selects one. Without `to`, the run
    is queued.
    """
    targets = TRANSITIONS.get((state, move), frozenset())
    chosen = to or (_QUEUED if _QUEUED in targets else next(iter(targets), None))
    if chosen not in targets or chosen is None:
        raise IllegalMove(str(state or "new"), move.value, to.value if to else None)
    return chosen


def states_before(move: Move) -> frozenset[RunState]:
    """Return the recorded states in which `move` is possible, for the condition of its compare-and-set."""
    return frozenset(state for state, verb in TRANSITIONS if verb is move and state is not None)


def outcome_of(move: Move) -> AttemptOutcome | None:
    """Return the outcome of an attempt that `move` ends; None for a claim that is returned."""
    return _OUTCOMES.get(move)


def diagram() -> str:
    """Return the table as a Mermaid diagram, one line per pair of states."""
    return "\n".join(
        ["stateDiagram-v2", *_arrows(), *(f"    {state} --> [*]" for state in RunState if is_terminal(state))]
    )


def _arrows() -> list[str]:
    verbs: dict[tuple[str, RunState], list[str]] = {}
    for (state, move), targets in TRANSITIONS.items():
        for target in (each for each in RunState if each in targets):
            verbs.setdefault((state or "[*]", target), []).append(move.replace("_", " "))
    return [f"    {start} --> {end}: {', '.join(names)}" for (start, end), names in verbs.items()]

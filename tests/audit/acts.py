"""Every act of people, with a target that fits, so that it is really done where nothing cuts it.

Acts are the methods of `Authorized` that do not only look. A new method with a right is among them at once, with its
case of `tests.access.scene`; if its target does not fit, the harness says so. What only looks is tried, too: it
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

from fencepost import every, locks
from fencepost.access import Access
from fencepost.access.rights import RIGHTS
from fencepost.core.fencing import AHEAD_US
from fencepost.core.rights import LOOKS, Scope
from fencepost.ledger import nodes
from tests.access.scene import CASES, MARK, Call, Target, dead_id, set_run
from tests.audit.stages import Stage, Stages

LOOKS_AS_ADMIN = frozenset(
    {"access.accounts", "access.permissions", "access.role_reasons", "access.api_tokens", "access.logins"}
)
"""Methods that have the right of an act, because only an admin may see what they return."""
LOCK = f"{MARK} lock"
Prepare = Callable[[Stage], Target]


@dataclass(frozen=True)
class Act:
    """A call, on what, and what is known of it.

    `smaller` are constants of the product that make it several transactions here. `in_steps`: an entry ``begun`` comes
    before it. `entry_first`: the entry of the act itself commits before what is done in another database.
    """

    method: str
    call: Call
    ready: Prepare = lambda stage: stage.mine
    in_steps: bool = False
    entry_first: bool = False
    smaller: Mapping[str, int] = field(default_factory=dict)

    def stage(self, stages: Stages) -> Stage:
        return stages.shop if self.method.startswith(("letters", "bulk")) else stages.scene

    @contextmanager
    def in_small(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, value in self.smaller.items():
                stack.enter_context(mock.patch(name, value))
            yield


def only_looks(method: str) -> bool:
    """Whether a method changes nothing: of a right to look, or of none. `once` does what it is given."""
    act = RIGHTS[method]
    return method in LOOKS_AS_ADMIN or act in LOOKS or (act is None and method != "once")


# -- what an act needs -------------------------------------------------------------------------------------------------


def _queued(stage: Stage, **values: object) -> Target:
    run_id = stage.app.operations.trigger(stage.mine.job, by="root", again=True).run_id
    if values:
        set_run(stage.app, run_id, **values)
    return stage.mine._replace(run=run_id)


def _living_node(stage: Stage) -> Target:
    """A node of a version that can be asked to drain."""
    table = stage.app.ledger.tables.node
    living = table.update().values(version="1/0005/0001", left_at=None)
    stage.app.ledger.write(lambda cursor: stage.app.ledger.change(cursor, living))
    if not nodes.living_nodes(stage.app.ledger):
        raise AssertionError("no node lives")
    return stage.mine


def _disabled(stage: Stage) -> Target:
    Access(stage.app.ledger, Scope.direct("root")).disable_account("eve")
    return stage.mine


def _acknowledged(stage: Stage) -> Target:
    stage.app.operations.concerns.acknowledge("given-up", dead_id(stage.mine), by="root")
    return stage.mine


def _paused(stage: Stage) -> Target:
    stage.app.schedules.pause(stage.mine.schedule, by="root")
    return stage.mine


def _all_paused(stage: Stage) -> Target:
    stage.app.operations.pauses.pause(None, by="root", reason="why")
    return stage.mine


def _some_given_up(stage: Stage) -> Target:
    for _ in range(3):
        _queued(stage, state="dead", ended_at=1)
    return stage.mine


def _begun(stage: Stage) -> Target:
    """A ledger in which a node's runs had begun."""
    running = _queued(stage, state="running", node="n1", token=1, started_at=1)
    return stage.mine._replace(run=running.run)


def _at_rest(stage: Stage) -> Target:
    """A ledger in which no run is under way: it is accepted in one transaction."""
    table = stage.app.ledger.tables.run
    ended = table.update().where(table.c.state == "running").values(state="succeeded", ended_at=1)
    stage.app.ledger.write(lambda cursor: stage.app.ledger.change(cursor, ended))
    return stage.mine


def _without_schedule(stage: Stage) -> Target:
    """A job with runs to cancel, and no schedule whose end has an entry of its own."""
    for each in stage.app.schedules.list(job=stage.mine.job):
        stage.app.operations.schedules.delete(each.id, by="root", even_of_code=True)
    for _ in range(3):
        _queued(stage)
    return stage.mine


def _held_lock(stage: Stage) -> Target:
    """A lock whose holder is gone, and whose session lasts."""
    with locks.connect(stage.app.ledger.url.lease_url(), holder="gone") as other:
        other.lock(LOCK, ttl="1h").acquire()
        held = stage.databases.read()
    stage.databases.put_back(held)
    return stage.mine


def _lock_far_ahead(stage: Stage) -> Target:
    with locks.connect(stage.app.ledger.url.lease_url()) as other:
        ahead = stage.app.ledger.now_us() + 3 * AHEAD_US
        other.lock(LOCK, floor=ahead).acquire().release()
    return stage.mine


def _unfinished(stage: Stage) -> Target:
    return stage.mine._replace(run=stage.unfinished)


# -- all acts ----------------------------------------------------------------------------------------------------------

_READY: dict[str, Prepare] = {
    "once": _queued,
    "cancel": _queued,
    "release": lambda stage: _queued(stage, state="waiting", waits_for="person"),
    "drain_node": _living_node,
    "concerns.unacknowledge": _acknowledged,
    "schedules.resume": _paused,
    "restored.accept": _begun,
    "restored.as_copy": _begun,
    "locks.release": _held_lock,
    "locks.reset": _lock_far_ahead,
    "bulk.forget": _unfinished,
    "access.enable_account": _disabled,
}
_CALLS: dict[str, Call] = {
    "audit.prune": lambda a, _: a.audit.prune(before=a.now()),
    "restored.accept": lambda a, _: a.restored.accept(reason="why", unnoticed=True),
    "restored.as_copy": lambda a, _: a.restored.as_copy(reason="why", unnoticed=True),
    "access.revoke_api_token": lambda a, _: a.access.revoke_api_token(a.access.api_tokens()[0].id),
}
"""Where the case of the scene is about something that does not exist."""
_IN_STEPS = {
    *("rename_job", "forget_job", "restored.accept", "restored.as_copy"),
    *("locks.release", "locks.reset"),  # the first of them only where leases are in a store of their own
}
_ENTRY_FIRST = {"letters.drop", "bulk.forget"}
_SMALLER = {"letters.drop": {"fencepost.app.letters._PAGE": 5}, "rename_job": {"fencepost.ledger.moving._BATCH": 2}}


def _act(method: str, call: Call | None = None, ready: Prepare | None = None, **smaller: int) -> Act:
    return Act(
        method,
        call or _CALLS.get(method) or CASES[method],
        ready or _READY.get(method) or (lambda stage: stage.mine),
        in_steps=method in _IN_STEPS,
        entry_first=method in _ENTRY_FIRST,
        smaller=smaller or _SMALLER.get(method, {}),
    )


_MORE: dict[str, Act] = {
    "backfill in batches": _act("backfill", **{"fencepost.app.operations._BATCH": 2}),
    "reprocess in batches": _act("reprocess", None, _some_given_up, **{"fencepost.app.operations._BATCH": 2}),
    "cancel of a running run": _act(
        "cancel", None, lambda stage: _queued(stage, state="running", node="n1", token=1, started_at=1)
    ),
    "forget_job in batches": _act("forget_job", None, _without_schedule, **{"fencepost.ledger.removing._BATCH": 2}),
    "restored.accept of a ledger at rest": _act("restored.accept", None, _at_rest),
    "pauses.pause of a queue": _act("pauses.pause", lambda a, _: a.pauses.pause("default", reason="why")),
    "pauses.resume of everything": _act("pauses.resume", lambda a, _: a.pauses.resume(None), _all_paused),
    "schedules.put of one that is there": _act(
        "schedules.put", lambda a, t: a.schedules.put("moving", t.job, every("5h"))
    ),
    "letters.replay of some": _act("letters.replay", lambda a, t: a.letters.replay(t.job, [1, 2], reason="why")),
    "letters.drop of some": _act("letters.drop", lambda a, t: a.letters.drop(t.job, [1, 2], reason="why")),
}
"""Acts that take another way for another target."""

ACTS: dict[str, Act] = {name: _act(name) for name in sorted(RIGHTS) if not only_looks(name)} | _MORE
"""All acts, by name."""

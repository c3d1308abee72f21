"""Every act is cut before and after every statement: afterwards both the act and its entry are there, or neither.

The acts are those of `tests.access.scene`, which has a case for each method that pages and REST can call. Whether an
act was done is seen in the database itself: any row but those of the audit is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from fencepost.access import Access, Authorized
from fencepost.access.rights import RIGHTS
from fencepost.core.rights import ALL_JOBS, NEEDS, Role, Scope
from fencepost.errors import FencepostError
from fencepost.ledger import auditing, nodes
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.logins import add_login
from tests.access.scene import CASES, Call, Scene, Target, dead_id, scene, set_run
from tests.crashpoints.drivers import watched
from tests.crashpoints.points import POINTS, Way

_OF_THE_AUDIT = ("audit", "audit_head")
_MOST_POINTS = 400
NOT_HERE = {
    *("letters.replay", "letters.drop", "bulk.again", "bulk.forget"),  # need a bulk job: tests/access
    *("restored.accept", "restored.as_copy"),  # need a restored ledger
    *("locks.release", "locks.reset"),  # on SQLite in another file, with an entry before and one after
    *("once", "check"),
}
"""Methods that do nothing in this scene."""

_OWN: dict[str, Call] = {
    "access.revoke_api_token": lambda a, _: a.access.revoke_api_token(a.access.api_tokens()[0].id),
    "audit.prune": lambda a, _: a.audit.prune(before=a.now()),
}
"""Calls that the scene of the rights has for something that does not exist."""

IN_STEPS = {"forget_job", "rename_job", "backfill", "reprocess"}
"""Acts of several transactions: the entry is in the one that decides."""


def acts() -> dict[str, Call]:
    """Return the methods that do something, by name. A new one is among them as soon as it has a right."""
    found = {name for name, act in RIGHTS.items() if act is not None and NEEDS[act] is not Role.VIEWER}
    looks = {name for name in found if name.rpartition(".")[2] in _LOOKS}
    return {name: _OWN.get(name, CASES[name]) for name in sorted(found - looks - NOT_HERE)}


_LOOKS = (
    *("accounts", "permissions", "api_tokens", "logins", "entries", "anchor", "verify", "export", "standing"),
    *("would_backfill", "read_params", "show", "list", "iterate", "get", "preview"),
)


@dataclass
class Cuts:
    """What came of the cuts."""

    plays: int = 0
    both: int = 0
    neither: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    rows: dict[str, list[tuple[Any, ...]]]
    entries: int


def _seen(ledger: Ledger) -> _Seen:
    tables = {table.name: table for table in ledger.tables.all}
    skipped = {ledger.tables.operating[name].name for name in _OF_THE_AUDIT}

    def work(cursor: Any) -> dict[str, list[tuple[Any, ...]]]:
        return {
            name: sorted((tuple(row) for row in ledger.rows(cursor, select(table))), key=repr)
            for name, table in tables.items()
            if name not in skipped
        }

    state = auditing.state(ledger)
    return _Seen({**ledger.read(work), "pruned": [state.floor]}, state.head.n)


def cut(name: str, fresh: Callable[[], str], *, ways: tuple[Way, ...] = (Way.ERROR, Way.LOST), every: int = 1) -> Cuts:
    """Cut one act at each `every`-th of its statements, in these ways, on ledgers that `fresh` makes."""
    found = Cuts()
    for way in ways:
        number = 1
        while number <= _MOST_POINTS:
            with _on_stage(fresh) as stage:
                target = _ready(stage, name)
                while number <= _MOST_POINTS and _play(stage, name, target, found, number=number, way=way):
                    number += every
            if not found.plays or not POINTS.was_reached:
                break
            number += every
    return found


@contextmanager
def _on_stage(fresh: Callable[[], str]) -> Iterator[Scene]:
    with ExitStack() as stack:
        stack.enter_context(watched())
        made = scene(fresh())
        stage = next(made)
        stack.callback(lambda: [None for _ in made])
        yield stage


def _ready(stage: Scene, name: str) -> Target:
    """Prepare what an act needs: nodes that have left, an account, an API token, a run in the right state."""
    app, direct = stage.app, Scope.direct("root")
    for node in nodes.living_nodes(app.ledger):
        if name != "drain_node":
            nodes.leave(app.ledger, node.id)
    if name == "drain_node":
        table = app.ledger.tables.node  # of a version that can be asked
        app.ledger.write(lambda cursor: app.ledger.change(cursor, table.update().values(version="1/0005/0001")))
    access = Access(app.ledger, direct)
    for principal in ("host:ann", "host:bob"):
        access.give(principal, "admin")
    access.put_account("eve", None)
    access.add_api_token("ci", "viewer", expires_in="1d")
    app.ledger.write(
        lambda cursor: add_login(app.ledger, cursor, "s", "user:eve", how="login", address=None, lasts_s=60)
    )
    if name == "access.enable_account":
        access.disable_account("eve")
    if name == "concerns.unacknowledge":
        app.operations.concerns.acknowledge("given-up", dead_id(stage.mine), by="root")
    if name == "schedules.resume":
        app.schedules.pause(stage.mine.schedule, by="root")
    if name not in ("cancel", "release"):
        return stage.mine
    run_id = app.operations.trigger(stage.mine.job, by="root", again=True).run_id
    if name == "release":
        set_run(app, run_id, state="waiting", waits_for="person")
    return stage.mine._replace(run=run_id)


def _play(stage: Scene, name: str, target: Target, found: Cuts, *, number: int, way: Way) -> bool:
    """Cut an act once; return whether the ledger is as it was, and a further point is worth trying on it."""
    ledger = stage.app.ledger
    before = _seen(ledger)
    root = stage.as_roles({ALL_JOBS: "admin"})
    POINTS.arm(number, way)
    error = _called(acts()[name], root, target)
    was_reached = POINTS.was_reached
    POINTS.disarm()
    POINTS.was_reached = was_reached
    after = _seen(ledger)
    is_done, has_entry = after.rows != before.rows, after.entries > before.entries
    found.plays += 1
    found.both += is_done and has_entry
    found.neither += not is_done and not has_entry
    where = f"{name} cut at statement {number} ({way.value})"
    if is_done != has_entry and not (name in IN_STEPS and is_done):
        what = "was done, and has no entry" if is_done else "has an entry, and was not done"
        found.wrong.append(f"{where}: it {what} ({error})")
    if not was_reached and not has_entry:
        found.wrong.append(f"{where}: without a cut it has no entry ({error})")
    return was_reached and not is_done and not has_entry


def _called(call: Call, root: Authorized, target: Target) -> str:
    try:
        call(root, target)
    except FencepostError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

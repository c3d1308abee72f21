"""A ledger with one's own jobs and those of others, whose every text has a mark; and a call for each method."""

import functools
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import insert, update

from fencepost import App, every
from fencepost.access import Authentication, Authorized, HostPrincipal
from fencepost.access.repeating import KeyedAct, KeyedRequest
from fencepost.app.composing import publish
from fencepost.core.concerns import Occurrence, concern_id
from fencepost.core.figures import hour_of
from fencepost.core.log_chunks import LogChunk
from fencepost.core.overlap import SKIP
from fencepost.core.policy import Policy
from fencepost.core.rights import HumanAct
from fencepost.engine.jobs import Job
from fencepost.ledger import nodes
from fencepost.ledger.figures import FigureRow, put
from fencepost.ledger.log_chunks import store
from fencepost.ledger.nodes import NewNode

MARK = "CANARY"
MINE, PIECE = "settle", "pieces"  # PIECE is a part of MINE because it says so
OTHERS = ("settle-eu", "Settle", "settle/part", "settl", "of-Settle")  # "of-Settle" is a part of "Settle"
_FIRST_ID = 770_000  # so that the id of a run is found in a text, and nothing else is
PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Target(NamedTuple):
    """What a call is about."""

    run: int
    job: str
    schedule: str


def dead_id(target: Target) -> str:
    """The id under which Now has a run that was given up."""
    return concern_id(target.job, Occurrence(1, target.run))


NOTHING = Target(10**12, "no-such", "no-such")
Call = Callable[[Authorized, Target], Any]

CASES: dict[str, Call] = {
    "principal": lambda a, _: a.principal,
    "caller": lambda a, _: a.caller,
    "scope_key": lambda a, _: a.scope_key,
    "check": lambda a, _: a.check(),
    "once": lambda a, t: (
        a.once(KeyedRequest("k", f"POST /{t.run}", "h"), KeyedAct(HumanAct.CANCEL, lambda: a.cancel(t.run), str)).text
    ),
    "may": lambda a, t: a.may(HumanAct.LOOK, t.job),
    "must_say": lambda a, t: a.must_say(HumanAct.TRIGGER, t.job),
    "now": lambda a, _: a.now().year > 2000,
    "held_because": lambda a, _: a.held_because(),
    "why": lambda a, t: (a.why(t.job), a.why(t.schedule, PAST)),
    "runs": lambda a, t: [
        a.runs(),
        a.runs(after_id=0),
        a.runs(job=t.job),
        a.runs(ids=[t.run]),
        a.runs(schedule=t.schedule),
        a.runs(retry_of=t.run),
        a.runs(requested_by=f"{MARK} person"),
        a.runs(states=["dead", "running", "succeeded", "waiting"]),
        a.runs(exclusive_key="shared"),
    ],
    "find_runs": lambda a, t: [
        a.find_runs(job=t.job).runs,
        a.find_runs(requested_by=f"{MARK} person", before_id=t.run + 1).runs,
        a.find_runs(requested_by=f"{MARK} person", after_id=t.run - 1).runs,
        a.find_runs(params={"customer": MARK}).runs,
        a.find_runs(params={"customer": MARK}, job=t.job).runs,
    ],
    "run": lambda a, t: a.run(t.run),
    "waits": lambda a, t: a.waits(t.run),
    "attempts": lambda a, t: a.attempts(t.run),
    "log": lambda a, t: a.log(t.run),
    "parts": lambda a, t: a.parts(t.run),
    "nodes": lambda a, _: (a.nodes(), a.nodes(living=True), a.nodes(limit=1)),
    "leader": lambda a, _: a.leader(),
    "jobs": lambda a, _: a.jobs(),
    "job": lambda a, t: a.job(t.job),
    "figures": lambda a, t: [
        replace(each, until_at=PAST) for jobs in (None, [t.job]) for each in a.figures(jobs=jobs, since=PAST)
    ],
    "journal": lambda a, t: (a.journal(), a.journal(job=t.job), a.journal(run_id=t.run)),
    "read_params": lambda a, t: a.read_params(t.job, {}),
    "would_backfill": lambda a, t: a.would_backfill(t.job, "2020-01-01T00:00Z", "2020-01-01T03:00Z"),
    "trigger": lambda a, t: a.trigger(t.job, again=True),
    "backfill": lambda a, t: a.backfill(t.job, "2020-01-01T00:00Z", "2020-01-01T03:00Z", again=True),
    "cancel": lambda a, t: a.cancel(t.run),
    "retry": lambda a, t: a.retry(t.run, again=True),
    "release": lambda a, t: a.release(t.run),
    "reprocess": lambda a, t: a.reprocess(job=t.job),
    "drain_node": lambda a, _: a.drain_node(f"{MARK}-node"),
    "pauses.list": lambda a, _: a.pauses.list(),
    "pauses.pause": lambda a, _: a.pauses.pause(None, reason="why"),
    "pauses.resume": lambda a, _: a.pauses.resume(f"{MARK}-queue"),
    "rename_job": lambda a, t: a.rename_job(t.job, "renamed"),
    "forget_job": lambda a, t: a.forget_job(t.job),
    "schedules.get": lambda a, t: a.schedules.get(t.schedule),
    "schedules.list": lambda a, t: (a.schedules.list(), a.schedules.list(job=t.job), a.schedules.list(limit=1)),
    "schedules.iterate": lambda a, t: (list(a.schedules.iterate()), list(a.schedules.iterate(job=t.job))),
    "schedules.preview": lambda a, t: a.schedules.preview(t.schedule),
    "schedules.put": lambda a, t: a.schedules.put("fresh", t.job, every("3h")),
    "schedules.pause": lambda a, t: a.schedules.pause(t.schedule),
    "schedules.resume": lambda a, t: a.schedules.resume(t.schedule),
    "schedules.delete": lambda a, t: a.schedules.delete(t.schedule, even_of_code=True),
    "letters.list": lambda a, t: (a.letters.list(), a.letters.list(t.job)),
    "letters.iterate": lambda a, t: (list(a.letters.iterate()), list(a.letters.iterate(t.job))),
    "letters.show": lambda a, t: a.letters.show(1, job=t.job),
    "letters.replay": lambda a, t: a.letters.replay(t.job, all_new=True, reason="why"),
    "letters.drop": lambda a, t: a.letters.drop(t.job, all_new=True, reason="why"),
    "bulk.show": lambda a, t: a.bulk.show(t.run),
    "bulk.again": lambda a, t: a.bulk.again(t.run, reason="why"),
    "bulk.forget": lambda a, t: a.bulk.forget(t.run, reason="why"),
    "locks.stores": lambda a, _: a.locks.stores(),
    "locks.list": lambda a, _: (a.locks.list(), a.locks.list(held=True), a.locks.list(limit=1)),
    "locks.show": lambda a, t: a.locks.show(f"{MARK} lock"),
    "locks.history": lambda a, t: (a.locks.history(), a.locks.history(f"{MARK} lock")),
    "locks.leaders": lambda a, _: a.locks.leaders(),
    "locks.keys": lambda a, _: (a.locks.keys(), a.locks.keys(limit=1), a.locks.keys(after="shared")),
    "locks.release": lambda a, _: a.locks.release(f"{MARK} lock", reason="why"),
    "locks.reset": lambda a, _: a.locks.reset(f"{MARK} lock", reason="why"),
    "concerns.list": lambda a, _: a.concerns.list(),
    "concerns.changes": lambda a, _: a.concerns.changes(),
    "concerns.acknowledge": lambda a, t: a.concerns.acknowledge("given-up", dead_id(t), note="known"),
    "concerns.unacknowledge": lambda a, t: a.concerns.unacknowledge("given-up", dead_id(t)),
    "audit.entries": lambda a, t: (a.audit.entries(), a.audit.entries(job=t.job)),
    "audit.anchor": lambda a, _: a.audit.anchor(),
    "audit.verify": lambda a, _: a.audit.verify(),
    "audit.export": lambda a, _: list(a.audit.export()),
    "audit.prune": lambda a, _: a.audit.prune(before="2019-01-01T00:00Z"),
    "restored.standing": lambda a, _: a.restored.standing(),
    "restored.accept": lambda a, _: a.restored.accept(reason="why"),
    "restored.as_copy": lambda a, _: a.restored.as_copy(reason="why"),
    "access.accounts": lambda a, _: a.access.accounts(),
    "access.put_account": lambda a, _: a.access.put_account("eve", None),
    "access.add_account": lambda a, _: a.access.add_account("eva", None),
    "access.set_password": lambda a, _: a.access.set_password("eve", None),
    "access.disable_account": lambda a, _: a.access.disable_account("eve"),
    "access.enable_account": lambda a, _: a.access.enable_account("eve"),
    "access.remove_account": lambda a, _: a.access.remove_account("eve"),
    "access.permissions": lambda a, _: a.access.permissions(),
    "access.give": lambda a, _: a.access.give("host:ann", "admin"),
    "access.take": lambda a, _: a.access.take("host:ann"),
    "access.role_reasons": lambda a, _: a.access.role_reasons(),
    "access.set_role_reasons": lambda a, _: a.access.set_role_reasons("operator", "optional"),
    "access.api_tokens": lambda a, _: a.access.api_tokens(),
    "access.add_api_token": lambda a, _: a.access.add_api_token("ci", "viewer", expires_in="1d").name,
    "access.revoke_api_token": lambda a, _: a.access.revoke_api_token("none"),
    "access.logins": lambda a, _: a.access.logins(),
    "access.end_logins": lambda a, _: a.access.end_logins("user:eve"),
}


def methods_of(authorized: Authorized) -> set[str]:
    """Every public method and property, also of the parts such as ``schedules``."""
    found = _public(type(authorized))
    for name, part in vars(authorized).items():
        if not name.startswith("_"):
            found |= {f"{name}.{each}" for each in _public(type(part))}
    return found


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@dataclass
class Scene:
    """An application whose ledger has runs, schedules, nodes and lines of the journal of all these jobs."""

    app: App
    mine: Target
    others: dict[str, Target]
    authentication: Authentication

    def of(self, **roles: str) -> Authorized:
        """Operations of a principal with these roles."""
        return self.as_roles(roles)

    def as_roles(self, roles: dict[str, str]) -> Authorized:
        return self.authentication.by_host(HostPrincipal("ann", roles), address="192.0.2.7", request_id="r1")


def set_run(app: App, run_id: int, **values: Any) -> None:
    run = app.ledger.tables.run
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(run).where(run.c.id == run_id).values(**values)))


def scene(url: str) -> Iterator[Scene]:
    """Make it, and close it afterwards. On SQLite it is made once in a process, and its files are copied."""
    app = _application(url)
    if url.startswith("sqlite:///"):
        mine, others, files = _made_before()
        for ending, content in files.items():
            Path(url.removeprefix("sqlite:///")).with_suffix(ending).write_bytes(content)
    else:
        mine, others = _filled(app)
    _nodes(app)  # they would be old news in a file that was made a while ago
    yield Scene(app, mine, others, Authentication(app.operations))
    app.close()


@functools.cache
def _made_before() -> tuple[Target, dict[str, Target], dict[str, bytes]]:
    """Make a scene, and return what its files contain, by the endings of their names."""
    with tempfile.TemporaryDirectory() as folder:
        app = _application(f"sqlite:///{folder}/scene.db")
        mine, others = _filled(app)
        app.close()
        files = {path.name.removeprefix("scene"): path.read_bytes() for path in Path(folder).iterdir()}
    return mine, others, files


def _application(url: str) -> App:
    app = App(url)
    app.job(every("1h"), name=MINE)(_own)
    app.jobs.add(replace(Job.of(_own, name=PIECE, policy=Policy.of(type="manual")), parent=MINE))
    for name in OTHERS[:-1]:
        app.job(every("1h"), name=name, queue=f"{MARK}-queue")(_others)
    part = Job.of(_others, name=OTHERS[-1], policy=Policy.of(type="manual", queue=f"{MARK}-queue"))
    app.jobs.add(replace(part, parent="Settle"))
    return app


def _filled(app: App) -> tuple[Target, dict[str, Target]]:
    """Make the runs and all else, and return one's own and those of others."""
    publish(app)
    others = {name: Target(_run(app, name, MARK), name, name) for name in OTHERS}
    own = _run(app, MINE, "ours")
    set_run(app, own, state="dead", ended_at=1, requested_by=f"run {others['Settle'].run} of 'Settle'")
    _a_key_that_another_job_holds(app, others)
    _a_schedule_that_was_another_jobs(app)
    app.operations.pauses.pause(f"{MARK}-queue", by=f"{MARK} person", reason=f"{MARK} why")
    app._node_locks().lock(f"{MARK} lock").acquire().release()
    _figures(app)
    return Target(own, MINE, MINE), others


def _own(note: str = "ours") -> None:
    """Book."""


def _others(note: str = MARK) -> None:
    """CANARY."""


def _run(app: App, job: str, mark: str) -> int:
    """Make a run that was given up, with an attempt and lines in the journal."""
    ops = app.operations
    made = ops.trigger(job, {"note": mark}, by=f"{mark} person", reason=f"{mark} why").run_id
    run_id = made + _FIRST_ID
    set_run(app, made, id=run_id)
    ops.cancel(run_id, by=f"{mark} person", reason=f"{mark} why")
    texts = {"error": mark, "error_code": mark, "result": f'"{mark}"', "progress_note": mark, "why": mark}
    node = "n2" if mark == MARK else "n1"
    set_run(app, run_id, state="dead", ended_at=1, node=node, **texts)
    ended = {"run_id": run_id, "number": 1, "node": node, "token": 1, "ended_at": 1, "outcome": "failed"}
    table = app.ledger.tables.attempt
    row = {**ended, "error_code": mark, "error": mark, "trace": mark}
    app.ledger.write(lambda cursor: app.ledger.change(cursor, insert(table).values(row).inline()))
    _log(app, run_id, mark)
    return run_id


def _log(app: App, run_id: int, mark: str) -> None:
    text = f"a line of {mark}\n".encode()
    connection = app.ledger.connect("logs")
    store(connection, [LogChunk(run_id, 1, 0, 1, 1, len(text), 0, zlib.compress(text))])
    connection.rest()


def _a_key_that_another_job_holds(app: App, others: dict[str, Target]) -> None:
    holder = app.operations.trigger("Settle", {"note": f"{MARK} holds"}, by="x", again=True).run_id
    set_run(app, holder, state="running", exclusive_key="shared", started_at=1)
    skipped = {"ended_at": 2, "due_at": 3_600_000_000, "why": SKIP.reason}
    for state, extra in (("waiting", {"waits_for": "key"}), ("skipped", skipped)):
        waits = app.operations.trigger(MINE, {"note": state}, by="x", again=True).run_id
        set_run(app, waits, state=state, exclusive_key="shared", schedule=MINE, **extra)


def _a_schedule_that_was_another_jobs(app: App) -> None:
    app.schedules.put("moving", "Settle", every("1h"), by="x")
    run = app.operations.trigger("Settle", {"note": f"{MARK} moved"}, by="x", again=True).run_id
    due_us = round(PAST.timestamp() * 1_000_000)
    due = {"due_at": due_us, "first_due_at": due_us, "started_at": 1, "ended_at": 2}
    set_run(app, run, state="succeeded", schedule="moving", **due)
    app.schedules.put("moving", MINE, every("1h"), by="x")


def _figures(app: App) -> None:
    """One success of one's own, two of each other job."""
    connection = app.ledger.connect("figures")
    hour = hour_of(app.ledger.now_us())
    counts = {MINE: 1, **dict.fromkeys(OTHERS, 2)}
    put(connection, [FigureRow(job, hour, "n1", f'{{"succeeded":{n}}}', "{}") for job, n in counts.items()])
    connection.rest()


def _nodes(app: App) -> None:
    common = {"grant_id": "g", "token": 1, "generation": 0, "version": "1", "slots": 4}
    both, theirs = ("default", f"{MARK}-queue"), (f"{MARK}-queue",)
    nodes.join(app.ledger, NewNode(id="n1", name="node-1", queues=both, jobs=(MINE, *OTHERS), **common))
    nodes.join(app.ledger, NewNode(id="n2", name=f"{MARK}-node", queues=theirs, jobs=OTHERS, **common))

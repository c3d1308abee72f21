"""The application of chaos: ten jobs, and in its second deploy one more, and one that has another name.

``fencepost run fencepost.proof.chaos.application:app`` is a node of it.

Every run that succeeds leaves its effect once, whatever happens to the process that executes it: in the transaction
that ends the run, under a key, or after a check of what is recorded already. Each job uses one of these ways.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine

from fencepost import App, Run
from fencepost.core.fencing import FencingToken
from fencepost.core.tick import microseconds
from fencepost.errors import LeaseLost
from fencepost.ledger.urls import LedgerUrl
from fencepost.proof.chaos.effects import ChaosTables
from fencepost.proof.chaos.lines import Recorder, recorder_in
from fencepost.proof.chaos.plan import BY_NAME, CHUNKS
from fencepost.proof.chaos.variables import DEPLOY, FOLDER
from fencepost.proof.history import EntryKind
from fencepost.threaded import ThreadedRuntime

app = App()
_runtime = ThreadedRuntime()
_place = LedgerUrl.parse(app.settings.url)
_effects = ChaosTables(_place)


_one_at_a_time = _runtime.lock()


def _recorder() -> Recorder:
    with _one_at_a_time:  # otherwise two threads that begin together would get two recorders, and record a call in both
        return _the_recorder()


@cache
def _the_recorder() -> Recorder:
    return recorder_in(Path(os.environ[FOLDER]), app.settings.name or "node", _runtime)


@cache
def _engine() -> Engine:
    return create_engine(_place.sqlalchemy(), pool_pre_ping=True)


def _job(function: Callable[..., Any]) -> Callable[..., Any]:
    planned, deploy = BY_NAME[function.__name__], int(os.environ.get(DEPLOY, "1"))
    if planned.deploy > deploy:
        return function
    policy = planned.policy
    if planned.renamed is not None and deploy > 1:
        policy |= {"name": planned.renamed, "formerly": planned.name}
    declared: Callable[..., Any] = app.job(planned.schedule, **policy)(function)
    return declared


@contextmanager
def _seen(run: Run) -> Iterator[str]:
    """Record that the function begins and ends. Yield the name of its work."""
    due_us, job = microseconds(run.due_at), BY_NAME[run.job].name  # its first one: it may be renamed in the middle
    detail = {"job": job, "tick": due_us, "attempt": run.attempt, "pid": _runtime.process_id()}
    _recorder().note("begin", node=run.node, name=str(run.id), token=run.token, detail=detail)
    ended = "raised"
    try:
        yield f"{job}:{due_us}"
        ended = "returned"
    finally:
        how = {"job": job, "tick": due_us, "attempt": run.attempt, "how": ended}
        _recorder().note("end", node=run.node, name=str(run.id), token=run.token, detail=how)


def _fencing(run: Run) -> FencingToken:
    """Return the name that a run writes under: the same in every version, and known without the ledger."""
    return FencingToken(run.exclusive_key or f"run:{run.id}", run.token, f"{run.node}/{run.id}/{run.attempt}", run.node)


@contextmanager
def _told(run: Run, work: str) -> Iterator[None]:
    """Record the outcome of a write. The block ends when its transaction has ended."""
    fencing = _fencing(run)
    fields = {"name": fencing.key, "token": fencing.token, "grant": fencing.grant_id, "detail": {"key": work}}
    kind = EntryKind.UNKNOWN
    call = _recorder().invoke("write", **fields)
    try:
        yield
        kind = EntryKind.OK
    except LeaseLost:
        kind = EntryKind.REFUSED
        raise
    finally:
        _recorder().end(call, kind, "write", **fields)


def _write(run: Run, tx: Connection, work: str) -> None:
    _effects.write(tx, _fencing(run), work, run.id)


def _write_at_the_end(run: Run, work: str, *, pause_s: float = 0.0) -> None:
    """End the run within the transaction of its effect."""
    with _told(run, work), run.transaction(final=True) as tx:
        _runtime.sleep(pause_s)
        _write(run, tx, work)


def _write_once(run: Run, work: str) -> None:
    """Write by a key."""
    with _told(run, work), run.transaction() as tx:
        if run.once(work, tx):
            _write(run, tx, work)


def _unless_done(run: Run, work: str, tx: Connection) -> None:
    if not _effects.has(tx, _fencing(run), work):
        _write(run, tx, work)


@_job
def settle(run: Run) -> None:
    """End within the transaction of the effect."""
    with _seen(run) as work:
        _runtime.sleep(0.1)
        _write_at_the_end(run, work)


@_job
def reconcile(run: Run) -> None:
    """Take longer than the interval now and then, with the transaction open in the middle of it."""
    is_long = microseconds(run.due_at) // 2_000_000 % 5 == 1
    with _seen(run) as work:
        _runtime.sleep(1.2 if is_long else 0.2)
        _write_at_the_end(run, work, pause_s=min(1.0, app.settings.ttl_s / 3) if is_long else 0.1)


@_job
def carry(run: Run) -> None:
    """Work chunk by chunk. A successor continues after the last chunk."""
    with _seen(run) as work:
        for chunk in range(CHUNKS):
            _runtime.sleep(0.1)
            step = f"{work}#{chunk}"
            with _told(run, step):
                run.in_transaction(partial(_unless_done, run, step))


@_job
def quote(run: Run) -> None:
    """Fail at every other attempt."""
    with _seen(run) as work:
        if run.attempt % 2 == 1:
            raise ConnectionError("the exchange did not answer")
        _write_at_the_end(run, work)


@_job
def newest(run: Run) -> None:
    """Be replaced by the next one, now and then."""
    with _seen(run) as work:
        for _ in range(25 if microseconds(run.due_at) // 2_000_000 % 5 == 0 else 3):
            _runtime.sleep(0.1)
            run.check()
        _write_at_the_end(run, work)


@_job
def mail(run: Run) -> None:
    """Write once by a key, several at a time."""
    with _seen(run) as work:
        _runtime.sleep(0.1)
        _write_once(run, work)


@_job
def poll(run: Run) -> None:
    """Be skipped when no node had time for it."""
    with _seen(run) as work:
        _write_at_the_end(run, work)


@_job
def export(run: Run) -> None:
    """Write with a separate engine."""
    with _seen(run) as work:
        _runtime.sleep(0.2)
        with _told(run, work), run.fence(_engine()) as tx:
            _unless_done(run, work, tx)


@_job
def sweep(run: Run) -> None:
    """Write once by a key, and end well after it."""
    with _seen(run) as work:
        _write_once(run, work)
        _runtime.sleep(0.3)
        run.check()


@_job
async def gather(run: Run) -> None:
    """Do so on an event loop."""
    with _seen(run) as work:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(_write_at_the_end, run, work)


@_job
def audit(run: Run) -> None:
    """Come with the second deploy."""
    with _seen(run) as work:
        _write_at_the_end(run, work)

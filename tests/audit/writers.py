"""Several writers at once, for a while: afterwards there is one chain, with an entry for every act that was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from time import monotonic

from sqlalchemy import select

from fencepost import App, every
from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.app.records.audit import AnchorRecord
from fencepost.core.rights import Scope
from fencepost.errors import FencepostError
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime

_JOB = "settle"


@dataclass(frozen=True, slots=True)
class Written:
    """What came of it. `forks`: entries that continue the same entry as another one."""

    acts: int
    unsure: int
    entries: int
    forks: int
    breaks: Sequence[str]


def _settle(number: int = 0) -> None: ...


def prepare(url: str) -> None:
    app = App(url)
    app.job(every("1h"), name=_JOB)(_settle)
    publish(app)
    app.close()


def write(url: str, name: str, seconds: float) -> tuple[int, int]:
    """Act for so long; return how many acts were done, and of how many that is not known."""
    ledger = open_ledger(url, ThreadedRuntime())
    operations, done, unsure = Operations(ledger, Scope.direct()), 0, 0
    until = monotonic() + seconds
    while monotonic() < until:
        try:
            if done % 3 == 2:
                operations.schedules.put(f"{name}:{done % 5}", _JOB, every(f"{done + 2}h"), by=name)
            else:
                operations.trigger(_JOB, {"number": done}, by=name, again=True)
            done += 1
        except FencepostError:
            unsure += 1
    ledger.close()
    return done, unsure


def played(url: str, *, writers: int, seconds: float, processes: bool) -> Written:
    """Let so many write, and compare the chain with what they say."""
    prepare(url)
    ledger = open_ledger(url, ThreadedRuntime())
    audit = Operations(ledger, Scope.direct()).audit
    anchors: list[AnchorRecord] = []
    pool: Callable[[], Executor] = (
        (lambda: ProcessPoolExecutor(writers, mp_context=get_context("spawn")))
        if processes
        else (lambda: ThreadPoolExecutor(writers))
    )
    with pool() as workers:
        working = [workers.submit(write, url, f"writer-{number}", seconds) for number in range(writers)]
        while not all(each.done() for each in working):
            anchors.append(audit.anchor())
            ledger.runtime.sleep(0.2)
        said = [each.result() for each in working]
    verified = audit.verify(anchors)
    table = ledger.tables.operating["audit"]
    rows = ledger.read(lambda cursor: ledger.rows(cursor, select(table.c.prev)))
    forks = sum(times - 1 for times in Counter(row[0] for row in rows).values())
    ledger.close()
    return Written(sum(d for d, _ in said), sum(u for _, u in said), len(rows), forks, verified.breaks)

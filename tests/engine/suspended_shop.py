"""An application whose jobs are in the middle of their work while the ledger is away; files tell how far they are."""

import asyncio
import os
import time
from functools import cache
from pathlib import Path

from sqlalchemy import text

from fencepost.core.policy import Policy
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.run import Run
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.threaded import ThreadedRuntime
from tests.engine.shop import say

EFFECTS = "suspension_effect"
LEDGER = "SUSPENSION_LEDGER"


class Shop:
    """What the engine asks of an application."""

    def __init__(self) -> None:
        self.jobs = Jobs()

    def worker_context(self) -> RunContext:
        return RunContext(node="n", runtime=ThreadedRuntime(), ledger=_ledger)

    def job(self, **policy):
        def add(function):
            self.jobs.add(Job.of(function, policy=Policy.of("manual", **policy)))
            return function

        return add


@cache
def _ledger() -> Ledger:
    return open_ledger(os.environ[LEDGER], ThreadedRuntime())


app = Shop()


@app.job(effects="fenced")
def fenced(run: Run, folder: str) -> None:
    say(f"{folder}/began.{run.attempt}", os.getpid())
    _wait_for_go(run, folder)
    _write(run, folder)


@app.job(effects="fenced", timeout="5s", retries=0)
def hasty(run: Run, folder: str) -> None:
    fenced(run, folder)


@app.job(effects="fenced")
def checks(run: Run, folder: str) -> None:
    say(f"{folder}/began.{run.attempt}", os.getpid())
    _wait_for_go(run, folder)
    say(f"{folder}/begins.{run.attempt}")
    run.check()
    say(f"{folder}/wrote.{run.attempt}")


@app.job(effects="fenced")
async def fenced_async(run: Run, folder: str) -> None:
    say(f"{folder}/began.{run.attempt}", os.getpid())
    await _awaited_go(run, folder)
    await asyncio.to_thread(_write, run, folder)


@app.job(effects="fenced")
async def checks_async(run: Run, folder: str) -> None:
    say(f"{folder}/began.{run.attempt}", os.getpid())
    await _awaited_go(run, folder)
    say(f"{folder}/begins.{run.attempt}")
    await asyncio.to_thread(run.check)
    say(f"{folder}/wrote.{run.attempt}")


@app.job()
async def unfenced_async(run: Run, folder: str) -> None:
    say(f"{folder}/unfenced.{run.attempt}", os.getpid())
    await _awaited_go(run, folder, "end")


@app.job()
def unfenced(run: Run, folder: str) -> None:
    say(f"{folder}/unfenced.{run.attempt}", os.getpid())
    _wait_for_go(run, folder, "end")


def _wait_for_go(run: Run, folder: str, go: str = "go") -> None:
    while run.attempt == 1 and not Path(f"{folder}/{go}").exists():
        time.sleep(0.01)


async def _awaited_go(run: Run, folder: str, go: str = "go") -> None:
    while run.attempt == 1 and not Path(f"{folder}/{go}").exists():
        await asyncio.sleep(0.01)
        run.check()  # which never waits here, or the others on this loop would


def _write(run: Run, folder: str) -> None:
    say(f"{folder}/begins.{run.attempt}")
    try:
        with run.transaction() as tx:
            tx.execute(text(f"INSERT INTO {EFFECTS} VALUES ({run.id}, {run.attempt})"))
    except BaseException as error:
        say(f"{folder}/raised.{run.attempt}", type(error).__name__)
        raise
    say(f"{folder}/wrote.{run.attempt}")

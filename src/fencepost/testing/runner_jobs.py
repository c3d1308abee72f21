"""The jobs of the runner contract, as functions and as coroutines with the same names.

They communicate through files, so that they also work in another process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fencepost.core.policy import Policy
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job, Jobs
from fencepost.threaded import ThreadedRuntime

_LOOK_EVERY_S = 0.005  # how late `wait_for` notices that it may end


class Jobbery:
    """The parts of an application that a runner needs."""

    def __init__(self) -> None:
        self.jobs = Jobs()

    def worker_context(self) -> RunContext:
        """Return the context of runs, without a ledger."""
        return RunContext(node="contract", runtime=ThreadedRuntime(), ledger=_no_ledger)

    def job(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a function as a job, under its name without the prefix ``async_``."""
        name = function.__name__.removeprefix("async_")
        self.jobs.add(Job.of(function, policy=Policy.of(), name=name))
        return function


def _no_ledger() -> NoReturn:
    raise AssertionError("these jobs need no ledger")


functions = Jobbery()
coroutines = Jobbery()


@functions.job
def nothing() -> None:
    """Return at once."""


@functions.job
def double(n: int) -> int:
    """Return a result."""
    return 2 * n


@functions.job
def fail() -> NoReturn:
    """Raise."""
    raise ValueError("it was meant to fail")


@functions.job
def leave() -> NoReturn:
    """Call `sys.exit`."""
    sys.exit(3)


@functions.job
def nap(duration_s: float) -> None:
    """Take a while."""
    time.sleep(duration_s)


@functions.job
def wait_for(go: str, began: str) -> str:
    """Create the file `began`, and end when the file `go` exists."""
    Path(began).touch()
    while not Path(go).exists():
        time.sleep(_LOOK_EVERY_S)
    return "done"


@coroutines.job
async def async_nothing() -> None:
    """Return at once."""


@coroutines.job
async def async_double(n: int) -> int:
    """Return a result."""
    await asyncio.sleep(0)
    return 2 * n


@coroutines.job
async def async_fail() -> NoReturn:
    """Raise."""
    await asyncio.sleep(0)
    raise ValueError("it was meant to fail")


@coroutines.job
async def async_leave() -> NoReturn:
    """Call `sys.exit`."""
    await asyncio.sleep(0)
    sys.exit(3)


@coroutines.job
async def async_nap(duration_s: float) -> None:
    """Take a while."""
    await asyncio.sleep(duration_s)


@coroutines.job
async def async_wait_for(go: str, began: str) -> str:
    """Create the file `began`, and end when the file `go` exists."""
    Path(began).touch()
    while not Path(go).exists():
        await asyncio.sleep(_LOOK_EVERY_S)
    return "done"

"""An application for worker processes in tests: jobs that behave, and jobs that do not.

Those that sleep have that as their work, so as to be met while they are at it; tests wait for the files they write.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from fencepost.core.policy import Policy
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job, Jobs
from fencepost.errors import Stopped
from fencepost.threaded import ThreadedRuntime


class Shop:
    """What the engine asks of an application."""

    def __init__(self) -> None:
        self.jobs = Jobs()

    def worker_context(self) -> RunContext:
        return RunContext(node="n", runtime=ThreadedRuntime(), ledger=no_ledger)

    def job(self, function):
        self.jobs.add(Job.of(function, policy=Policy.of()))
        return function


def no_ledger():
    raise AssertionError("these jobs need no ledger")


app = Shop()
not_an_app = 3


def say(path: str, text: object = "") -> None:
    """Write a file at once, whole."""
    Path(f"{path}.new").write_text(str(text))
    os.replace(f"{path}.new", path)


@app.job
def nothing():
    pass


@app.job
def answer(n: int):
    return n * 2


@app.job
def fail():
    raise ValueError("postgresql://me:secret@host is empty")


@app.job
def leave():
    sys.exit(3)


@app.job
def pid():
    return os.getpid()


@app.job
def die(how: int):
    os.kill(os.getpid(), how)


@app.job
def exit_hard(status: int):
    os._exit(status)


@app.job
def sleep(duration_s: float, path: str = ""):
    if path:
        say(path, os.getpid())
    time.sleep(duration_s)


@app.job
def wait_for(path: str, started: str):
    """Run until a file appears."""
    say(started, os.getpid())
    while not Path(path).exists():
        time.sleep(0.005)


@app.job
def hold_the_gil(path: str):
    """Hold the interpreter for hours in one step of C, so that no signal is noticed."""
    say(path, os.getpid())
    sum(range(10**13))


@app.job
def clean_up(path: str, takes_s: float = 0.0):
    try:
        say(f"{path}.started", os.getpid())
        time.sleep(60)
    except Stopped as stopped:
        say(f"{path}.why", stopped.reason)
        raise
    finally:
        time.sleep(takes_s)
        say(f"{path}.cleaned")


@app.job
def deaf(path: str):
    """Take no notice of being stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            say(path, os.getpid())
            time.sleep(60)
        except BaseException:  # noqa: BLE001
            continue


@app.job
def have_children(path: str):
    """Start a program that takes no notice either."""
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    say(path, json.dumps([os.getpid(), child.pid]))
    time.sleep(60)


@app.job
def leave_children(path: str, status: int):
    child = subprocess.Popen(["sleep", "60"])
    say(path, child.pid)
    os._exit(status)


@app.job
def check_until_stopped(run, path: str):
    say(path, os.getpid())
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    try:
        while True:
            run.check()
            time.sleep(0.005)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@app.job
def outlive(run, path: str):
    """Leave a thread behind that looks at the run of then."""

    def look() -> None:
        say(f"{path}.before", run.lost)
        while not Path(f"{path}.go").exists():
            time.sleep(0.005)
        say(f"{path}.after", run.lost)

    threading.Thread(target=look, daemon=True).start()
    while not Path(f"{path}.before").exists():
        time.sleep(0.005)


@app.job
async def sleep_async(path: str, duration_s: float = 60.0):
    say(f"{path}.started", os.getpid())
    try:
        await asyncio.sleep(duration_s)
    except asyncio.CancelledError:
        say(f"{path}.cancelled")
        raise
    finally:
        say(f"{path}.cleaned")
    return "slept"


@app.job
def big(text: str):
    return len(text)


@app.job
def node(run):
    return [run.node, os.environ.get("PREPARED")]


def prepare() -> None:
    os.environ["PREPARED"] = "yes"


@app.job
def fork_and_return():
    """Let a child of ours come back from here, as if it were the worker."""
    os.fork()
    return os.getpid()


@app.job
def shout():
    print("said on standard output")
    print("said on standard error", file=sys.stderr)

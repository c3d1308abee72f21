"""The application of these tests: ``tests.cli.shop:app``, on the ledger that FENCEPOST_URL names."""

import os
import time
from pathlib import Path

from fencepost import App, cron, every

app = App()


@app.job(cron("0 3 * * *", tz="Europe/Berlin"), timeout="10m", sla="1h")
def settle(run) -> str:
    """Settle the payments of a day."""
    return f"{run.window.end:%F}"


@app.job(every("1s"))
def beat(run) -> None:
    """Be due all the time."""


@app.job
def add(run, a: int, b: int = 2) -> int:
    """Add two numbers."""
    run.log.info("adding %s and %s", a, b)
    return a + b


@app.job(retries=0)
def boom(run, word: str = "boom") -> None:
    raise RuntimeError(word)


@app.job(exclusive="one-at-a-time")
def guarded(run, note: str = "") -> str:
    return note


@app.job(timeout="1m")
def nap(run, seconds: float, folder: str) -> None:
    """Say where it is, sleep, and say that it is done."""
    Path(folder, "napping.new").write_text(str(os.getpid()))
    Path(folder, "napping.new").rename(Path(folder, "napping"))
    time.sleep(seconds)  # that is its work: tests meet it while it lasts, and wait for what it has said
    Path(folder, "done").write_text("done")


@app.job(on_crash="hold")
def fall(run) -> None:
    """Take its process along, once."""
    if run.attempt == 1:
        os._exit(9)

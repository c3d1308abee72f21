"""The application of the tests with real nodes. What it does is seen in tables of the ledger's own database."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from sqlalchemy import text

from fencepost import App, every

app = App()


def beat() -> None:
    """Do next to nothing."""


for number in range(10):
    app.job(every("1s"), name=f"beat-{number}")(beat)

EFFECT = "INSERT INTO effect (run_id, attempt, token, due_at) VALUES (:run, :attempt, :token, :due)"


@app.job
def settle(run) -> None:
    """Write through the fence, and on the first attempt take one's time before the end of the transaction."""
    with run.transaction() as tx:
        row = {"run": run.id, "attempt": run.attempt, "token": run.token, "due": 0}
        tx.execute(text(EFFECT), row)
        if run.attempt == 1:
            Path(os.environ["STAND_STILL"]).write_text("inside")
            while Path(os.environ["STAND_STILL"]).exists():
                ctypes.CDLL(None).usleep(10_000)


@app.job
def hog(seconds: int) -> None:
    """Hold the interpreter lock in C: PyDLL does not release it."""
    ctypes.PyDLL(None).sleep(seconds)

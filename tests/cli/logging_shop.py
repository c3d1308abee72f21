"""An application whose jobs print: ``tests.cli.logging_shop:app``."""

import os
import sys
import time
from pathlib import Path

from fencepost import App

app = App()


@app.job(retries=0)
def tell(run, folder: str = "") -> None:
    """Print, and go on when there is a file."""
    print(f"\x1b[32mhello\x1b[0m from run {run.id}")
    print("password=hunter2 is not for everyone", file=sys.stderr)
    while folder and not (Path(folder) / "go").exists():
        time.sleep(0.01)
    print("the end")


@app.job(retries=1, backoff="10ms")
def stumble(run) -> None:
    """Fail the first time."""
    print(f"this is attempt {run.attempt}")
    if run.attempt == 1:
        raise RuntimeError("stumbled")


@app.job(retries=0)
def flood(run) -> None:
    os.write(1, b"".join(b"line %d\n" % number for number in range(100_000)))


app.command("program", ["sh", "-c", "echo out of a program; echo its error >&2"])

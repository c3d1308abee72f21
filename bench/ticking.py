"""The application of `ticks.py`: many jobs, each due every few seconds, that note when they were really called.

Every process that executes jobs writes to a file of its own in TICKS_FOLDER, a line per call: the schedule, the due
time, and the time inside the function, both in microseconds.
"""

import os
import time

from fencepost import App, Run, every

app = App()
_FOLDER = os.environ["TICKS_FOLDER"]
_files: dict[int, int] = {}


def note(run: Run) -> None:
    """Record that this tick was run, and when."""
    now_us = time.time_ns() // 1_000
    due_us = round(run.due_at.timestamp() * 1_000_000)
    os.write(_file(), f"{run.schedule} {due_us} {now_us}\n".encode())


def _file() -> int:
    pid = os.getpid()
    if pid not in _files:
        _files[pid] = os.open(f"{_FOLDER}/{pid}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return _files[pid]


for _number in range(int(os.environ["TICKS_SCHEDULES"])):
    app.job(every(os.environ["TICKS_EVERY"]), name=f"tick-{_number}", overlap=os.environ.get("TICKS_OVERLAP") or None)(
        note
    )

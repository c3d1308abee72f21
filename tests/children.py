"""Children that a test forks: none is waited for without end, and one that hangs says where."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

_HANGS_AFTER_S = 60.0


def in_child(work: Callable[[], object], within_s: float = _HANGS_AFTER_S) -> bool:
    """Fork; do `work` in the child; return whether what it returned was true.

    A child that raises, or that has not ended in time, fails the test, with what it raised or where its threads were.
    Not to be called in such a child: its timer would hang in another.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _end_as(work, writing, within_s)
    os.close(writing)
    said = _read(reading, time.monotonic() + within_s + 10)
    os.kill(pid, signal.SIGKILL)  # it has ended, or hangs so that not even a timer of its own can end it
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if said or status not in (0, 1):
        raise AssertionError(f"the child ended with {status}:\n{said}")
    return status == 0


def _end_as(work: Callable[[], object], writing: int, within_s: float) -> None:
    faulthandler.dump_traceback_later(within_s, exit=True, file=writing)
    try:
        status = 0 if work() else 1
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as pytest
        os.write(writing, traceback.format_exc().encode()[-4000:])
        status = 2
    sys.stdout.flush()
    os._exit(status)


def _read(reading: int, until: float) -> str:
    """Return what the child says, until it has ended; only the child has the other end of the pipe, or its children."""
    said = b""
    while select.select([reading], [], [], max(until - time.monotonic(), 0))[0]:
        part = os.read(reading, 65536)
        if not part:
            break
        said += part
    os.close(reading)
    return said.decode(errors="replace")

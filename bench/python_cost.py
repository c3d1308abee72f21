"""What a node on threads costs per no-op run, in processor time: ours and the driver's. Called by `throughput.py`.

The ledger that FENCEPOST_URL names has as many runs of `noop` as the argument says. The processor time of the whole
process is read in the first run and in the last; so is the time spent by any thread inside the driver's methods, which
are wrapped for that. The difference is what Python costs for Fencepost.

Printed beside it, by the wall clock: how long a run took in all, and how much of that the exchange spent in the
ledger's two calls, claim and finish. The rest is what its thread did in between; another executes the jobs meanwhile.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from fencepost.engine import exchange

logging.getLogger("fencepost").setLevel(logging.ERROR)

_DRIVERS = ("execute", "executemany", "fetchone", "fetchall", "fetchmany")


class Stopwatch:
    """Adds up the time that any thread spends inside some functions, by a clock."""

    def __init__(self, clock: Callable[[], float], owner: Any, *names: str) -> None:
        self.spent_s = 0.0
        self._clock = clock
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            began_at = self._clock()
            try:
                return method(*arguments, **named)
            finally:
                self.spent_s += self._clock() - began_at

        return timed


def main(runs: int) -> None:
    import noop

    driver = Stopwatch(time.thread_time, psycopg.Cursor, *_DRIVERS)
    claiming = Stopwatch(time.perf_counter, exchange, "claim")
    finishing = Stopwatch(time.perf_counter, exchange, "finish")
    readings: list[tuple[float, ...]] = []
    is_over, count = threading.Event(), 0

    def counting() -> None:
        nonlocal count
        count += 1
        if count in (1, runs):
            watches = (driver.spent_s, claiming.spent_s, finishing.spent_s)
            readings.append((time.process_time(), time.perf_counter(), *watches))
        if count == runs:
            is_over.set()

    object.__setattr__(noop.noop.job, "function", counting)
    gc.collect()
    noop.app.start()
    if not is_over.wait(300):
        raise TimeoutError(f"{count} of {runs} runs in 300 s")
    noop.app.stop()
    cpu, wall, in_driver, claim, finish = ((last - first) / runs * 1e6 for first, last in zip(*readings, strict=True))
    us = {"fencepost": cpu - in_driver, "driver": in_driver, "wall": wall, "wall_claim": claim, "wall_finish": finish}
    print(json.dumps({name: round(value, 2) for name, value in us.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

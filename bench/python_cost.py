"""What a node on threads costs per no-op run, in processor time: ours and the driver's. Called by `throughput.py`.

The ledger that FENCEPOST_URL names has as many runs of `noop` as the argument says. The processor time of the whole
process is read in the first run and in the last; so is the time spent by any thread inside the driver's methods, which
are wrapped for that. The difference is what Python costs for Fencepost.
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

logging.getLogger("fencepost").setLevel(logging.ERROR)

_DRIVERS = ("execute", "executemany", "fetchone", "fetchall", "fetchmany")


class Driver:
    """Adds up the processor time inside the driver."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        for name in _DRIVERS:
            setattr(psycopg.Cursor, name, self._timed(getattr(psycopg.Cursor, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            began_at = time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                self.spent_s += time.thread_time() - began_at

        return timed


def main(runs: int) -> None:
    import noop

    driver, is_over = Driver(), threading.Event()
    readings: list[tuple[float, float]] = []
    count = 0

    def counting() -> None:
        nonlocal count
        count += 1
        if count in (1, runs):
            readings.append((time.process_time(), driver.spent_s))
        if count == runs:
            is_over.set()

    object.__setattr__(noop.noop.job, "function", counting)
    gc.collect()
    noop.app.start()
    if not is_over.wait(300):
        raise TimeoutError(f"{count} of {runs} runs in 300 s")
    noop.app.stop()
    (cpu_0, driver_0), (cpu_1, driver_1) = readings
    driver_s = driver_1 - driver_0
    ours_s = cpu_1 - cpu_0 - driver_s
    print(json.dumps({"fencepost": round(ours_s / runs * 1e6, 2), "driver": round(driver_s / runs * 1e6, 2)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Fencepost: for jobs on many instances, of which one at a time may run.

So far it has locks, elections and a command that runs a program under a lock: see `fencepost.locks`.
"""

from fencepost import locks
from fencepost.errors import FencepostError, LeaseLost, LockHeld, NotAcquired, StoreUnavailable, TickDone

__version__ = "0.1.0.dev0"

__all__ = [
    "FencepostError",
    "LeaseLost",
    "LockHeld",
    "NotAcquired",
    "StoreUnavailable",
    "TickDone",
    "__version__",
    "locks",
]

"""Fencepost: scheduled and batch jobs on many instances.

Each due time is started once, effects land once, and a runner that lost its right to run cannot write.
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

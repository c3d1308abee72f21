"""Public tools for tests of lease stores, of runners, and of code that uses locks.

`LeaseStoreContract` has the tests that every store passes against its real server. To test your own store, derive a
class from it and provide the `server` fixture (see `StoreUnderTest`). `RunnerContract` is the same for runners. Both
need ``pip install 'fencepost[testing]'``. Nothing outside this package imports it.
"""

from fencepost.testing.faulty import FaultyStore
from fencepost.testing.runtimes import ManualClock, SkewedRuntime, StoppableRuntime
from fencepost.testing.under_test import LocalFault, NetworkFault, StoreUnderTest
from fencepost.testing.waiting import Stopwatch, until

__all__ = [
    "FaultyStore",
    "LeaseStoreContract",
    "LocalFault",
    "ManualClock",
    "NetworkFault",
    "RunnerContract",
    "SkewedRuntime",
    "StoppableRuntime",
    "Stopwatch",
    "StoreUnderTest",
    "until",
]


def __getattr__(name: str) -> object:
    """Import the contracts on first access: they need pytest, and contenders in child processes do not."""
    if name == "LeaseStoreContract":
        from fencepost.testing.lease_contract import LeaseStoreContract  # noqa: PLC0415

        return LeaseStoreContract
    if name == "RunnerContract":
        from fencepost.testing.runner_contract import RunnerContract  # noqa: PLC0415

        return RunnerContract
    raise AttributeError(name)

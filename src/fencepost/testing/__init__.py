"""Public tools for tests of lease stores and of code that uses locks.

`LeaseStoreContract` is what every store passes against its real server; to test a store of your own, derive a
class from it and provide the `server` fixture (see `StoreUnderTest`). Needs ``pip install 'fencepost[testing]'``.
Nothing outside this package imports it.
"""

from fencepost.testing.faulty import FaultyStore
from fencepost.testing.runtimes import ManualClock, SkewedRuntime, StoppableRuntime
from fencepost.testing.under_test import LocalFault, NetworkFault, StoreUnderTest
from fencepost.testing.waiting import until

__all__ = [
    "FaultyStore",
    "LeaseStoreContract",
    "LocalFault",
    "ManualClock",
    "NetworkFault",
    "SkewedRuntime",
    "StoppableRuntime",
    "StoreUnderTest",
    "until",
]


def __getattr__(name: str) -> object:
    """Import the contract only when asked for: it needs pytest, and contenders in child processes do not."""
    if name == "LeaseStoreContract":
        from fencepost.testing.lease_contract import LeaseStoreContract  # noqa: PLC0415

        return LeaseStoreContract
    raise AttributeError(name)

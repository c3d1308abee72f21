"""The contract of lease stores: tests that every store must pass against its real server.

Derive a class for each store, set `store_name`, and provide a fixture `server` that yields a `StoreUnderTest`::

    @pytest.fixture(scope="module")
    def server(): ...

    class TestRedis(LeaseStoreContract):
        store_name = "redis"

Each test checks one promise. Contenders are processes that are really killed and stopped (threads, for a store that
works within one process). No test sleeps for a fixed time: tests wait for what they expect, with a deadline.
"""

from __future__ import annotations

from fencepost.testing.lease_contract.deaths import Deaths
from fencepost.testing.lease_contract.exclusion import Exclusion
from fencepost.testing.lease_contract.operation import Operation
from fencepost.testing.lease_contract.repeats import Repeats
from fencepost.testing.lease_contract.ticks import TickContract
from fencepost.testing.lease_contract.tokens import Tokens


class LeaseStoreContract(Exclusion, Tokens, Repeats, Deaths, TickContract, Operation):
    """Derive from it; see the module's docstring."""

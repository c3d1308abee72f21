"""The lease contract on Valkey, which forgets everything when it is killed."""

from collections.abc import Iterator

import pytest

from fencepost.testing import LeaseStoreContract
from testbed.valkey import Valkey
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with Valkey() as valkey:
        yield Networked(valkey, lambda name: valkey.client().delete(f"fencepost:{{{name}}}"))


class TestRedis(LeaseStoreContract):
    store_name = "redis"

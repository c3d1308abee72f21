"""The lease contract on etcd."""

from base64 import b64encode
from collections.abc import Iterator

import pytest

from fencepost.testing import LeaseStoreContract
from testbed.etcd import Etcd
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with Etcd() as etcd:

        def forget(name: str) -> None:
            for kind in ("lease", "holder"):
                key = b64encode(f"/fencepost/{kind}/{name}".encode()).decode()
                etcd.call("kv/deleterange", {"key": key})

        yield Networked(etcd, forget)


class TestEtcd(LeaseStoreContract):
    store_name = "etcd"
    racers, grants_in_turn = 4, 250  # by default more: so on SQLite, PostgreSQL and Redis

"""The lease contract on ZooKeeper."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from kazoo.client import KazooClient

from fencepost.testing import LeaseStoreContract
from testbed.zookeeper import ZooKeeper
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with ZooKeeper() as zookeeper:

        def forget(name: str) -> None:
            client = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
            client.start()
            client.delete(f"/fencepost/leases/{quote(name, safe='')}", recursive=True)
            client.stop()
            client.close()

        yield Networked(zookeeper, forget)


class TestZookeeper(LeaseStoreContract):
    store_name = "zookeeper"
    racers, grants_in_turn = 4, 250  # by default more: so on SQLite, PostgreSQL and Redis

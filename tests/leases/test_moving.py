"""A team that moves from one store to another keeps its fences: tokens follow the clock everywhere."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fencepost import locks
from testbed import wait
from testbed.etcd import Etcd
from testbed.postgres import Postgres
from testbed.valkey import Valkey
from testbed.zookeeper import ZooKeeper


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[list[str]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(kind()) for kind in (Postgres, Etcd, Valkey, ZooKeeper)]
        yield [f"sqlite:///{tmp_path}/app.db", *(server.url for server in servers), "memory://"]


def test_token_rises_from_store_to_store_and_back(urls: list[str]) -> None:
    last = 0
    for url in [*urls, *reversed(urls)]:
        with locks.connect(url) as store:
            # etcd tells its time in whole seconds: a move within one second may fall behind, a later one does not
            last = wait.until(lambda: _token_above(store, last), what=f"a higher token on {url.partition(':')[0]}")  # noqa: B023


def _token_above(store: locks.Locks, last: int) -> int | None:
    with store.lock("moved") as lease:
        return lease.token if lease.token > last else None

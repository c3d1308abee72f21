"""The lease contract on the memory store. Its contenders are threads: it reaches no further."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.memory import MemoryStore
from fencepost.testing import LeaseStoreContract, LocalFault
from fencepost.threaded import ThreadedRuntime


class Memory:
    url = "memory://contract"

    def __init__(self) -> None:
        store = store_from_url(self.url, ThreadedRuntime())
        assert isinstance(store, MemoryStore)
        self._store = store

    def restart(self) -> None:
        self._store.wipe()

    def forget(self, name: str) -> None:
        self._store._entries.pop(name, None)

    @contextmanager
    def fault(self) -> Iterator[LocalFault]:
        yield LocalFault(self.url)


@pytest.fixture(scope="module")
def server() -> Memory:
    return Memory()


class TestMemory(LeaseStoreContract):
    store_name = "memory"
    ttl_s = 2.0  # this store answers within milliseconds, so that less is waited for

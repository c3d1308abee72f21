"""Connecting again and again: nothing of a store that was closed stays in the process."""

from __future__ import annotations

import gc
import os
import tracemalloc

import pytest

from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
TIMES = 200
LITTLE = 500  # bytes per connect, of caches that fill up; what stayed were 860 and 1,600


def connect_memory() -> None:
    with Locks(MemoryStore(RUNTIME), runtime=RUNTIME) as store, store.lock("a"):
        pass


def open_a_ledger() -> None:
    open_ledger("sqlite:///nowhere.db", RUNTIME).close()


@pytest.mark.parametrize("work", [connect_memory, open_a_ledger])
def test_nothing_is_left_of_what_was_closed(work: object) -> None:
    def repeat(times: int) -> None:
        for _ in range(times):
            work()  # type: ignore[operator]
        gc.collect()

    repeat(20)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        repeat(TIMES)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / TIMES < LITTLE


def test_in_a_forked_child_all_that_live_are_called_in_their_order() -> None:
    called: list[int] = []

    class Owner:
        def __init__(self, number: int) -> None:
            self.number = number
            RUNTIME.after_fork(self, self.forget)

        def forget(self) -> None:
            called.append(self.number)
            if self.number == 2:
                raise ZeroDivisionError

    owners = [Owner(number) for number in range(5)]
    del owners[1]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr([each for each in called if each < 5]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"[0, 2, 3, 4]"
    os.close(reading)
    os.close(writing)
    assert called == []

"""A process that was forked in the middle of a call to SQLite: whatever is made in it later must not hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from fencepost import App
from fencepost.engine.engines import engine_of
from fencepost.errors import LedgerUnavailable, StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.ledger import history
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.sql.forked_sqlite import FORKED_SQLITE
from fencepost.sql.held_files import hold, let_go
from fencepost.testing import until
from tests.app.surroundings import RUNTIME
from tests.children import in_child

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
_REFUSED = "forked in the middle of a call to SQLite"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = open_ledger(f"sqlite:///{tmp_path}/app.db", RUNTIME)
    migrate(ledger)
    yield ledger
    ledger.close()


@contextmanager
def inside(ledger: Ledger) -> Iterator[None]:
    """Have another thread be in the middle of a transaction."""
    is_inside, may_end = threading.Event(), threading.Event()

    def stay() -> None:
        with ledger.connect("other").transaction():
            is_inside.set()
            may_end.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        assert is_inside.wait(30)
        yield
    finally:
        may_end.set()
        thread.join()


def a_node(url: str) -> None:
    App(url).start()


def a_lease_store(url: str) -> None:
    store_from_url(url, RUNTIME).start()


def a_ledger(url: str) -> None:
    history.runs(open_ledger(url, RUNTIME))


@pytest.mark.parametrize("made", [a_node, a_lease_store, a_ledger])
def test_what_is_made_in_the_child_is_refused_too(ledger: Ledger, made: Callable[[str], None]) -> None:
    def work() -> bool:
        with pytest.raises((LedgerUnavailable, StoreUnavailable), match=_REFUSED):
            made(f"sqlite:///{ledger.url.path}")
        return True

    with inside(ledger):
        assert in_child(work)


def test_an_engine_for_users_transactions_is_refused_too(ledger: Ledger) -> None:
    def work() -> bool:
        with pytest.raises(OperationalError, match=_REFUSED):
            engine_of(ledger).connect()
        return True

    with inside(ledger):
        assert in_child(work)


def test_a_child_of_the_child_is_refused_too(ledger: Ledger) -> None:
    def work() -> bool:
        if (child := os.fork()) != 0:  # not by in_child, whose timer does not survive a fork
            return os.waitpid(child, 0)[1] == 0
        try:
            history.runs(ledger)
        except LedgerUnavailable as error:
            os._exit(0 if _REFUSED in str(error) else 1)
        os._exit(2)

    with inside(ledger):
        assert in_child(work)


def test_who_forks_waits_a_moment_for_those_who_are_inside(ledger: Ledger) -> None:
    """A transaction that ends as soon as somebody is about to fork: the child may use SQLite."""
    is_inside = threading.Event()

    def stay() -> None:
        with ledger.connect("other").transaction():
            is_inside.set()
            until(lambda: FORKED_SQLITE.forking, 30, what="somebody is about to fork")

    thread = threading.Thread(target=stay)
    thread.start()
    assert is_inside.wait(30)
    assert in_child(lambda: history.runs(ledger) == [])
    thread.join()
    assert not FORKED_SQLITE.forking


def test_who_comes_while_somebody_is_about_to_fork_waits_until_it_has(ledger: Ledger) -> None:
    store = store_from_url(f"sqlite:///{ledger.url.path}", RUNTIME)
    store.start()
    done: list[str] = []
    ask = [lambda: (history.runs(ledger), done.append("ledger")), lambda: (store.read("any"), done.append("store"))]
    threads = [threading.Thread(target=each) for each in ask]
    FORKED_SQLITE.before_fork(RUNTIME.monotonic, RUNTIME.sleep)
    try:
        for thread in threads:
            thread.start()
            thread.join(0.2)
        assert done == []
    finally:
        FORKED_SQLITE.after_fork()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == ["ledger", "store"]
    store.shutdown()


def test_who_forks_inside_a_transaction_of_its_own_does_not_wait_for_itself(ledger: Ledger) -> None:
    hold("app.db", "a run")
    try:
        with inside(ledger):
            began = time.monotonic()
            assert in_child(lambda: FORKED_SQLITE.is_lost)
            assert time.monotonic() - began < 0.9
    finally:
        let_go("app.db", "a run")


INTERRUPTED = """
import os, signal, time
from fencepost.sql.forked_sqlite import FORKED_SQLITE
from fencepost.threaded import ThreadedRuntime

class Busy:
    is_asked = False
    def open_now(self):
        if not self.is_asked:
            self.is_asked = True
            os.kill(os.getpid(), signal.SIGINT)  # while who forks waits
        return [], 1

busy = Busy()
FORKED_SQLITE.join(busy.open_now)
try:
    if os.fork() == 0:
        os._exit(0)
    began = time.monotonic()
    time.sleep(20)
    print("swallowed")
except KeyboardInterrupt:
    print("came through" if time.monotonic() - began < 10 else "came late", FORKED_SQLITE.forking)
"""


def test_ctrl_c_while_who_forks_waits_comes_through() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("came through []", "")

"""An application whose leases are kept in another store than its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import App, Run, locks
from fencepost.errors import InvalidUrl
from fencepost.testing import until


@pytest.fixture
def leases(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/elsewhere.db"


@pytest.fixture
def app(tmp_path: Path, leases: str) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/app.db", leases=leases, ttl="5s")
    yield app
    app.close()


def test_locks_of_the_application_are_kept_there(app: App, leases: str) -> None:
    with app.lock("month-end") as lease, locks.connect(leases) as elsewhere:
        record = elsewhere.read("month-end")
        assert record is not None
        assert record.token == lease.token


def test_exclusive_runs_wait_for_whoever_holds_their_key_there(app: App, leases: str) -> None:
    tokens: list[int] = []

    @app.job(exclusive="account:{account}")
    def settle(run: Run, account: int) -> None:
        tokens.append(run.token)

    with locks.connect(leases) as elsewhere, app.running():
        with elsewhere.lock("account:7") as held:
            blocked, free = settle.enqueue(account=7), settle.enqueue(account=8)
            until(lambda: app.operations.run(free.run_id).state == "succeeded", 20, what="another account is settled")
            assert app.operations.run(blocked.run_id).state == "queued"
        until(
            lambda: app.operations.run(blocked.run_id).state == "succeeded",
            20,
            what="it is settled when the lock is free",
        )
        assert tokens[-1] > held.token
        record = elsewhere.read("account:7")
        assert record is not None
        assert record.token == tokens[-1]


def test_a_lease_store_that_there_is_not_is_refused_at_the_start(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db", leases="carrier-pigeon://loft")
    with pytest.raises(InvalidUrl, match="no store for carrier-pigeon"):
        app.start()
    assert not app.is_running
    app.close()


def test_one_node_leads_where_that_is_wished_for(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db", leader=True, ttl="5s")
    with app.running():
        record = until(app.operations.leader, 20, what="somebody leads")
        assert record.held
    app.close()

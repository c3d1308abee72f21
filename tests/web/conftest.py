"""Pages of an application with a few runs, on a ledger of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import App, cron, every
from fencepost.access import Access, HostPrincipal, passwords
from fencepost.app.composing import publish
from fencepost.core.rights import Scope
from fencepost.web import web
from tests.access.scene import set_run
from tests.web.asking import Browser

PASSWORD = "correct horse battery"


@pytest.fixture
def kind() -> str:
    return "sqlite"  # what depends on the database is tested on each in tests/web/test_databases.py


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords with Argon2id in a tenth of the time: how slow it is does not matter here."""
    from argon2 import PasswordHasher

    passwords._hasher.cache_clear()
    passwords._nobodys.cache_clear()
    monkeypatch.setattr("argon2.PasswordHasher", lambda: PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    yield
    passwords._hasher.cache_clear()
    passwords._nobodys.cache_clear()


def settle(account: int = 7, mode: str = "real") -> None:
    """Settle what is open."""


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    """An application with a job that is scheduled, one that is not, and a schedule of run time."""
    made = App(ledger_url)
    made.job(cron("30 2 * * *", tz="Europe/Berlin"), name="settle", timeout="10m")(settle)
    made.job(type="manual", name="report/part")(settle)
    publish(made)
    made.schedules.put("nightly:7", "report/part", every("1h"), params={"account": 7}, by="ann")
    yield made
    made.close()


@pytest.fixture
def access(app: App) -> Access:
    return Access(app.ledger, Scope.direct("root"))


def admin(_: Any) -> HostPrincipal:
    return HostPrincipal("ann", {"": "admin"})


@pytest.fixture
def browser(app: App) -> Browser:
    """The pages for an admin whom the host application vouches for."""
    return Browser(web(app, auth=admin))


@pytest.fixture
def dead_run(app: App) -> int:
    """A run that was given up."""
    run_id = app.operations.trigger("settle", {"account": 8}, by="ann", reason="asked by phone").run_id
    set_run(
        app, run_id, state="dead", started_at=1, ended_at=app.ledger.now_us(), attempts=2, error="boom", error_code="E"
    )
    return run_id

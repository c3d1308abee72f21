"""`enqueue(tx=…)`: whose transaction it may be, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import text

from fencepost import App
from fencepost.errors import ConfigurationError
from fencepost.ledger.database import POOL_SIZE
from fencepost.ledger.identity import identity
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import migrate
from fencepost.testing import until
from tests.fence.effect_places import Asking
from tests.servers import execute


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    app.job(name="settle")(lambda account: None)
    yield app
    app.close()


WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


@contextmanager
def connected(url: str) -> Iterator[sqlalchemy.Connection]:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def another(kind: str, tmp_path: Any, app: App, opened: Callable[[str], Ledger], request: Any) -> Iterator[str]:
    """The SQLAlchemy URL of another ledger's database, whose tables have the same names."""
    if kind == "sqlite":
        ledger = opened(f"sqlite:///{tmp_path}/other.db?prefix={app.ledger.url.prefix}")
        migrate(ledger)
        identity(ledger)
        yield ledger.url.sqlalchemy()
        return
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    execute(server, "CREATE DATABASE another")
    url = sqlalchemy.make_url(app.ledger.url.text).set(database="another").render_as_string(hide_password=False)
    ledger = opened(url)
    migrate(ledger)
    identity(ledger)
    yield ledger.url.sqlalchemy()
    ledger.close()
    execute(server, "DROP DATABASE another" + (" WITH (FORCE)" if kind == "postgresql" else ""))


def test_a_connection_to_another_ledger_is_refused(app: App, another: str) -> None:
    with connected(another) as connection:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="another ledger"):
                app.enqueue("settle", params={"account": 7}, tx=connection)
        connection.rollback()
    with connected(app.ledger.url.sqlalchemy()) as connection:
        made = app.enqueue("settle", params={"account": 7}, tx=connection)
        connection.commit()
    assert [row.id for row in app.operations.runs()] == [made.run_id]


def test_who_waits_for_a_transaction_does_not_keep_it_from_its_end(app: App, kind: str) -> None:
    """All connections of the pool wait for the job that the transaction holds, which asks for one more thing."""
    if kind == "sqlite":
        pytest.skip("there the only writer asks nobody else")
    app.enqueue("settle", params={"account": 0}, unique=True)
    with connected(app.ledger.url.sqlalchemy()) as looking, connected(app.ledger.url.sqlalchemy()) as connection:
        looking.execution_options(isolation_level="AUTOCOMMIT")
        app.enqueue("settle", params={"account": 1}, unique=True, tx=connection)
        others = [Asking(partial(unique, app, 2 + n)) for n in range(POOL_SIZE)]
        until(lambda: int(looking.execute(text(WAITING[kind])).scalar_one()) == POOL_SIZE, 20, "they wait")
        asking = Asking(partial(unique, app, 9, tx=connection))
        asking.join(2.0)
        is_answered = not asking.is_alive()
        connection.commit() if is_answered else connection.rollback()
    assert is_answered
    assert asking.answer().is_new
    assert all(each.answer().is_new for each in others)


def unique(app: App, account: int, **options: Any) -> Any:
    return app.enqueue("settle", params={"account": account}, unique=True, **options)

"""Asking for runs in Django's ``atomic`` blocks, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import App
from fencepost.errors import ConfigurationError, DuplicateRequest
from tests.fence.grounds import atomic, by_django

NOTE = "ünï 100 % 'quoted' %s"  # what a cursor that puts values into the SQL might trip over


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    app.job(name="settle", exclusive="account:{account}")(settle)
    yield app
    app.close()


@pytest.fixture
def connection(app: App) -> Iterator[Any]:
    with by_django(app.ledger.url) as connection:
        yield connection


def settle(account: int, note: str = "") -> None: ...


def asked(app: App, connection: Any, account: int = 7, **wishes: Any) -> int:
    return app.enqueue("settle", params={"account": account, "note": NOTE}, tx=connection, **wishes).run_id


def test_a_run_comes_to_be_with_the_block(app: App, connection: Any) -> None:
    with atomic(connection):
        made = asked(app, connection)
    (row,) = app.operations.runs()
    assert (row.id, row.state, row.exclusive_key) == (made, "queued", "account:7")
    assert row.params["note"] == NOTE


def test_a_run_goes_with_a_block_that_fails(app: App, connection: Any) -> None:
    with pytest.raises(ZeroDivisionError), atomic(connection):
        asked(app, connection)
        raise ZeroDivisionError
    assert app.operations.runs() == []


def test_a_run_goes_with_a_savepoint_that_is_rolled_back_and_with_nothing_else(app: App, connection: Any) -> None:
    with atomic(connection):
        kept = asked(app, connection, 1)
        with pytest.raises(ZeroDivisionError), atomic(connection):
            asked(app, connection, 2)
            raise ZeroDivisionError
    assert [row.id for row in app.operations.runs()] == [kept]


def test_the_same_key_is_one_run_and_a_refusal_leaves_the_block_usable(app: App, connection: Any) -> None:
    with atomic(connection):
        made = asked(app, connection, key="order-1")
        assert asked(app, connection, key="order-1") == made
        with pytest.raises(DuplicateRequest):
            asked(app, connection, 8, key="order-1")
        other = asked(app, connection, 8, key="order-2")
    assert sorted(row.id for row in app.operations.runs()) == sorted([made, other])


def test_a_run_for_later_and_one_that_is_unique_work_too(app: App, connection: Any) -> None:
    with atomic(connection):
        later = asked(app, connection, 1, delay="1h")
        one = asked(app, connection, 2, unique=True)
        assert asked(app, connection, 2, unique=True) == one
    assert {row.id: row.state for row in app.operations.runs()} == {later: "waiting", one: "queued"}


def test_outside_of_a_block_it_is_refused(app: App, connection: Any) -> None:
    with pytest.raises(ConfigurationError, match="autocommit"):
        asked(app, connection)
    assert app.operations.runs() == []


def test_djangos_own_cursors_see_it_in_the_same_block(app: App, connection: Any) -> None:
    table = app.ledger.tables.name("run")
    with atomic(connection):
        made = asked(app, connection)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table} WHERE job = %s", ["settle"])
            assert [row[0] for row in cursor.fetchall()] == [made]

"""Keys, kept results and sequences by Django's connections, in its ``atomic`` blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.effects.installing import install, open_database
from fencepost.errors import ConfigurationError, EffectsMissing
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from tests.fence.effect_places import RUNTIME, effects_url
from tests.fence.grounds import atomic, by_django


class DjangoPlace:
    def __init__(self, connection: Any, prefix: str) -> None:
        self.connection = connection
        self.prefix = prefix

    def atomic(self) -> Any:
        return atomic(self.connection)

    def once(self, key: str) -> bool:
        return fencepost.once(key, self.connection, prefix=self.prefix)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DjangoPlace]:
    database = open_database(effects_url(request.param, request, tmp_path), RUNTIME)
    install(database)
    with by_django(database.url) as connection:
        yield DjangoPlace(connection, database.tables.prefix)
    database.close()


def test_a_key_commits_with_the_block(place: DjangoPlace) -> None:
    with place.atomic():
        assert place.once("k")
        assert not place.once("k")
    with place.atomic():
        assert not place.once("k")


def test_a_key_goes_with_a_block_that_fails(place: DjangoPlace) -> None:
    with pytest.raises(ZeroDivisionError), place.atomic():
        assert place.once("k")
        raise ZeroDivisionError
    with place.atomic():
        assert place.once("k")


def test_a_key_goes_with_a_savepoint_that_is_rolled_back(place: DjangoPlace) -> None:
    with place.atomic():
        with pytest.raises(ZeroDivisionError), place.atomic():
            assert place.once("k")
            raise ZeroDivisionError
        assert place.once("k")


def test_outside_of_a_block_it_is_refused(place: DjangoPlace) -> None:
    with pytest.raises(ConfigurationError, match="autocommit"):
        place.once("k")


def test_results_are_kept_and_sequences_advance(place: DjangoPlace) -> None:
    feed = fencepost.Sequence("feed", prefix=place.prefix)

    @fencepost.idempotent(key="settle:{order}", prefix=place.prefix)
    def settle(tx: Any, order: int) -> int:
        last = feed.last(tx)
        feed.advance(tx, after=last, to=(last or 0) + 1)
        return (last or 0) + 1

    for _ in range(2):
        with place.atomic():
            assert [settle(place.connection, 1), settle(place.connection, 2)] == [1, 2]


def test_without_the_tables_it_says_what_to_run(place: DjangoPlace) -> None:
    with pytest.raises(EffectsMissing, match="fencepost effects install"), place.atomic():
        fencepost.once("k", place.connection, prefix="absent_")


def test_beside_django_ledger_and_locks_still_know_the_drivers_errors(mariadb: Any) -> None:
    url = f"{mariadb.url}?prefix=beside{RUNTIME.new_id()[:8]}_"
    ledger = open_ledger(url, RUNTIME)
    with by_django(ledger.url) as connection, connection.cursor() as cursor:  # which loads Django's backend
        cursor.execute("SELECT 1")
    migrate(ledger)
    row = {"only": 1, "id": "another"}
    assert not ledger.write(lambda cursor: ledger.dialect.insert_row(cursor, ledger.tables.identity, row))
    with fencepost.locks.connect(url) as locks, locks.lock("nightly").acquire() as lease:
        assert lease.token > 0
    ledger.close()

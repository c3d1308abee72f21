"""What a connection to the ledger promises, on each database."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from fencepost.errors import LedgerRefused, LedgerUnavailable
from fencepost.ledger.claiming import claim
from fencepost.ledger.ledger import Ledger, open_ledger
from tests.ledger.scene import waits
from tests.servers import RUNTIME

Opened = Callable[[str], Ledger]


@pytest.fixture
def ledger(bare_url: str, opened: Opened) -> Ledger:
    ledger = opened(bare_url)
    table = ledger.tables.name("probe")
    ledger.write(lambda cursor: cursor.execute(f"CREATE TABLE {table} (n INTEGER PRIMARY KEY, t VARCHAR(20))"))
    return ledger


def numbers(ledger: Ledger) -> list[int]:
    def ask(cursor):
        cursor.execute(f"SELECT n FROM {ledger.tables.name('probe')} ORDER BY n")
        return [n for (n,) in cursor.fetchall()]

    return ledger.read(ask)


def insert(ledger: Ledger, cursor, n: int) -> None:
    cursor.execute(f"INSERT INTO {ledger.tables.name('probe')} (n) VALUES ({ledger.dialect.mark})", (n,))


def test_what_raises_within_a_transaction_leaves_nothing(ledger: Ledger) -> None:
    connection = ledger.connect("test")
    with pytest.raises(ZeroDivisionError), connection.transaction() as cursor:
        insert(ledger, cursor, 1)
        raise ZeroDivisionError
    with connection.transaction() as cursor:
        insert(ledger, cursor, 2)
    assert numbers(ledger) == [2]
    connection.rest()


def test_a_driver_error_is_reported_as_a_refusal_and_the_connection_goes_on(ledger: Ledger) -> None:
    connection = ledger.connect("test")
    with pytest.raises(LedgerRefused, match="fencepost migrate"), connection.transaction() as cursor:
        insert(ledger, cursor, 1)
        cursor.execute("SELECT 1 FROM nowhere_to_be_found")
    with connection.transaction() as cursor:
        insert(ledger, cursor, 2)
    assert numbers(ledger) == [2]
    connection.rest()


def test_what_fails_keeps_nobody_waiting_while_its_error_is_looked_at(ledger: Ledger) -> None:
    """On SQLite, a statement that is not reset would keep the file locked as long as the traceback has its cursor."""
    connection = ledger.connect("test")
    probe = ledger.tables.name("probe")
    with pytest.raises(LedgerUnavailable) as kept, connection.transaction() as cursor:
        sql = f"INSERT INTO {probe} (n) VALUES ({ledger.dialect.mark})"
        cursor.executemany(sql, [(1,), (2,)])
        cursor.execute(f"SELECT n FROM {probe}")
        raise ConnectionResetError
    other = ledger.connect("other")
    with other.transaction() as cursor:
        insert(ledger, cursor, 3)
    assert numbers(ledger) == [3]
    assert kept.value.__cause__ is not None
    other.rest()


def test_a_ledger_that_nobody_has_any_more_is_forgotten(ledger_url: str) -> None:
    gone = open_ledger(ledger_url, RUNTIME)
    connection = gone.connect("test")
    claim(connection, node="n", jobs=("job",), queues=("default",), limit=1, decide=waits)
    connection.rest()
    gone.close()
    dialect = weakref.ref(gone.dialect)
    del gone, connection
    gc.collect()
    assert dialect() is None


def test_a_connection_used_twice_at_once_says_so(ledger: Ledger) -> None:
    connection = ledger.connect("test")
    with connection.transaction(), pytest.raises(RuntimeError, match="in use"), connection.transaction():
        pass
    connection.rest()


def test_json_becomes_rows_of_the_right_kinds(ledger: Ledger) -> None:
    source = ledger.dialect.json_table("x", {"a": "int", "b": "text", "c": "float"})

    def ask(cursor):
        cursor.execute(f"SELECT a, b, c FROM {source}", ('[[1, "é\\"x", 0.5], [9007199254740991, null, null]]',))
        return [tuple(row) for row in cursor.fetchall()]

    assert ledger.read(ask) == [(1, 'é"x', 0.5), (9007199254740991, None, None)]


def test_the_ledgers_time_is_about_now(ledger: Ledger) -> None:
    assert abs(ledger.now_us() - ledger.runtime.wall_us()) < 60_000_000

"""The name of a step says which older versions can work with its tables."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost import App, locks
from fencepost.core.urls import StoreUrl
from fencepost.effects.installing import install, open_database
from fencepost.effects.verifying import verify
from fencepost.errors import SchemaMismatch
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.ledger import migrations, nodes
from fencepost.ledger.ledger import Ledger
from fencepost.schema import effects
from fencepost.schema.revisions import is_newer, is_readable, known_by, recorded, steps_in
from fencepost.threaded import ThreadedRuntime

KNOWN = ("0001", "0002", "0003")


@pytest.mark.parametrize(
    ("revision", "readable"),
    [
        ("0001", True),
        ("0003", True),
        ("0004", False),
        ("0004_from_0004", False),
        ("0004_from_0003", True),
        ("0012_from_0003", True),
        ("0012_from_0001", True),
        ("0012_from_0004", False),
        ("9999", False),
        ("3f2a91c0b7de", False),
        ("9999_from_later", False),
    ],
)
def test_a_newer_revision_is_readable_by_versions_that_know_its_oldest_reader(revision: str, readable: bool) -> None:
    assert is_readable(revision, KNOWN) is readable
    assert is_newer(revision, KNOWN) is (revision not in KNOWN)


def test_a_version_whose_own_newest_step_carries_a_rule_reads_later_ones() -> None:
    assert is_readable("0006_from_0004", (*KNOWN, "0004_from_0003"))
    assert not is_readable("0006_from_0005", (*KNOWN, "0004_from_0003"))


@pytest.mark.parametrize(
    ("version", "step"), [("0.1.0.dev0/0003", 3), ("1.4.0/0012", 12), ("0.1.0.dev0", 0), ("simulated", 0), ("a/b", 0)]
)
def test_a_recorded_version_tells_which_step_its_node_knows(version: str, step: int) -> None:
    assert known_by(version) == step


def test_what_a_node_records_is_the_number_without_the_rule() -> None:
    assert recorded("1.4.0", "0012_from_0009") == "1.4.0/0012"


Rename = Callable[[str, str], None]


@pytest.fixture
def rename(ledger: Ledger) -> Iterator[Rename]:
    """Record another revision; the tables are shared with other tests, so the right one is recorded afterwards."""

    def record(table: str, revision: str) -> None:
        name = ledger.tables.name(table)
        ledger.write(lambda cursor: cursor.execute(f"UPDATE {name} SET version_num = '{revision}'"))

    yield record
    record("version", migrations.NEWEST)
    record("effects_version", effects.NEWEST)


def _newer(rule: str) -> str:
    return f"9999_from_{rule}"


def test_an_older_version_works_on_newer_tables_that_it_can_read(
    ledger: Ledger, ledger_url: str, rename: Rename
) -> None:
    rename("version", _newer(migrations.NEWEST[:4]))
    rename("effects_version", _newer(effects.NEWEST[:4]))
    assert migrations.migrate(ledger) == ()
    migrations.ready_schema(ledger)
    app = App(ledger_url)
    try:
        assert nodes.nodes(app.ledger) == []
    finally:
        app.close()
    assert migrations.current_revision(ledger) == _newer(migrations.NEWEST[:4])


def test_an_older_version_refuses_newer_tables_that_it_cannot_read(
    ledger: Ledger, ledger_url: str, rename: Rename
) -> None:
    rename("version", _newer("9998"))
    with pytest.raises(SchemaMismatch, match="newer Fencepost"):
        migrations.migrate(ledger)
    with pytest.raises(SchemaMismatch, match="newer Fencepost"):
        _ = App(ledger_url).ledger


def test_tables_of_effects_follow_the_same_rule(ledger_url: str, rename: Rename) -> None:
    database = open_database(ledger_url, ThreadedRuntime())
    try:
        rename("effects_version", _newer(effects.NEWEST[:4]))
        assert install(database) == ()
        assert verify(database).is_ready
        rename("effects_version", _newer("9998"))
        with pytest.raises(SchemaMismatch, match="newer Fencepost"):
            install(database)
        assert not verify(database).is_ready
    finally:
        database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
def test_leases_go_on_when_a_newer_version_has_added_columns(bare_url: str, opened: Callable[[str], Ledger]) -> None:
    ledger = opened(bare_url)
    tables = LeaseTables.of(StoreUrl.parse(ledger.url.lease_url()))
    with locks.connect(ledger.url.lease_url()) as store, store.lock("before"):
        for table in (tables.session, tables.lease, tables.history):
            ledger.write(lambda cursor, table=table: cursor.execute(f"ALTER TABLE {table} ADD COLUMN newer BIGINT"))
        with store.lock("after"):
            assert {record.name for record in store.records()} == {"before", "after"}
        assert [past.name for past in store.history() or ()] == ["after"]


def test_steps_are_named_by_their_files_also_in_a_zip_file(tmp_path: Path) -> None:
    names = ("r0001_first.py", "r0002_from_0001_second.py", "__init__.py")
    for name in names:
        (tmp_path / name).touch()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as packed:
        for name in names:
            packed.writestr(f"versions/{name}", "")
    assert steps_in(tmp_path) == ("0001", "0002_from_0001")
    assert steps_in(tmp_path / "all.zip" / "versions") == ("0001", "0002_from_0001")


@pytest.mark.parametrize(
    "name", ["r0002_from_0001.py", "R0002_second.py", "r0003_third.py", "r0001_again.py", "old.py"]
)
def test_step_with_a_wrong_name_is_refused(tmp_path: Path, name: str) -> None:
    for each in ("r0001_first.py", name):
        (tmp_path / each).touch()
    with pytest.raises(RuntimeError, match="each number once"):
        steps_in(tmp_path)

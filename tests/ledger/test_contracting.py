"""Steps that take something away: left alone by `migrate`, and refused while a node lives that needs it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost import App
from fencepost.effects import installing
from fencepost.errors import LedgerRefused, SchemaMismatch
from fencepost.ledger import migrations, nodes
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import running
from fencepost.ledger.nodes import NewNode, join, leave
from fencepost.schema import effects
from fencepost.schema.revisions import contracts, number
from testbed.wait import until

Opened = Callable[[str], Ledger]
Line = Callable[..., tuple[str, ...]]
DROPS = "step.drop_column('node', 'pauses_at')"
ADDS = "step.add_column('node', sa.Column('later', sa.Integer()))"
NEWEST = number(migrations.NEWEST)


def _write(folder: Path, revision: str, before: str, does: str) -> None:
    text = f"import sqlalchemy as sa\nrevision = {revision!r}\ndown_revision = {before!r}\n"
    (folder / "versions" / f"t{revision}.py").write_text(f"{text}def upgrade(step):\n    {does}\n")


def _copied(source: Path, to: Path, known: tuple[str, ...], steps: dict[str, str]) -> tuple[str, ...]:
    shutil.copytree(source / "versions", to / "versions", ignore=shutil.ignore_patterns("__pycache__"))
    for revision, does in steps.items():
        _write(to, revision, known[-1], does)
        known = (*known, revision)
    return known


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Let there be further steps of the ledger: named, and what they do."""

    def extended(**steps: str) -> tuple[str, ...]:
        named = {name.removeprefix("s"): does for name, does in steps.items()}
        known = _copied(running._FOLDER, tmp_path / "ledger", migrations.REVISIONS, named)
        monkeypatch.setattr(running, "_FOLDER", tmp_path / "ledger")
        monkeypatch.setattr(migrations, "REVISIONS", known)
        monkeypatch.setattr(migrations, "NEWEST", known[-1])
        return known

    return extended


def _takes(own: int, oldest: int) -> str:
    return f"s{own:04}_from_{oldest:04}"


CONTRACTING = _takes(NEWEST + 1, NEWEST)


def _node(ledger: Ledger, name: str, version: str) -> str:
    node = NewNode(f"id-of-{name}", name, "g", 1, 0, version, 1, ("default",), ())
    join(ledger, node)
    return node.id


def _has_column(ledger: Ledger, column: str = "pauses_at") -> bool:
    try:
        ledger.read(lambda cursor: cursor.execute(f"SELECT {column} FROM {ledger.tables.name('node')}"))
    except LedgerRefused:
        return False
    return True


def test_which_steps_contract_is_told_by_their_names() -> None:
    known = ("0001", "0002", "0003", "0004_from_0003", "0005_from_0003", "0006_from_0005", "0007_from_0005")
    assert [each for each in known if contracts(each, known)] == ["0006_from_0005"]
    assert not any(contracts(each, migrations.REVISIONS) for each in migrations.REVISIONS)
    assert not any(contracts(each, effects.REVISIONS) for each in effects.REVISIONS)


def test_migrate_takes_nothing_away_and_the_new_version_works_before_it_was(
    bare_url: str, opened: Opened, line: Line
) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    line(**{CONTRACTING: DROPS})
    assert migrations.migrate(ledger) == ()
    migrations.check_schema(ledger)
    assert _has_column(ledger)


def test_contracting_is_refused_while_a_node_lives_that_needs_what_goes(
    bare_url: str, opened: Opened, line: Line
) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    line(**{CONTRACTING: DROPS})
    old = _node(ledger, "web-1", f"0.1.0/{NEWEST - 1:04}/0002")
    _node(ledger, "web-2", f"0.2.0/{NEWEST:04}/0002")
    with pytest.raises(LedgerRefused, match=r"what node web-1 \(version 0.1.0\) still uses: deploy") as error:
        migrations.migrate(ledger, contract=True)
    assert "web-2" not in str(error.value)
    assert _has_column(ledger)
    leave(ledger, old)
    assert migrations.migrate(ledger, contract=True) == (CONTRACTING.removeprefix("s"),)
    assert not _has_column(ledger)


def test_a_node_that_recorded_no_step_counts_as_older(bare_url: str, opened: Opened, line: Line) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    line(**{CONTRACTING: DROPS})
    _node(ledger, "ancient", "0.0.9")
    with pytest.raises(LedgerRefused, match=r"node ancient \(version 0.0.9\)"):
        migrations.migrate(ledger, contract=True)


def test_a_step_behind_one_that_contracts_asks_for_it_first(bare_url: str, opened: Opened, line: Line) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    line(**{CONTRACTING: DROPS, _takes(NEWEST + 2, NEWEST): ADDS})
    with pytest.raises(SchemaMismatch, match=r"run: fencepost migrate --contract --ledger"):
        migrations.migrate(ledger)
    assert not _has_column(ledger, "later")
    assert len(migrations.migrate(ledger, contract=True)) == 2
    assert _has_column(ledger, "later")


def test_new_tables_are_made_as_they_are_after_contracting(bare_url: str, opened: Opened, line: Line) -> None:
    ledger = opened(bare_url)
    line(**{CONTRACTING: DROPS})
    assert CONTRACTING.removeprefix("s") in migrations.migrate(ledger)
    assert not _has_column(ledger)


def test_a_node_that_joins_while_something_is_taken_away_leaves_again(ledger: Ledger, ledger_url: str) -> None:
    app = App(ledger_url)
    app.command("noop", ["true"])
    version = ledger.tables.name("version")
    try:
        _ = app.ledger
        ledger.write(lambda cursor: cursor.execute(f"UPDATE {version} SET version_num = '9999_from_9998'"))
        with pytest.raises(SchemaMismatch, match="newer Fencepost"):
            app.start()
        assert [node.is_living for node in nodes.nodes(ledger)] == [False]
    finally:
        ledger.write(lambda cursor: cursor.execute(f"UPDATE {version} SET version_num = '{migrations.NEWEST}'"))
        app.close()


def test_tables_of_effects_elsewhere_are_contracted_when_the_ledger_has_no_older_node(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = installing.open_database(f"sqlite:///{tmp_path}/shop.db", ledger.runtime)
    installing.install(shop)
    own = number(effects.NEWEST)
    step = _takes(own + 1, own + 1).removeprefix("s")
    does = "step.drop_column('dead_letter', 'error_code')"
    known = _copied(effects.STEPS_FOLDER, tmp_path / "effects", effects.REVISIONS, {step: does})
    monkeypatch.setattr(effects, "STEPS_FOLDER", tmp_path / "effects")
    monkeypatch.setattr(effects, "REVISIONS", known)
    monkeypatch.setattr(installing, "REVISIONS", known)
    try:
        old = _node(ledger, "web-1", f"0.1.0/{NEWEST:04}/{own:04}")
        assert installing.install(shop) == ()
        with pytest.raises(LedgerRefused, match="node web-1"):
            installing.install(shop, contract_for=(ledger,))
        leave(ledger, old)
        _node(ledger, "web-2", f"0.2.0/{NEWEST:04}/{own + 1:04}")
        assert installing.install(shop, contract_for=(ledger,)) == (f"effects-{step}",)
    finally:
        shop.close()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
def test_nobody_waits_behind_a_step_that_waits_for_a_table(
    kind: str, bare_url: str, opened: Opened, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_RETRY_EVERY_S", 0.1)
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    line(**{_takes(NEWEST + 1, 3): ADDS})
    node = ledger.tables.name("node")
    holder, reader = ledger.connect("holder"), ledger.connect("reader")
    done: list[Any] = []
    migrating = threading.Thread(target=lambda: done.append(migrations.migrate(opened(bare_url))))

    def hold(cursor: Any) -> None:
        cursor.execute(f"UPDATE {node} SET slots = slots")
        migrating.start()
        until(lambda: _waits_for_table(reader, kind), 20, what="the step waits for the table")
        reader.read(lambda other: other.execute(f"SELECT count(*) FROM {node}"))  # it queues behind the step

    holder.write(hold)
    migrating.join(30)
    assert done == [(_takes(NEWEST + 1, 3).removeprefix("s"),)]
    for connection in (holder, reader):
        connection.rest()


def _waits_for_table(connection: Any, kind: str) -> bool:
    sql = (
        "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        if kind == "postgresql"
        else "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'"
    )

    def look(cursor: Any) -> bool:
        cursor.execute(sql)
        return bool(cursor.fetchall())

    return bool(connection.read(look))

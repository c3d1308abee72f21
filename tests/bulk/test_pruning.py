"""What bulk jobs leave in a database of effects is removed once it is over and old, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from fencepost.bulk.checkpoint import Checkpoint, CheckpointMark, partition_name, plan_name
from fencepost.bulk.instance import instance_name
from fencepost.bulk.letters import DROPPED, REPLAYED, Letter, put_aside, settle
from fencepost.bulk.visits import visiting, visitor
from fencepost.core.runs import Requested
from fencepost.effects.installing import open_database
from fencepost.effects.old_checkpoints import BulkRuns, Removed, prune_checkpoints
from fencepost.effects.old_letters import prune_letters
from fencepost.errors import ConfigurationError
from fencepost.ledger import requests
from fencepost.ledger.database import Database
from fencepost.ledger.jobs import NewJob, register
from fencepost.ledger.ledger import Ledger
from fencepost.threaded import ThreadedRuntime

DAY_S = 86400.0
MONTH_S = 30 * DAY_S
LONG_AGO_US = 40 * 86_400_000_000
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


class Place:
    """A database of effects with checkpoints and letters of bulk jobs, and the ledger of these."""

    def __init__(self, ledger: Ledger, engine: Engine, database: Database) -> None:
        self.ledger = ledger
        self.engine = engine
        self.database = database
        self._writer = visitor(ledger)
        register(ledger, [NewJob("settle", "bulk", "{}", "{}")], generation=1)

    def plan(self, instance: str, step: str, *, parts: int = 0, complete: int | None = None, **words: Any) -> None:
        """Keep a plan, and checkpoints of its partitions."""
        more: dict[str, Any] = {"slices": [{}] * parts} | ({} if complete is None else {"complete": complete})
        job = words.pop("job", "settle")
        marks = {plan_name(job, instance, step): CheckpointMark(**{"run": 1, "is_done": True, **words}, more=more)}
        marks |= {partition_name(job, instance, step, number): CheckpointMark(is_done=True) for number in range(parts)}
        with visiting(self.engine) as tx:
            for name, mark in marks.items():
                assert Checkpoint(name, None, self._writer).begin(tx, mark)

    def letters(self, *states: str) -> None:
        with visiting(self.engine) as tx:
            put_aside(tx, [Letter(state, "{}", "ValueError", "poison", 1) for state in states], self._writer)
        for number, state in self.rows("SELECT id, item_key FROM {}dead_letter WHERE state = 'new'"):
            if state in (REPLAYED, DROPPED):
                with visiting(self.engine) as tx:
                    assert settle(tx, self._writer, number, state)

    def age(self) -> None:
        """Let 40 days pass for all that is there."""
        for table, column in (("checkpoint", "updated_at"), ("dead_letter", "created_at")):
            self.change(f"UPDATE {{}}{table} SET {column} = {column} - {LONG_AGO_US}")

    def rows(self, sql: str) -> list[Any]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql.format(self.ledger.tables.prefix)))]

    def change(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(sql.format(self.ledger.tables.prefix)))

    @property
    def names(self) -> list[str]:
        return [name for (name,) in self.rows("SELECT name FROM {}checkpoint ORDER BY name")]

    @property
    def instances(self) -> set[str]:
        return {name.partition("@")[2].partition("/")[0] for name in self.names}

    def prune(self, **words: Any) -> Removed:
        words = {"older_than_s": MONTH_S, **words}
        return prune_checkpoints(self.database, BulkRuns(self.ledger, instance_name), **words)

    def record(self, state: str, job: str = "settle", **params: Any) -> int:
        """Have a run on record."""
        [(run_id, _)] = requests.enqueue(self.ledger, [Requested(job=job, type="bulk", params=json.dumps(params))])
        table = self.ledger.tables.name("run")
        self.ledger.write(lambda cursor: cursor.execute(f"UPDATE {table} SET state = '{state}' WHERE id = {run_id}"))
        return run_id


@pytest.fixture
def place(ledger_url: str, opened: Callable[[str], Ledger], engine: Engine, effects_url: str) -> Iterator[Place]:
    ledger = opened(ledger_url)
    database = open_database(f"{effects_url}?prefix={ledger.tables.prefix}", ThreadedRuntime())
    yield Place(ledger, engine, database)
    database.close()


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_what_was_completed_long_ago_goes_and_nothing_that_is_unfinished_or_young(place: Place) -> None:
    for instance in ("20260101T000000-aaaa", "run-1"):
        place.plan(instance, "first", parts=3, complete=1)
        place.plan(instance, "second", parts=2)
    place.plan("run-12", "first", parts=2)  # done, but not the whole
    place.plan("run-12", "second", parts=1, is_done=False)
    place.plan("run-13", "first", parts=2)  # all of it is done, but for a hook
    place.change("INSERT INTO {}checkpoint (name, position, updated_at) VALUES ('sequence:feed', '7', 0)")
    place.change("INSERT INTO {}checkpoint (name, position, updated_at) VALUES ('bulk:settle@odd/x', 'no JSON', 0)")
    place.age()
    place.plan("run-14", "first", parts=1, complete=1)  # just now
    before = place.names
    assert place.prune(dry_run=True, batch=4) == Removed(checkpoints=14, works=2, kept=9)
    assert place.names == before
    assert place.prune(batch=4) == Removed(checkpoints=14, works=2, kept=9)
    assert place.names == [name for name in before if "@run-1/" not in name and "@2026" not in name]
    assert place.prune() == Removed(0, 0, 9)


def test_what_a_run_stands_for_that_has_not_ended_stays(place: Place) -> None:
    states = ("queued", "running", "waiting", "succeeded", "dead")
    runs = [place.record(state) for state in states]
    parts = {"run-90001": "queued", "run-90002": "succeeded"}
    for instance, state in parts.items():
        place.record(state, "settle/part", instance=instance)
    for instance in (*(f"run-{run_id}" for run_id in runs), *parts):
        place.plan(instance, "main", parts=1, complete=1)
    place.age()
    assert place.prune().works == 3
    assert place.instances == {f"run-{run_id}" for run_id in runs[:3]} | {"run-90001"}


def test_a_step_apart_from_the_first_goes_if_the_run_that_ended_it_has_succeeded(place: Place) -> None:
    succeeded, dead, other = place.record("succeeded"), place.record("dead"), place.record("succeeded", "report")
    for number, run_id in enumerate((succeeded, dead, other, 99_999)):
        place.plan(f"run-{number}", "second", parts=2, run=run_id)
    place.plan("run-4", "second", parts=1, run=succeeded, is_done=False)
    place.age()
    assert place.prune() == Removed(3, 1, 11)
    assert place.instances == {"run-1", "run-2", "run-3", "run-4"}


@on_sqlite
def test_cut_short_in_the_middle_it_leaves_the_row_that_refuses_a_repetition(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.plan("run-1", "a", parts=2)
    place.plan("run-1", "b", parts=3, complete=1)
    place.plan("run-1", "c", parts=2)
    place.age()
    gone: list[list[str]] = []
    write, all_of_it = place.database.write, place.names

    def one_row_each(work: Any) -> Any:
        done = write(work)
        gone.append([name for name in all_of_it if name not in place.names])
        if len(gone) == 9:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(place.database, "write", one_row_each)
    with pytest.raises(KeyboardInterrupt):
        place.prune(batch=1)
    assert all("#" in name for name in gone[6])  # partitions, all seven of them, go before their plans
    assert place.names == ["bulk:settle@run-1/b"]
    assert place.prune() == Removed(1, 1, 0)


@on_sqlite
def test_what_the_ledger_does_not_know_or_names_do_not_tell_stays(place: Place) -> None:
    long = "j" * 110
    register(place.ledger, [NewJob(long, "bulk", "{}", "{}")], generation=1)
    place.plan("run-1", "main", parts=1, complete=1, job="stranger")
    place.plan("20260101T000000-abcdefabcdef", "s" * 60, parts=1, complete=1, job=long)
    place.plan("20260101T000000-abcdefabcdef", "s", parts=1, complete=1, job=long)
    place.age()
    assert place.prune() == Removed(0, 0, 6)


@on_sqlite
def test_names_that_were_cut_behind_the_work_go_with_it(place: Place) -> None:
    place.plan("run-1", "s" * 180, parts=2, complete=1)
    place.plan("run-1", "t" * 175, parts=20)
    place.age()
    assert place.prune() == Removed(24, 1, 0)


@on_sqlite
def test_what_was_completed_today_is_not_pruned(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="23h59m is too short: work that was completed within the last day"):
        place.prune(older_than_s=DAY_S - 60)
    place.prune(older_than_s=DAY_S)


# -- letters -----------------------------------------------------------------------------------------------------------


def test_old_letters_that_are_settled_go_and_new_ones_stay(place: Place) -> None:
    place.letters("new", REPLAYED, DROPPED, REPLAYED, "new", DROPPED, "new")
    place.age()
    place.letters(REPLAYED, "new")
    assert prune_letters(place.database, older_than_s=MONTH_S, dry_run=True) == 4
    assert len(place.rows("SELECT id FROM {}dead_letter")) == 9
    assert prune_letters(place.database, older_than_s=MONTH_S, batch=3) == 4
    assert [state for (state,) in place.rows("SELECT state FROM {}dead_letter ORDER BY id")] == [
        *["new"] * 3,
        REPLAYED,
        "new",
    ]
    assert prune_letters(place.database, older_than_s=MONTH_S) == 0

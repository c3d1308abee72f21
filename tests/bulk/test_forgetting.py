"""What is seen of an instance in its target, and forgotten there; and which runs are its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from fencepost.bulk.checkpoint import Checkpoint, CheckpointMark, Counts, partition_name, plan_name
from fencepost.bulk.definition import Bulk, Options, Step
from fencepost.bulk.forgetting import completed_by, forget, live_runs, see
from fencepost.bulk.readers.keyset import keyset
from fencepost.bulk.visits import visiting, visitor
from fencepost.core.runs import Requested
from fencepost.ledger import requests
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.naming import naming
from fencepost.ledger.parts import part_key, part_place, parts_of

READ = keyset("SELECT id FROM orders WHERE id > :after ORDER BY id LIMIT :limit", key="id")


@pytest.fixture
def ledger(ledger_url: str, opened: Callable[[str], Ledger]) -> Ledger:
    return opened(ledger_url)


@pytest.fixture
def bulk(engine: Engine) -> Bulk:
    options = Options.of(chunk=10, words={"target": engine})
    steps = [Step(name, options, READ, None, lambda tx, items: None) for name in ("first", "second")]
    return Bulk("settle", tuple(steps))


def named(ledger: Ledger, instance: str) -> str:
    return naming(ledger).instance(instance)


def keep(
    ledger: Ledger, engine: Engine, name: str, mark: CheckpointMark, *, shape: str = READ.shape, read: int = 0
) -> None:
    with visiting(engine) as tx:
        assert Checkpoint(name, shape, visitor(ledger)).begin(tx, mark, Counts(read, read))


def plan(ledger: Ledger, engine: Engine, instance: str, step: str, *, parts: int, **words: Any) -> None:
    more = {"slices": [{"part": number} for number in range(parts)]}
    keep(ledger, engine, plan_name("settle", named(ledger, instance), step), CheckpointMark(run=1, more=more, **words))


def names(ledger: Ledger, engine: Engine) -> list[str]:
    with engine.connect() as connection:
        table = f"{ledger.tables.prefix}checkpoint"
        return list(connection.execute(text(f"SELECT name FROM {table} ORDER BY name")).scalars())


def test_all_of_an_instance_is_forgotten_and_nothing_of_another(ledger: Ledger, engine: Engine, bulk: Bulk) -> None:
    for instance in ("run-1", "run-12"):
        plan(ledger, engine, instance, "first", parts=600, is_done=True)
        plan(ledger, engine, instance, "second", parts=2)
        for number in (0, 599):
            keep(
                ledger,
                engine,
                partition_name("settle", named(ledger, instance), "first", number),
                CheckpointMark(is_done=True),
                read=5,
            )
        keep(
            ledger,
            engine,
            partition_name("settle", named(ledger, instance), "second", 1),
            CheckpointMark(after=[7], run=3),
            read=7,
        )
    first, second = see(bulk, "run-1", ledger)
    assert (first.done_by, first.done, first.counts.read, len(first.partitions)) == (1, 2, 10, 600)
    assert (second.done_by, second.done, second.counts.written) == (None, 0, 7)
    assert [None if each is None else each.mark.after for each in second.partitions] == [None, [7]]
    assert not first.is_of_other_code
    assert completed_by([first, second]) is None
    assert forget(bulk, "run-1", ledger) == 5
    assert forget(bulk, "run-1", ledger) == 0
    assert [each.plan for each in see(bulk, "run-1", ledger)] == [None, None]
    left = names(ledger, engine)
    assert (len(left), {name.partition("/")[0] for name in left}) == (5, {f"bulk:settle@{named(ledger, 'run-12')}"})


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_name_that_was_cut_is_forgotten_too(ledger: Ledger, engine: Engine, bulk: Bulk) -> None:
    instance = "i" * 190
    plan(ledger, engine, instance, "second", parts=1)
    keep(ledger, engine, partition_name("settle", named(ledger, instance), "second", 0), CheckpointMark())
    assert forget(bulk, instance, ledger) == 2


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_partition_of_other_code_is_noticed(ledger: Ledger, engine: Engine, bulk: Bulk) -> None:
    plan(ledger, engine, "run-1", "first", parts=2)
    keep(
        ledger, engine, partition_name("settle", named(ledger, "run-1"), "first", 1), CheckpointMark(), shape="another"
    )
    first, second = see(bulk, "run-1", ledger)
    assert (first.is_of_other_code, second.is_of_other_code) == (True, False)


def test_parts_are_found_by_their_parent_and_by_nobody_elses(ledger: Ledger) -> None:
    def record(key: str | None) -> int:
        [(run_id, _)] = requests.enqueue(ledger, [Requested(job="settle/part", type="bulk", origin_key=key)])
        return run_id

    mine = [record(part_key(1, step, number, 0)) for step in ("a:b", "main", "ö") for number in (0, 10)]
    for key in (part_key(10, "main", 0, 0), part_key(2, "main", 0, 0), "part:1", "part:1;", "request:part:1:", None):
        record(key)
    found = parts_of(ledger, 1)
    assert [part.run_id for part in found] == mine
    places = [("a:b", 0), ("a:b", 10), ("main", 0), ("main", 10), ("ö", 0), ("ö", 10)]
    assert [part_place(part.origin_key) for part in found] == places
    long = part_key(1, "s" * 200, 3, 0)
    cut = record(long)
    assert (parts_of(ledger, 1)[-1].run_id, part_place(long)) == (cut, None)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_live_runs_of_an_instance_are_its_own_and_its_parts(ledger: Ledger) -> None:
    def record(job: str, params: str = "{}", **words: Any) -> int:
        [(run_id, _)] = requests.enqueue(ledger, [Requested(job=job, type="bulk", params=params, **words)])
        return run_id

    first, other = record("settle"), record("settle")
    requests.cancel(ledger, first)
    instance = f"run-{first}"
    assert live_runs(ledger, ("settle", "settle/part"), instance) == []
    repeated = requests.retry(ledger, first)
    part = record("settle/part", f'{{"instance": "{instance}"}}')
    record("settle/part", f'{{"instance": "run-{other}"}}')
    assert live_runs(ledger, ("settle", "settle/part"), instance) == [repeated, part]

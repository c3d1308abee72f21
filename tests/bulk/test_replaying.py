"""Replays of dead letters: each is written once, together with its mark, or stays with what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from fencepost import Retry, Skip
from fencepost.app.records import RunRecord
from fencepost.bulk import keyset
from fencepost.bulk.letters import REPLAYED, settle
from fencepost.bulk.visits import visiting, visitor
from fencepost.ledger.pruning import Retention, prune
from tests.cli.bulk_shop import ORDERS, BulkShop

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
MakeShop = Callable[..., BulkShop]


@pytest.fixture
def make_shop(ledger_url: str, effects_url: str) -> Iterator[MakeShop]:
    """A shop whose ledger and target are two databases."""
    made: list[BulkShop] = []

    def make(**options: Any) -> BulkShop:
        made.append(BulkShop(ledger_url, effects_url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def shop(make_shop: MakeShop) -> BulkShop:
    """A shop with thirty orders, of which two were put aside."""
    shop = make_shop()
    shop.open(range(1, 31))
    shop.poison = {7, 21}
    assert shop.run().state == "succeeded"
    return shop


def replayed(shop: BulkShop, *ids: int, **params: Any) -> RunRecord:
    [row] = shop.drive(shop.app.enqueue("settle/replay", params={"letters": list(ids), **params}).run_id)
    return row


def fates(row: RunRecord) -> dict[str, int]:
    assert row.state == "succeeded", row.error
    return {name: count for name, count in (row.result or {}).items() if count}


def numbers(shop: BulkShop) -> list[int]:
    listed = shop.call("letters", "list", "settle", "--json").json
    return sorted(each["id"] for each in listed)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_put_aside_is_written_and_marked_and_what_fails_again_stays(shop: BulkShop) -> None:
    shop.poison = {21}
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 1, "failed": 1}
    assert shop.settled() == [each for each in range(1, 31) if each != 21]
    assert shop.letters() == [
        ("id=7", "replayed", 1, "order 7 is poison"),
        ("id=21", "new", 2, "order 21 is poison"),
    ]
    shop.poison = set()
    assert fates(replayed(shop, upto=max(numbers(shop)))) == {"replayed": 1}
    assert fates(replayed(shop, upto=max(numbers(shop)))) == {}
    assert shop.settled() == list(range(1, 31))


@on_sqlite
def test_of_two_replays_one_writes(shop: BulkShop) -> None:
    shop.poison = set()
    ids = numbers(shop)

    def be_slower(order: Any) -> None:
        """While this replay processes the item, another one settles its letter."""
        with visiting(shop.engine) as tx:
            assert settle(tx, visitor(shop.app.ledger), ids[0], REPLAYED)

    shop.while_processing = be_slower
    assert fates(replayed(shop, ids[0])) == {"settled before": 1}
    assert 7 not in shop.settled()


@on_sqlite
def test_a_letter_whose_write_fails_is_not_marked(shop: BulkShop) -> None:
    shop.poison = set()
    shop.execute("INSERT INTO settled VALUES (7, 1)")  # in the way of the letter's own
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 1, "failed": 1}
    [(_, state, tries, error), (_, other, _, _)] = shop.letters()
    assert (state, tries, other) == ("new", 2, "replayed")
    assert "UNIQUE" in error
    assert 21 in shop.settled()


@on_sqlite
def test_a_replay_that_was_lost_goes_on_with_what_is_left(shop: BulkShop) -> None:
    shop.poison = set()
    first, second = numbers(shop)
    with visiting(shop.engine) as tx:
        settle(tx, visitor(shop.app.ledger), first, REPLAYED)  # as far as the attempt before has come
    shop.processed.clear()
    assert fates(replayed(shop, first, second)) == {"replayed": 1}
    assert shop.processed == [21]


@on_sqlite
def test_a_letter_without_its_item_is_left_alone(shop: BulkShop) -> None:
    shop.poison = set()
    shop.execute("""UPDATE fencepost_dead_letter SET payload = '{"step": "main", "shown": "<Order>"}' WHERE id = 1""")
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 1, "refused": 1}
    assert [state for _, state, _, _ in shop.letters()] == ["new", "replayed"]


@on_sqlite
def test_a_letter_of_a_step_that_is_gone_is_left_alone(shop: BulkShop) -> None:
    shop.poison = set()
    shop.execute("UPDATE fencepost_dead_letter SET payload = replace(payload, 'main', 'former') WHERE id = 1")
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 1, "refused": 1}


@on_sqlite
def test_items_that_have_ended_their_worker_come_last(shop: BulkShop) -> None:
    shop.poison = set()
    shop.execute("UPDATE fencepost_dead_letter SET error_code = 'fencepost.bulk.partition.WorkerLost' WHERE id = 1")
    shop.processed.clear()
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 2}
    assert shop.processed == [21, 7]


@on_sqlite
def test_an_item_may_ask_for_another_try_or_be_left_out(make_shop: MakeShop) -> None:
    shop = make_shop(retry_limit=2, retry_backoff="10ms..20ms")
    shop.open(range(1, 4))
    shop.poison = {1, 2, 3}
    assert shop.run().state == "succeeded"
    shop.poison, asked = set(), list[int]()

    def ask(order: Any) -> None:
        asked.append(order.id)
        if order.id == 1 and asked.count(1) < 3:
            raise Retry(after="10ms", reason="the bank is busy")
        if order.id == 2:
            raise Retry(after="10ms", reason="the bank is busy")
        if order.id == 3:
            raise Skip("nobody wants it")

    shop.while_processing = ask
    assert fates(replayed(shop, *numbers(shop))) == {"replayed": 1, "failed": 2}
    assert asked == [1, 1, 1, 2, 2, 2, 3]
    assert [error for _, state, _, error in shop.letters() if state == "new"] == [
        "still failing after 3 tries: the bank is busy",
        "nobody wants it",
    ]


@on_sqlite
def test_what_process_leaves_out_is_settled_without_being_written(make_shop: MakeShop) -> None:
    shop = make_shop()
    shop.open([1])
    app, found = shop.app, {"is_poison": True}

    def sort(order: Any) -> None:
        if found["is_poison"]:
            raise ValueError(f"order {order.id} is poison")

    @app.bulk(name="sort", skip_limit=1, target=shop.engine, read=keyset(ORDERS, key="id"), process=sort)
    def write(tx: Any, items: Any) -> None:
        raise AssertionError("there is nothing to write")

    [row] = shop.drive(write.enqueue().run_id)
    assert row.state == "succeeded"
    found["is_poison"] = False
    [row] = shop.drive(app.enqueue("sort/replay", params={"letters": [1]}).run_id)
    assert fates(row) == {"replayed": 1}
    assert [state for _, state, _, _ in shop.letters()] == ["replayed"]


@on_sqlite
@pytest.mark.parametrize("is_pruned", [False, True], ids=["kept", "pruned"])
def test_a_letter_is_processed_with_the_parameters_of_the_run_it_came_from(
    make_shop: MakeShop, is_pruned: bool
) -> None:
    shop = make_shop()
    shop.open(range(1, 3))
    app, found = shop.app, {"is_poison": True}

    @app.bulk(name="price", chunk=10, skip_limit=9, target=shop.engine)
    class Price:
        read = keyset(ORDERS, key="id")

        def __init__(self, factor: int = 1) -> None:
            self.factor = factor

        async def process(self, order: Any) -> Any:
            if found["is_poison"]:
                raise ValueError("poison")
            return (order.id * self.factor, order.amount)

        def write(self, tx: Any, items: Any) -> None:
            tx.execute(text("INSERT INTO settled VALUES (:a, :b)"), [{"a": a, "b": b} for a, b in items])

    shop.drive(Price.enqueue(factor=10).run_id, Price.enqueue(factor=100).run_id)
    found["is_poison"] = False
    if is_pruned:
        prune(app.ledger, None, Retention.of(succeeded="0s"))
        assert not app.operations.runs(job="price")
    [row] = shop.drive(app.enqueue("price/replay", params={"letters": [], "upto": 99}).run_id)
    assert fates(row) == {"replayed": 4}
    assert shop.settled() == [10, 20, 100, 200]

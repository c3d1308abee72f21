"""Ledgers that share a database of effects, and versions that name their checkpoints otherwise: whose work is done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from fencepost import App, cron
from fencepost.app.composing import publish
from fencepost.ledger import nodes
from fencepost.ledger.identity import identity
from fencepost.ledger.migrations import migrate
from fencepost.ledger.nodes import NewNode
from tests.bulk.orders import Died, Shop, again, hand, kind, on, place, played, result_of, settling, shop

__all__ = ["kind", "place", "shop"]

DAY = datetime(2026, 1, 2, 2, tzinfo=UTC)
elsewhere = on(("sqlite", "other"), ("postgresql", "other"), ("mysql", "other"))
in_a_file = on(("sqlite", "other"))


@pytest.fixture
def other(shop: Shop, tmp_path: Path) -> Iterator[App]:
    """The application of another ledger, whose effects land in the same database."""
    made = App(f"sqlite:///{tmp_path}/another.db", ttl="5s")
    migrate(made.ledger)
    yield made
    made.close()


def had_older_nodes(shop: Shop) -> None:
    """Let the ledger be one from before names had its identity, and its rows in the database of effects too."""
    ledger = shop.app.ledger
    was = text(f"UPDATE {ledger.tables.name('identity')} SET nameless_until = 1")
    ledger.write(lambda cursor: ledger.change(cursor, was))
    ledger.known_naming = None
    for table, column in (("checkpoint", "name"), ("dead_letter", "payload")):
        shop.change(
            f"UPDATE {shop.effects_table(table)} SET {column} = REPLACE({column}, :label, '')",
            {"label": f"{identity(ledger)[:12]}:"},
        )


def adding(number: int) -> type:
    """A bulk job that settles orders under other ids, so that both ledgers' effects can be told apart."""

    def write(_: Any, tx: Any, items: Any) -> None:
        rows = [{"id": each.id + number, "amount": each.amount} for each in items]
        tx.execute(text("INSERT INTO settled VALUES (:id, :amount)"), rows)

    return settling(write=write)


def backfilled(app: App, handle: Any, shop: Shop) -> Any:
    publish(app)
    app.operations.backfill(handle.name, DAY, DAY, by="ann")
    with hand(shop, app) as one:
        return one.play(app.operations.runs(job=handle.name, limit=1)[0].id)


class TestTwoLedgers:
    @elsewhere
    def test_a_run_of_the_second_does_all_of_its_work(self, shop: Shop, other: App) -> None:
        shop.fill(range(1, 21))
        ours = shop.bulk(adding(0), name="settle")
        theirs = shop.bulk(adding(100), name="settle", app=other)
        assert played(shop, ours).state == "succeeded"
        with hand(shop, other) as one:
            row = one.play(theirs.enqueue().run_id)
        assert (row.id, row.state, result_of(row)["written"]) == (1, "succeeded", 20)
        assert shop.settled() == [*range(1, 21), *range(101, 121)]

    @in_a_file
    def test_so_does_one_for_the_same_window(self, shop: Shop, other: App) -> None:
        shop.fill(range(1, 6))
        for app, number in ((shop.app, 0), (other, 100)):
            handle = shop.bulk(adding(number), cron("0 2 * * *"), name="settle", app=app)
            assert backfilled(app, handle, shop).state == "succeeded"
        assert shop.settled() == [*range(1, 6), *range(101, 106)]

    @in_a_file
    def test_letters_of_the_other_are_left_alone(self, shop: Shop, other: App) -> None:
        shop.fill(range(1, 6))

        def refuse(order: Any) -> Any:
            raise ValueError("not yet")

        for app in (shop.app, other):
            handle = shop.bulk(settling(refuse), name="settle", app=app, skip_limit=9)
            with hand(shop, app) as one:
                assert one.play(handle.enqueue().run_id).state == "succeeded"
        with hand(shop) as one:
            made = shop.app.operations.trigger("settle/replay", {"letters": [], "upto": 99}, by="ann")
            fates = result_of(one.play(made.run_id))
        assert sum(fates.values()) == 5
        assert len(shop.letters()) == 10


class TestFromBeforeTheNames:
    @elsewhere
    def test_what_was_begun_is_gone_on_with_and_nothing_lands_twice(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        is_mended: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 15 and not is_mended:
                raise ValueError("not yet")
            return order

        handle = shop.bulk(settling(process), retries=0)
        first = played(shop, handle)
        assert (first.state, shop.settled()) == ("dead", list(range(1, 15)))
        had_older_nodes(shop)
        assert all("@run-" in name for name in shop.marks())
        is_mended.append(1)
        assert again(shop, first).state == "succeeded"
        assert shop.settled() == list(range(1, 31))

    @in_a_file
    def test_what_was_complete_is_refused(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        handle = shop.bulk(settling(), cron("0 2 * * *"))
        assert backfilled(shop.app, handle, shop).state == "succeeded"
        had_older_nodes(shop)
        assert backfilled(shop.app, handle, shop).state == "skipped"

    @in_a_file
    def test_what_another_ledger_completed_is_not_taken_for_ours(self, shop: Shop, other: App) -> None:
        shop.fill(range(1, 6))
        ours = shop.bulk(adding(0), cron("0 2 * * *"), name="settle")
        theirs = shop.bulk(adding(100), cron("0 2 * * *"), name="settle", app=other)
        assert backfilled(shop.app, ours, shop).state == "succeeded"
        had_older_nodes(shop)
        statement = text("UPDATE fencepost_identity SET nameless_until = 1")
        other.ledger.write(lambda cursor: other.ledger.change(cursor, statement))
        assert backfilled(other, theirs, shop).state == "succeeded"
        assert shop.settled() == [*range(1, 6), *range(101, 106)]


class TestTwoVersions:
    @elsewhere
    def test_work_is_begun_under_the_name_that_older_nodes_find(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        nodes.join(shop.app.ledger, NewNode("old", "old", "g", 1, 0, "0.1.0/0003", 1, ("default",), ()))
        row = played(shop, shop.bulk(settling(), partitions=2))
        assert row.state == "succeeded"
        assert {name.partition("/")[0] for name in shop.marks()} == {f"bulk:Settle@run-{row.id}"}
        parts = [each.params for each in shop.app.operations.runs() if each.job == "Settle/part"]
        assert {each["instance"] for each in parts} == {f"run-{row.id}"}

    @in_a_file
    def test_what_was_begun_before_they_came_is_gone_on_with(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        died: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 15 and not died:
                died.append(1)
                nodes.join(shop.app.ledger, NewNode("old", "old", "g", 1, 0, "0.1.0/0003", 1, ("default",), ()))
                shop.app.ledger.known_naming = None
                raise Died
            return order

        assert played(shop, shop.bulk(settling(process))).state == "succeeded"
        assert shop.settled() == list(range(1, 31))

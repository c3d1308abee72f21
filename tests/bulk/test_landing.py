"""Chunks land once, with their checkpoints: whatever fails is found, tried again, looked up, or refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event, text

from fencepost import Fail, Retry, Run, Skip
from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.bulk.failures import ChunkVerdict, verdict_of
from fencepost.engine.run import attempt_of
from fencepost.errors import LeaseLost, TransactionTooLong
from fencepost.testing import until
from testbed.proxy import Proxy
from tests.bulk.orders import (
    Shop,
    again,
    hand,
    kind,
    on,
    on_every_database,
    on_postgresql,
    on_servers,
    place,
    played,
    result_of,
    settling,
    shop,
)

__all__ = ["kind", "place", "shop"]

POISON = (3, 17, 18, 40, 41)


def poisoned(order: Any) -> Any:
    if order.id in POISON:
        raise ValueError(f"order {order.id} is poison")
    return order


class TestPoison:
    @on_every_database
    def test_items_that_fail_are_put_aside_and_all_others_are_written(self, shop: Shop) -> None:
        shop.fill(range(1, 61))
        row = played(shop, shop.bulk(settling(poisoned), skip_limit=10))
        assert row.state == "succeeded"
        assert shop.settled() == [n for n in range(1, 61) if n not in POISON]
        assert shop.letters() == [(f"id={n}", f"order {n} is poison") for n in POISON]
        counts = result_of(row)
        assert counts["read"] == 60 == counts["written"] + counts["filtered"] + counts["skipped"]
        assert counts["skipped"] == 5

    @on_every_database
    def test_one_more_than_the_limit_ends_the_run_and_a_restart_goes_on_where_it_stopped(self, shop: Shop) -> None:
        shop.fill(range(1, 61))
        row = played(shop, shop.bulk(settling(poisoned), name="settle", skip_limit=3))
        assert row.state == "dead"
        assert row.attempts == 1
        assert "item id=40 failed, and skip_limit is 3" in (row.error or "")
        assert shop.settled() == [n for n in range(1, 40) if n not in POISON]
        assert len(shop.letters()) == 3

        seen: list[int] = []

        def mended(order: Any) -> Any:
            seen.append(order.id)
            return order

        later = shop.another_app()
        shop.bulk(settling(mended), name="settle", skip_limit=3, app=later)
        row = again(shop, row, later)
        later.close()
        assert row.state == "succeeded"
        assert seen == list(range(40, 61))
        assert shop.settled() == [n for n in range(1, 61) if n not in POISON[:3]]
        counts = result_of(row)
        assert (counts["read"], counts["written"], counts["skipped"]) == (60, 57, 3)

    def test_what_stops_within_the_last_chunk_is_not_taken_for_done(self, shop: Shop) -> None:
        shop.fill(range(1, 13))
        shop.change("INSERT INTO settled VALUES (6, 0)")
        row = played(shop, shop.bulk(settling(), chunk=20))
        assert row.state == "dead"
        shop.change("DELETE FROM settled WHERE id = 6")
        assert again(shop, row).state == "succeeded"
        assert shop.settled() == list(range(1, 13))

    @on_every_database
    def test_a_row_that_cannot_be_written_is_found_by_dividing_its_chunk(self, shop: Shop) -> None:
        shop.fill(range(1, 61))
        shop.change("INSERT INTO settled VALUES (33, 0)")
        sizes: list[int] = []

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                sizes.append(len(items))
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle, skip_limit=1))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 61))
        assert [key for key, _ in shop.letters()] == ["id=33"]
        assert sizes == [10, 10, 10, 10, 5, 2, 3, 1, 2, 5, 10, 10]

    @on_postgresql
    def test_a_constraint_that_is_checked_at_commit_finds_its_row_as_well(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        shop.change("ALTER TABLE settled ADD CONSTRAINT once UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED")
        shop.change("INSERT INTO settled VALUES (1000, 150)")
        row = played(shop, shop.bulk(settling(), skip_limit=1))
        assert row.state == "succeeded"
        assert shop.settled() == [n for n in range(1, 31) if n != 15] + [1000]
        ((key, error),) = shop.letters()
        assert key == "id=15"
        assert "once" in error

    @on_servers
    def test_a_check_and_a_value_that_does_not_fit_are_about_their_item(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        shop.change("ALTER TABLE settled ADD CONSTRAINT few CHECK (amount <> 70)")

        def too_large(order: Any) -> Any:
            return order._replace(amount=10**12) if order.id == 9 else order

        row = played(shop, shop.bulk(settling(too_large), skip_limit=2))
        assert row.state == "succeeded"
        assert [key for key, _ in shop.letters()] == ["id=7", "id=9"]

    def test_a_value_that_the_driver_cannot_write_is_about_its_item(self, shop: Shop) -> None:
        shop.fill(range(1, 11))
        row = played(
            shop, shop.bulk(settling(lambda order: order._replace(amount={}) if order.id == 4 else order), skip_limit=1)
        )
        assert row.state == "succeeded"
        assert [key for key, _ in shop.letters()] == ["id=4"]

    def test_skip_in_write_puts_the_item_aside_that_is_alone_then(self, shop: Shop) -> None:
        shop.fill(range(1, 11))

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                if any(item.id == 6 for item in items):
                    raise Skip("not this one")
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle, skip_limit=1))
        assert row.state == "succeeded"
        assert shop.letters() == [("id=6", "not this one")]

    def test_a_letter_that_cannot_be_written_fails_the_attempt_instead_of_going_on_for_ever(self, shop: Shop) -> None:
        shop.fill(range(1, 4))
        shop.change(
            f"CREATE TRIGGER no_letters BEFORE INSERT ON {shop.effects_table('dead_letter')} "
            "BEGIN SELECT RAISE(ABORT, 'no letters today'); END"
        )
        row = played(shop, shop.bulk(settling(poisoned), skip_limit=1, retries=0))
        assert row.state == "dead"
        assert "no letters today" in (row.error or "")
        assert shop.settled() == [1, 2]


class TestWhatIsNotAboutAnItem:
    @on_every_database
    def test_a_missing_table_is_no_poison(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        shop.change("DROP TABLE settled")
        row = played(shop, shop.bulk(settling(), skip_limit=100, retries=0))
        assert row.state == "dead"
        assert "settled" in (row.error or "")
        assert shop.letters() == []

    @on_postgresql
    def test_missing_rights_are_no_poison(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        shop.change("CREATE TABLE forbidden (id integer)")
        shop.change("DROP ROLE IF EXISTS nobody_here")
        shop.change("CREATE ROLE nobody_here")

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                tx.execute(text("SET LOCAL ROLE nobody_here"))
                tx.execute(text("INSERT INTO forbidden VALUES (1)"))

        row = played(shop, shop.bulk(Settle, skip_limit=100, retries=0))
        shop.change("DROP TABLE forbidden")
        assert row.state == "dead"
        assert "permission denied" in (row.error or "")
        assert shop.letters() == []

    def test_fail_ends_the_run_at_once(self, shop: Shop) -> None:
        shop.fill(range(1, 21))

        def process(order: Any) -> Any:
            if order.id == 15:
                raise Fail("the bank is no more")
            return order

        row = played(shop, shop.bulk(settling(process), skip_limit=100, retries=5))
        assert (row.state, row.attempts, row.error) == ("dead", 1, "the bank is no more")
        assert shop.settled() == list(range(1, 11))


class TestTryingAgain:
    @on_servers
    def test_a_deadlock_or_serialization_failure_has_the_chunk_written_again(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        calls: Counter[int] = Counter()

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                calls[items[0].id] += 1
                super().write(tx, items)
                if items[0].id == 11 and calls[11] < 3:
                    if shop.kind == "postgresql":
                        tx.execute(text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$"))
                    raise _deadlock()

        def _deadlock() -> Exception:
            import pymysql

            return pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock")

        row = played(shop, shop.bulk(Settle))
        assert (row.state, row.attempts) == ("succeeded", 1)
        assert calls == {1: 1, 11: 3, 21: 1}
        assert shop.settled() == list(range(1, 31))
        assert shop.letters() == []

    def test_retry_in_write_tries_the_chunk_again_up_to_its_limit(self, shop: Shop) -> None:
        shop.fill(range(1, 5))
        tries: list[int] = []

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                tries.append(len(items))
                if len(tries) < 3:
                    raise Retry(reason="busy")
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle, retry_limit=2))
        assert row.state == "succeeded"
        assert tries == [4, 4, 4]

    def test_an_item_that_asks_once_too_often_is_put_aside_alone(self, shop: Shop) -> None:
        shop.fill(range(1, 5))

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                if any(item.id == 3 for item in items):
                    raise Retry(after="1ms", reason="still closed")
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle, retry_limit=1, skip_limit=1))
        assert row.state == "succeeded"
        assert shop.letters() == [("id=3", "still failing after 2 tries: still closed")]

    def test_what_is_too_much_for_one_transaction_lands_in_less(self, shop: Shop) -> None:
        shop.fill(range(1, 11))

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                if len(items) > 3:
                    raise TransactionTooLong("it took too long")
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 11))
        assert shop.letters() == []


class TestConnectionsThatBreak:
    @pytest.mark.parametrize(
        ("place", "is_alone"),
        [(("postgresql", "other"), True), (("postgresql", "other"), False), (("mysql", "other"), True)],
        ids=["postgresql", "postgresql along with its check", "mysql"],
    )
    def test_a_commit_whose_answer_was_lost_is_looked_up(
        self, shop: Shop, is_alone: bool, request: pytest.FixtureRequest
    ) -> None:
        """The reply to COMMIT is swallowed and the connection cut: what landed is not written again."""
        shop.fill(range(1, 31))
        calls: Counter[int] = Counter()
        with _proxied(shop, request) as (proxy, through):
            if is_alone:
                event.listen(through, "commit", lambda _: calls[11] == 1 and _lose_the_answer(proxy, shop, calls))

            class Settle(settling()):  # type: ignore[misc]
                def write(self, tx: Any, items: Any) -> None:
                    calls[items[0].id] += 1
                    super().write(tx, items)
                    if items[0].id == 11 and not is_alone:
                        _lose_the_answer(proxy, shop, calls)

            row = played(shop, shop.bulk(Settle, target=through, source=shop.engine))
        assert (row.state, row.attempts, row.error) == ("succeeded", 1, None)
        assert calls == {1: 1, 11: 1, 21: 1, "lost": 1}
        assert shop.settled() == list(range(1, 31))
        assert result_of(row)["written"] == 30

    @on(("postgresql", "other"), ("mysql", "other"))
    def test_connections_that_break_cost_a_pause(self, shop: Shop, request: pytest.FixtureRequest) -> None:
        shop.fill(range(1, 51))
        calls: Counter[int] = Counter()
        with _proxied(shop, request) as (proxy, through):

            class Settle(settling()):  # type: ignore[misc]
                def write(self, tx: Any, items: Any) -> None:
                    calls[items[0].id] += 1
                    if items[0].id == 11 and calls[11] == 1:
                        proxy.cut()  # that of the reader, and that of the writer
                    super().write(tx, items)

            row = played(shop, shop.bulk(Settle, target=through))
        assert (row.state, row.attempts, row.error) == ("succeeded", 1, None)
        assert shop.settled() == list(range(1, 51))
        assert calls[11] == 2
        assert shop.letters() == []


@contextmanager
def _proxied(shop: Shop, request: pytest.FixtureRequest) -> Iterator[tuple[Proxy, Engine]]:
    """A proxy before the server, and an engine that goes through it."""
    server = request.getfixturevalue("postgres" if shop.kind == "postgresql" else "mariadb")
    with Proxy(server.host, server.port) as proxy:
        through = sqlalchemy.create_engine(shop.engine.url.set(host=proxy.host, port=proxy.port))
        yield proxy, through
        through.dispose()


def _lose_the_answer(proxy: Proxy, shop: Shop, calls: Counter[Any]) -> None:
    """From now on no reply passes; as soon as the chunk is there, cut the connections."""
    if calls["lost"]:
        return
    calls["lost"] += 1

    swallowed = proxy.bytes_swallowed

    def cut() -> None:
        has_landed = lambda: 20 in shop.settled() and proxy.bytes_swallowed > swallowed  # noqa: E731
        until(has_landed, 20, "the chunk has landed and its answer is lost")
        proxy.flow()  # first: new connections are to work
        proxy.cut()

    proxy.swallow_replies()
    threading.Thread(target=cut, daemon=True).start()


class TestOthersWhoWrite:
    @on_every_database
    def test_a_stale_writer_is_refused_and_its_chunk_is_not_there(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        ours: list[Run] = []

        class Settle(settling()):  # type: ignore[misc]
            def before(self, run: Run) -> None:
                ours.append(run)

            def process(self, order: Any) -> Any:
                if order.id == 15:  # its node is declared dead, and another has the run
                    _taken_over(shop, ours[0])
                return order

        shop.bulk(Settle, read_ahead=0).enqueue()
        with hand(shop) as old:
            claimed = old.claim()
            assert claimed is not None
            assert old.execute(claimed).how == "lost"
        assert shop.settled() == list(range(1, 11))

    @on_every_database
    def test_where_a_former_holder_moved_the_checkpoint_the_rightful_goes_on_from_there(self, shop: Shop) -> None:
        shop.fill(range(1, 51))
        seen: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 15 and 15 not in seen:  # what was on its way lands now: by a writer whom no fence has met
                shop.change("INSERT INTO settled SELECT id, amount FROM orders WHERE id BETWEEN 11 AND 30")
                shop.change(_MOVED.format(shop.effects_table("checkpoint")))
            seen.append(order.id)
            return order

        row = played(shop, shop.bulk(settling(process), read_ahead=0))
        assert (row.state, row.attempts) == ("succeeded", 1)
        assert shop.settled() == list(range(1, 51))
        assert seen == [*range(1, 21), *range(31, 51)]

    @on_every_database
    def test_a_chunk_that_has_landed_by_another_hand_is_not_written_beside_it(self, shop: Shop) -> None:
        """Where no key of the user's tells that a row is there already, the checkpoint does."""
        shop.fill(range(1, 31))
        shop.change("DROP TABLE IF EXISTS entry")
        shop.change("CREATE TABLE entry (id INTEGER)")
        seen: list[int] = []

        class Settle(settling()):  # type: ignore[misc]
            def process(self, order: Any) -> Any:
                if order.id == 15 and 15 not in seen:
                    shop.change("INSERT INTO entry SELECT id FROM orders WHERE id BETWEEN 11 AND 20")
                    shop.change(_MOVED.format(shop.effects_table("checkpoint")).replace("30", "20"))
                seen.append(order.id)
                return order

            def write(self, tx: Any, items: Any) -> None:
                tx.execute(text("INSERT INTO entry VALUES (:id)"), [{"id": item.id} for item in items])

        assert played(shop, shop.bulk(Settle, read_ahead=0)).state == "succeeded"
        assert [row[0] for row in shop.rows("SELECT id FROM entry ORDER BY id")] == list(range(1, 31))


_MOVED = "UPDATE {} SET position = replace(position, '[10]', '[30]') WHERE name LIKE '%#0'"


def _taken_over(shop: Shop, run: Run) -> None:
    """What the successor of a run does to the fence."""
    if shop.is_own:
        shop.change(f"UPDATE {shop.app.ledger.tables.name('run')} SET token = token + 1 WHERE id = {run.id}")
        return
    claimed = attempt_of(run).claim._replace(token=run.token + 1, attempt=2)
    with Run(shop.app.jobs[run.job], claimed, attempt_of(run).context).fence(shop.engine):
        pass


class TestVerdicts:
    def test_errors_of_ours_are_told_apart(self) -> None:
        assert verdict_of(CheckpointMoved("moved")) is ChunkVerdict.UNKNOWN
        assert verdict_of(LeaseLost("run 1", 7, "gone")) is ChunkVerdict.RAISE
        assert verdict_of(KeyError("amount")) is ChunkVerdict.ITEM

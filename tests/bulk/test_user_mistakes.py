"""Mistakes of users by which items would be missed, or land twice, while the job looks well: each is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from fencepost import App
from fencepost.bulk import covering, keyset
from fencepost.bulk.pools import threads_for
from fencepost.errors import InvalidBulk, TransactionConflict
from tests.bulk.orders import QUERY, Shop, again, kind, on, place, played, result_of, settling, shop

__all__ = ["kind", "place", "shop"]

OF_REGION = QUERY.replace("WHERE", "WHERE amount % 20 = :region AND")
BY_REMAINDER = QUERY.replace("WHERE", "WHERE id % :parts = :part AND")


@pytest.fixture
def app() -> App:
    return App("sqlite:////nowhere.db")


def inserted(tx: Any, ids: Any) -> Any:
    return tx.execute(text("INSERT INTO settled VALUES (:id, 1)"), [{"id": each} for each in ids])


class TestWhatIsTriedAgain:
    def test_a_write_that_takes_items_off_its_list_gets_all_of_them_again(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        calls: list[int] = []

        def write(_: Any, tx: Any, items: Any) -> None:
            calls.append(len(items))
            while items:
                inserted(tx, [items.pop().id])
            if len(calls) == 1:
                raise TransactionConflict("once more")

        row = played(shop, shop.bulk(settling(write=write)))
        assert (row.state, calls) == ("succeeded", [10, 10, 10])
        assert shop.settled() == list(range(1, 21))

    @pytest.mark.parametrize("made", [iter, lambda items: map(str, items)], ids=["iterator", "map"])
    def test_what_can_be_gone_through_once_only_is_refused_before_it_is_written(self, shop: Shop, made: Any) -> None:
        shop.fill(range(1, 6))
        row = played(shop, shop.bulk(settling(process=lambda order: made([order.id]))))
        assert row.state == "dead"
        assert "process() of step 'main' returned a" in (row.error or "")
        assert shop.settled() == []


class TestWorkThatIsOnlyPromised:
    def test_a_write_that_returns_what_nobody_awaits_is_given_up_at_once(self, shop: Shop) -> None:
        async def later(tx: Any, items: Any) -> None:
            inserted(tx, [each.id for each in items])

        shop.fill(range(1, 6))
        row = played(shop, shop.bulk(settling(write=lambda _, tx, items: later(tx, items))))
        assert row.state == "dead"
        assert "write() of step 'main' returned a coroutine" in (row.error or "")

    def test_a_cursor_that_write_returns_is_none_of_these(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        row = played(shop, shop.bulk(settling(write=lambda _, tx, items: inserted(tx, [each.id for each in items]))))
        assert (row.state, shop.settled()) == ("succeeded", [1, 2, 3, 4, 5])

    def test_an_object_that_is_called_as_a_coroutine_processes(self, shop: Shop) -> None:
        class Doubled:
            async def __call__(self, order: Any) -> Any:
                return order.id * 2

        shop.fill(range(1, 6))
        row = played(
            shop,
            shop.bulk(settling(process=Doubled(), write=lambda _, tx, items: inserted(tx, items) and None)),
        )
        assert (row.state, shop.settled()) == ("succeeded", [2, 4, 6, 8, 10])

    @pytest.mark.parametrize("name", ["process", "write", "before", "after"])
    def test_a_yield_is_refused_when_it_is_declared(self, app: App, name: str) -> None:
        def with_yield(*_: Any) -> Any:
            yield 1

        with pytest.raises(InvalidBulk, match=rf"{name}\(\) has a yield, so that calling it does nothing"):
            app.bulk()(settling(**{name: with_yield}))

    @pytest.mark.parametrize("name", ["before", "after", "decide"])
    def test_so_is_a_hook_or_a_step_that_is_async(self, app: App, name: str) -> None:
        async def later(*_: Any) -> Any: ...

        report = type("report", (), {"work": later})
        with pytest.raises(InvalidBulk, match=r"work\(\) is called in a thread and cannot be async"):
            app.bulk()(type("Nightly", (), {"steps": [report]}))
        works = type("report", (), {"work": lambda *_: None})
        with pytest.raises(InvalidBulk, match=rf"{name}\(\) is called in a thread and cannot be async"):
            app.bulk()(type("Nightly", (), {"steps": [works], name: later}))


class TestGivenPartitions:
    @pytest.mark.parametrize(
        ("partitions", "told"),
        [
            ([{}, {}], "must all have values for the same names"),
            ([{"region": 1}, {"area": 2}], "must all have values for the same names"),
            ([{"region": 0}, {"region": 10}, {"region": 0}], "twice, so its items would land twice"),
            ([{"limit": 1}, {"limit": 2}], "have values for limit, which .* does not use"),
        ],
        ids=str,
    )
    def test_those_that_would_read_something_twice_are_refused(self, app: App, partitions: Any, told: str) -> None:
        with pytest.raises(InvalidBulk, match=told):
            app.bulk(partitions=partitions)(settling(read=keyset(OF_REGION, key="id")))

    def test_the_query_for_keys_may_name_them(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        keys = OF_REGION.replace("id, amount", "id")
        reader = covering(keys=keys, rows="SELECT id, amount FROM orders WHERE id IN (:keys)", key="id")
        row = played(shop, shop.bulk(settling(read=reader), partitions=[{"region": 0}, {"region": 10}]))
        assert (row.state, shop.settled()) == ("succeeded", list(range(1, 31)))

    @on(("sqlite", "own"), ("postgresql", "own"))
    def test_a_key_that_is_null_in_the_last_of_them_is_refused_before_anything_lands(self, shop: Shop) -> None:
        shop.change("CREATE TABLE loose (id INTEGER, amount INTEGER)")
        rows = [{"id": each, "amount": each * 10} for each in range(1, 31)]
        shop.change("INSERT INTO loose VALUES (:id, :amount)", [*rows, {"id": None, "amount": 10}])
        reader = keyset(OF_REGION.replace("orders", "loose"), key="id")
        row = played(shop, shop.bulk(settling(read=reader), partitions=[{"region": 0}, {"region": 10}]))
        assert row.state == "dead"
        assert "the key id is NULL in some row" in (row.error or "")
        assert shop.settled() == []


class TestPartsByNumber:
    @pytest.mark.parametrize(
        ("query", "ids"),
        [
            (BY_REMAINDER, range(-20, 21)),
            (BY_REMAINDER.replace("= :part", "+ 1 = :part"), range(1, 21)),
            (BY_REMAINDER.replace("= :part", "<= :part"), range(1, 21)),
        ],
        ids=["negative", "from one", "twice"],
    )
    def test_rows_that_are_not_in_one_part_each_are_noticed_before_anything_lands(
        self, shop: Shop, query: str, ids: Any
    ) -> None:
        shop.fill(ids)
        row = played(shop, shop.bulk(settling(read=keyset(query, key="id")), partitions=4))
        assert row.state == "dead"
        assert "is not in exactly one of the 4 partitions" in (row.error or "")
        assert shop.settled() == []

    @pytest.mark.parametrize("ids", [range(-200, 201), range(1, 3), ()], ids=["many", "few", "none"])
    def test_parts_that_are_the_whole_are_done(self, shop: Shop, ids: Any) -> None:
        if ids:
            shop.fill(ids)
        query = QUERY.replace("WHERE", "WHERE abs(id) % :parts = :part AND")
        row = played(shop, shop.bulk(settling(read=keyset(query, key="id")), partitions=4))
        assert (row.state, result_of(row)["read"], shop.settled()) == ("succeeded", len(ids), list(ids))


def test_an_or_without_parentheses_is_named_as_such(shop: Shop) -> None:
    shop.fill(range(1, 6))
    query = QUERY.replace("WHERE id > :after", "WHERE amount > 10 OR amount < 5 AND id > :after")
    row = played(shop, shop.bulk(settling(read=keyset(query, key="id"))))
    assert row.state == "dead"
    assert "Put parentheses around an OR in its WHERE" in (row.error or "")


def test_a_decider_that_returns_a_class_is_told_the_names_of_the_steps(shop: Shop) -> None:
    report = type("report", (), {"work": lambda *_: None})
    nightly = type("Nightly", (), {"steps": [report], "decide": lambda *_: report})
    row = played(shop, shop.bulk(nightly))
    assert (row.state, row.why) == ("dead", "a retry would fail again")
    assert "has no step <class" in (row.error or "")
    assert "there are: report" in (row.error or "")


def test_what_is_complete_stays_so_when_the_query_changes(shop: Shop) -> None:
    shop.fill(range(1, 6))
    row = played(shop, shop.bulk(settling()))
    deployed = shop.another_app()
    shop.bulk(settling(read=keyset(QUERY.replace("WHERE", "WHERE amount > 0 AND"), key="id")), app=deployed)
    second = again(shop, row, deployed)
    deployed.close()
    assert second.state == "skipped"
    assert f"was completed by run {row.id}" in (second.why or "")


@on(("sqlite", "other"))
def test_the_checkpoints_of_a_ledger_that_is_gone_are_not_taken_for_ours(
    shop: Shop, tmp_path: Path, migrated_file: Path
) -> None:
    shop.fill(range(1, 6))
    first = played(shop, shop.bulk(settling()))
    shop.app.close()
    shutil.copyfile(migrated_file, tmp_path / "anew.db")
    shop.app = App(f"sqlite:///{tmp_path}/anew.db", ttl="5s")
    shop.fill(range(6, 11))
    row = played(shop, shop.bulk(settling()))
    assert (row.id, row.state, shop.settled()) == (first.id, "dead", [1, 2, 3, 4, 5])
    assert "belongs to another run with this number" in (row.error or "")
    assert f"fencepost bulk forget {row.id}" in (row.error or "")


class TestPools:
    @on(("sqlite", "other"))
    @pytest.mark.parametrize("pool", [{"pool_size": 1, "max_overflow": 0}, {"poolclass": StaticPool}], ids=str)
    def test_an_engine_with_one_connection_is_refused_instead_of_waited_for(
        self, shop: Shop, pool: dict[str, Any]
    ) -> None:
        shop.fill(range(1, 6))
        engine = create_engine(shop.engine.url, **pool)
        row = played(shop, shop.bulk(settling(), target=engine))
        assert (row.state, row.why, shop.settled()) == ("dead", "a retry would fail again", [])
        assert "has only one connection" in (row.error or "")
        other = played(shop, shop.bulk(settling(), target=shop.engine, source=engine, name="other"))
        engine.dispose()
        assert (other.state, shop.settled()) == ("succeeded", [1, 2, 3, 4, 5])

    def test_threads_leave_connections_to_write_by(self) -> None:
        few, usual = (create_engine("sqlite:///x.db", pool_size=size, max_overflow=size - 1) for size in (2, 8))
        endless = create_engine("sqlite:///x.db", pool_size=1, max_overflow=-1)
        assert [threads_for(each, each, wanted=8) for each in (few, usual, endless)] == [2, 8, 8]
        assert threads_for(few, usual, wanted=8) == 3

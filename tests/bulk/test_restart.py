"""Runs that are repeated: what they stand for, what is complete, and what is not done twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from fencepost import App, Skip, cron
from fencepost.app.composing import publish
from fencepost.bulk import keyset
from fencepost.bulk.forgetting import live_runs
from fencepost.bulk.instance import again_key, instance_name
from fencepost.core.identity import tick_key
from fencepost.core.runs import Requested
from fencepost.effects.installing import open_database
from fencepost.effects.old_checkpoints import BulkRuns, prune_checkpoints
from fencepost.effects.renaming import move_effects
from fencepost.errors import InvalidParameters
from fencepost.ledger import history, requests
from fencepost.ledger.database import Database
from fencepost.ledger.moving import rename, renaming_of
from fencepost.threaded import ThreadedRuntime
from tests.bulk.orders import (
    QUERY,
    Died,
    Shop,
    again,
    hand,
    kind,
    on_every_database,
    place,
    played,
    result_of,
    settling,
    shop,
)

__all__ = ["kind", "place", "shop"]

DAY = datetime(2026, 1, 2, 2, tzinfo=UTC)


class TestWhatIsComplete:
    @on_every_database
    def test_a_repetition_of_it_is_skipped_with_a_reason_and_does_nothing(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        row = played(shop, shop.bulk(settling()))
        assert row.state == "succeeded"
        second = again(shop, row)
        assert second.state == "skipped"
        assert f"was completed by run {row.id}" in (second.why or "")
        assert "fencepost bulk again" in (second.why or "")
        assert shop.settled() == list(range(1, 21))

    def test_the_same_window_is_refused_whoever_asks_for_it_and_another_is_not(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        handle = shop.bulk(settling(write=lambda _, tx, items: None), cron("0 2 * * *"))
        states = [_backfilled(shop, handle, day).state for day in (DAY, DAY, DAY + timedelta(days=1))]
        assert states == ["succeeded", "skipped", "succeeded"]

    def test_other_parameters_are_something_else(self, shop: Shop) -> None:
        shop.fill(range(1, 6))

        class Settle(settling(write=lambda _, tx, items: None)):  # type: ignore[misc]
            def __init__(self, region: str) -> None:
                self.region = region

        handle = shop.bulk(Settle, cron("0 2 * * *"), params={"region": "eu"})
        states = [_backfilled(shop, handle, DAY, params={"region": region}).state for region in ("eu", "us", "eu")]
        assert states == ["succeeded", "succeeded", "skipped"]

    def test_a_run_that_was_lost_after_its_last_commit_succeeds(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        handle = shop.bulk(settling())
        run_id = handle.enqueue().run_id
        with hand(shop) as one:
            claimed = one.claim()
            assert claimed is not None
            assert one.execute(claimed).how == "succeeded"
            one.end(claimed, one.execute(claimed)._replace(how="crashed"))  # nobody heard of it
            row = one.play(run_id)
        assert row.state == "succeeded"
        assert result_of(row)["written"] == 20
        assert shop.settled() == list(range(1, 21))


class TestWhatQueriesSee:
    def test_the_window_of_a_scheduled_run_and_its_parameters_as_they_are(self, shop: Shop) -> None:
        shop.fill(range(1, 11))
        seen: list[Any] = []

        class Settle(settling()):  # type: ignore[misc]
            read = keyset(QUERY.replace("id, amount", "id, amount, :window_start AS since, :day AS day"), key="id")

            def __init__(self, day: datetime) -> None:
                self.day = day

            def process(self, order: Any) -> Any:
                seen.append((str(order.since)[:19], str(order.day)[:19], self.day))
                return order

        handle = shop.bulk(Settle, cron("0 2 * * *"), params={"day": DAY}, partitions=2)
        assert _backfilled(shop, handle, DAY).state == "succeeded"
        assert set(seen) == {("2026-01-01 02:00:00", "2026-01-02 02:00:00", DAY)}

    def test_without_a_window_an_empty_one_that_stays_the_same_when_it_is_tried_again(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        seen: list[Any] = []

        class Settle(settling()):  # type: ignore[misc]
            read = keyset(
                QUERY.replace("id, amount", "id, amount, :window_start AS since, :window_end AS upto"), key="id"
            )

            def process(self, order: Any) -> Any:
                seen.append((order.since, order.upto))
                if order.id == 15 and len(seen) < 20:
                    raise Died
                if order.id == 25 and len(seen) < 33:
                    raise ValueError("twenty-five")
                return order

        row = played(shop, shop.bulk(Settle))
        assert row.state == "dead"
        assert again(shop, row).state == "succeeded"
        assert len(set(seen)) == 1
        assert seen[0][0] == seen[0][1]


class TestWhatWasPruned:
    def test_a_repetition_goes_on_though_one_in_between_is_no_longer_on_record(self, shop: Shop) -> None:
        """Dead, then a repetition that was cancelled and pruned, then one that died."""
        shop.fill(range(1, 31))
        is_mended: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 15 and not is_mended:
                raise ValueError("not yet")
            return order

        row = played(shop, shop.bulk(settling(process), retries=0))
        cancelled = shop.app.operations.retry(row.id, by="ann")
        shop.app.operations.cancel(cancelled, by="ann")
        third = again(shop, shop.app.operations.run(cancelled))
        assert (third.state, shop.settled()) == ("dead", list(range(1, 15)))
        shop.change(f"DELETE FROM {shop.app.ledger.tables.name('run')} WHERE id = {cancelled}")
        is_mended.append(1)
        assert again(shop, third).state == "succeeded"
        assert shop.settled() == list(range(1, 31))

    def test_so_does_one_of_what_is_done_again_on_purpose(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        row = played(shop, shop.bulk(settling(write=lambda _, tx, items: None)))
        ledger = shop.app.ledger
        anew = requests.retry(ledger, row.id, by="ann", origin_key=again_key(row.id, "x"))
        named = instance_name(ledger, history.run(ledger, anew))
        requests.cancel(ledger, anew)
        repetition = history.run(ledger, requests.retry(ledger, anew, by="ann"))
        shop.change(f"DELETE FROM {ledger.tables.name('run')} WHERE id = {anew}")
        assert instance_name(ledger, repetition) == named == f"run-{anew}"

    def test_repetitions_that_an_older_version_made_are_followed_as_far_as_they_are_on_record(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        row = played(shop, shop.bulk(settling(write=lambda _, tx, items: None)))
        ledger = shop.app.ledger
        second = requests.retry(ledger, row.id, by="ann")
        requests.cancel(ledger, second)
        third = requests.retry(ledger, second, by="ann")
        shop.change(f"UPDATE {ledger.tables.name('run')} SET root = NULL")
        assert instance_name(ledger, history.run(ledger, third)) == f"run-{row.id}"


class TestRenamed:
    """Bulk jobs that got another name in the middle of their work."""

    @on_every_database
    def test_it_goes_on_where_it_was_under_its_old_name_and_nothing_lands_twice(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        mended: list[int] = []

        def process(order: Any) -> Any:
            if order.id in (7, 30) and not mended:
                raise (Skip if order.id == 7 else ValueError)("not yet")
            return order

        words = {"retries": 0, "partitions": 2, "skip_limit": 1}
        row = played(shop, shop.bulk(settling(process), name="nightly", **words))
        landed = shop.settled()
        assert (row.state, 0 < len(landed) < 39) == ("dead", True)
        repeated = shop.app.operations.retry(row.id, by="ann")
        app = shop.another_app()
        renamed = shop.bulk(settling(process), name="settle", formerly="nightly", app=app, **words)
        publish(app)
        mended.append(1)
        with hand(shop, app) as one:
            row = one.play(repeated)
            assert (row.job, row.state) == ("settle", "succeeded")
            assert shop.settled() == [each for each in range(1, 41) if each != 7]
            assert {name.partition("@")[0] for name in shop.marks()} == {"bulk:nightly"}
            replay = app.enqueue(renamed.replay_name, params={"letters": [], "upto": 100})
            assert result_of(one.play(replay.run_id))["replayed"] == 1
        assert shop.settled() == list(range(1, 41))
        assert live_runs(app.ledger, renamed.names, instance_name(app.ledger, history.run(app.ledger, row.id))) == []
        app.close()

    @on_every_database
    def test_renamed_for_good_it_goes_on_under_its_new_name_also_if_that_was_interrupted(
        self, shop: Shop, request: pytest.FixtureRequest
    ) -> None:
        shop.fill(range(1, 41))
        mended: list[int] = []

        def process(order: Any) -> Any:
            if order.id in (7, 30) and not mended:
                raise (Skip if order.id == 7 else ValueError)("not yet")
            return order

        words = {"retries": 0, "skip_limit": 1}
        first = played(shop, shop.bulk(settling(process), name="nightly", **words))
        publish(shop.app)
        ledger = shop.app.ledger
        target = ledger if shop.is_own else self.database(shop, request.getfixturevalue("effects_url"))
        renaming = renaming_of(ledger, "nightly", "settle")
        assert [move_effects(target, ledger, renaming).letters for _ in range(2)] == [1, 0]  # it was ended in between
        rename(ledger, renaming, by="ann")
        assert {name.partition("@")[0] for name in shop.marks()} == {"bulk:settle"}
        app = shop.another_app()
        handle = shop.bulk(settling(process), name="settle", app=app, **words)
        publish(app)
        mended.append(1)
        row = again(shop, first, app)
        assert (row.job, row.state, shop.settled()) == ("settle", "succeeded", [*range(1, 7), *range(8, 41)])
        with hand(shop, app) as one:
            replay = app.enqueue(handle.replay_name, params={"letters": [], "upto": 100})
            assert result_of(one.play(replay.run_id))["replayed"] == 1
        fence = (
            f"SELECT count(*) FROM {shop.effects_table('fence')} WHERE grant_id = 'renamed' AND token > {first.token}"
        )
        assert shop.rows(fence) == [(1,)]
        app.close()
        target.close()

    def database(self, shop: Shop, url: str) -> Database:
        return open_database(f"{url}?prefix={shop.app.ledger.tables.prefix}", ThreadedRuntime())

    def test_its_unfinished_work_is_not_pruned_though_the_runs_have_the_new_name(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        row = played(shop, shop.bulk(settling(), name="nightly"))
        app = shop.another_app()
        shop.bulk(settling(), name="settle", formerly="nightly", app=app)
        publish(app)
        shop.change(f"UPDATE {shop.effects_table('checkpoint')} SET updated_at = 1")
        repeated = app.operations.retry(row.id, by="ann")
        publish(app)
        assert app.operations.run(repeated).job == "settle"
        assert self.pruned(app) == 0
        app.operations.cancel(repeated, by="ann")
        assert self.pruned(app) > 0
        app.close()

    def pruned(self, app: App) -> int:
        return prune_checkpoints(app.ledger, BulkRuns(app.ledger, instance_name), older_than_s=90_000).checkpoints


class TestCoalesced:
    """One run for three windows that were late together, and a back-fill of the second of them."""

    def test_a_window_that_was_completed_as_part_of_it_is_not_done_again(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        with hand(shop) as one:
            whole = one.play(self.asked_for_three_days(shop, handle))
        assert (whole.state, shop.settled()) == ("succeeded", list(range(1, 31)))
        row = _backfilled(shop, handle, DAY + timedelta(days=1))
        assert row.state == "skipped"
        assert f"completed as part of run {whole.id}" in (row.why or "")
        assert _backfilled(shop, handle, DAY + timedelta(days=3)).state != "skipped"

    def test_nor_is_it_when_many_windows_of_it_are_asked_for_at_once(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        with hand(shop) as one:
            whole = one.play(self.asked_for_three_days(shop, handle, days=30))
            assert whole.state == "succeeded"
            shop.change("DELETE FROM settled")
            shop.app.operations.backfill(handle.name, DAY, DAY + timedelta(days=29), by="ann")
            first = min(row.id for row in shop.app.operations.runs(job=handle.name, limit=50) if row.id != whole.id)
            assert one.play(first).state == "skipped"
        assert shop.settled() == []

    def test_one_that_was_given_up_in_the_middle_is_to_be_gone_on_with(self, shop: Shop) -> None:
        handle = self.declared(shop, [15])
        with hand(shop) as one:
            whole = one.play(self.asked_for_three_days(shop, handle))
        assert whole.state == "dead"
        row = _backfilled(shop, handle, DAY + timedelta(days=1))
        assert (row.state, shop.settled()) == ("dead", list(range(1, 15)))
        assert f"fencepost retry {whole.id}" in (row.error or "")

    def test_one_that_has_not_ended_does_it_and_one_that_never_began_does_not(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        whole = self.asked_for_three_days(shop, handle)
        with hand(shop) as one:
            held = one.claim([handle.name])
            assert held is not None
            assert _backfilled(shop, handle, DAY + timedelta(days=1)).state == "skipped"
            one.end(held, one.execute(held)._replace(how="cancelled"))
            shop.change(f"DELETE FROM {shop.effects_table('checkpoint')}")
        assert (shop.app.operations.run(whole).state, shop.change("DELETE FROM settled")) == ("cancelled", 30)
        assert _backfilled(shop, handle, DAY + timedelta(days=1)).state == "succeeded"

    def test_a_window_that_was_back_filled_before_does_not_land_again_and_the_rest_is_named(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        second = _backfilled(shop, handle, DAY + timedelta(days=1))
        assert (second.state, shop.settled()) == ("succeeded", list(range(1, 31)))
        whole = self.asked_for_three_days(shop, handle)
        with hand(shop) as one:
            row = one.play(whole)
        assert (row.state, shop.settled()) == ("dead", list(range(1, 31)))
        assert f"2026-01-02T02:00:00Z to 2026-01-03T02:00:00Z (run {second.id})" in (row.error or "")
        command = f"fencepost backfill {handle.name} --schedule {handle.name} "
        assert command + "--from 2026-01-02T02:00:00Z --to 2026-01-04T02:00:00Z" in (row.error or "")

    def test_what_is_left_of_it_is_done_by_that_command_and_then_it_is_complete(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        _backfilled(shop, handle, DAY + timedelta(days=1))
        whole = self.asked_for_three_days(shop, handle)
        with hand(shop) as one:
            one.play(whole)
            shop.change("DELETE FROM settled")
            before = {row.id for row in shop.app.operations.runs(job=handle.name, limit=50)}
            shop.app.operations.backfill(handle.name, DAY, DAY + timedelta(days=2), by="ann", schedule=handle.name)
            ids = sorted({row.id for row in shop.app.operations.runs(job=handle.name, limit=50)} - before)
            states = []
            for run_id in ids:
                states.append(one.play(run_id).state)
                shop.change("DELETE FROM settled")  # every window has the same orders
            assert states == ["succeeded", "skipped", "succeeded"]
            row = one.play(shop.app.operations.retry(whole, by="ann"))
        assert (row.state, shop.settled()) == ("skipped", [])
        assert "separate runs have completed every window that this run covers" in (row.why or "")

    def test_nor_does_one_that_is_being_back_filled(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        publish(shop.app)
        shop.app.operations.backfill(handle.name, DAY, DAY, by="ann")
        with hand(shop) as one:
            held = one.claim([handle.name])
            assert held is not None
            whole = one.play(self.asked_for_three_days(shop, handle))
            assert whole.state == "dead"
            assert f"run {held.run_id} is working on a part" in (whole.error or "")
            assert f"fencepost retry {whole.id}" in (whole.error or "")
            one.end(held, one.execute(held))

    def test_what_a_pause_passed_over_is_repeated_as_a_whole(self, shop: Shop) -> None:
        """Its window was empty: the repetition read nothing, succeeded, and a back-fill knew nothing of it."""
        seen: set[tuple[str, str]] = set()
        handle = self.declared(shop, [], seen)
        passed = self.passed_over(shop, handle)
        with hand(shop) as one:
            whole = one.play(shop.app.operations.retry(passed.id, by="ann"))
        assert (whole.state, shop.settled()) == ("succeeded", list(range(1, 31)))
        assert seen == {("2026-01-01 02:00:00", "2026-01-04 02:00:00")}
        row = _backfilled(shop, handle, DAY + timedelta(days=1))
        assert (row.state, f"completed as part of run {whole.id}" in (row.why or "")) == ("skipped", True)

    def test_nor_is_that_done_where_one_of_its_windows_was_back_filled(self, shop: Shop) -> None:
        handle = self.declared(shop, [])
        passed = self.passed_over(shop, handle)
        second = _backfilled(shop, handle, DAY + timedelta(days=1))
        with hand(shop) as one:
            whole = one.play(shop.app.operations.retry(passed.id, by="ann"))
        assert (second.state, whole.state) == ("succeeded", "dead")
        assert f"2026-01-02T02:00:00Z to 2026-01-03T02:00:00Z (run {second.id})" in (whole.error or "")

    def passed_over(self, shop: Shop, handle: Any) -> Any:
        """Three days that a pause passed over, until midnight after the third."""
        publish(shop.app)
        ledger, schedules = shop.app.ledger, shop.app.operations.schedules
        schedules.pause(handle.name, by="ann")
        through, until = (round((DAY + timedelta(days=days)).timestamp() * 1e6) for days in (-0.5, 2.5))
        table = ledger.tables.schedule
        past = update(table).where(table.c.id == handle.name).values(planned_through=through, paused_until=until)
        ledger.write(lambda cursor: ledger.change(cursor, past))
        schedules.resume(handle.name, by="ann")
        [row] = shop.app.operations.runs(job=handle.name)
        assert (row.state, row.ticks) == ("skipped", 3)
        return row

    def declared(self, shop: Shop, broken: list[int], seen: set[Any] | None = None) -> Any:
        shop.fill(range(1, 31))

        def process(order: Any) -> Any:
            if order.id in broken:
                raise ValueError("it is broken")
            if seen is not None:
                seen.add((str(order.since)[:19], str(order.upto)[:19]))
            return order

        class Settle(settling(process)):  # type: ignore[misc]
            read = keyset(
                QUERY.replace("id, amount", "id, amount, :window_start AS since, :window_end AS upto"), key="id"
            )

        words = {"retries": 0, "overlap": "allow"}
        return shop.bulk(Settle if seen is not None else settling(process), cron("0 2 * * *"), **words)

    def asked_for_three_days(self, shop: Shop, handle: Any, days: int = 3) -> int:
        publish(shop.app)
        first, last = (round((DAY + timedelta(days=days)).timestamp() * 1e6) for days in (0, days - 1))
        whole = Requested(
            job=handle.name,
            type="bulk",
            origin_key=tick_key(handle.name, last),
            schedule=handle.name,
            first_due_at_us=first,
            due_at_us=last,
            ticks=days,
            window_start_us=first - 86_400_000_000,
            window_end_us=last,
        )
        return requests.enqueue(shop.app.ledger, [whole])[0].run_id


class TestBackOff:
    def test_a_part_that_failed_is_not_taken_back_before_its_time(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2, backoff="1s..1s")
        run_id = handle.enqueue().run_id
        with hand(shop) as one:
            parent = one.claim([handle.name])
            assert parent is not None
            from fencepost.bulk import conducting

            made: list[Any] = []
            careful = conducting.PartitionRuns._work

            def work(self: Any, number: int) -> None:
                if not made:  # a part fails elsewhere, while the parent is at its own
                    part = one.claim([handle.name + "/part"])
                    assert part is not None
                    made.append(part)
                    one.end(part, one.execute(part)._replace(how="failed", error="away", error_code="Away"))
                careful(self, number)

            conducting.PartitionRuns._work = work  # type: ignore[method-assign]
            try:
                one.end(parent, one.execute(parent))
            finally:
                conducting.PartitionRuns._work = careful  # type: ignore[method-assign]
        row = shop.app.operations.run(run_id)
        part = shop.app.operations.run(made[0].run_id)
        assert row.state == "succeeded"
        assert (part.state, part.failures) == ("skipped", 1)
        assert part.ended_at >= part.available_at
        assert shop.settled() == list(range(1, 41))


@pytest.mark.parametrize("place", [("sqlite", "other"), ("postgresql", "other")], ids="-".join)
def test_a_plan_that_cannot_be_made_is_made_by_the_next_attempt(shop: Shop, monkeypatch: Any) -> None:
    from fencepost.bulk import patience

    monkeypatch.setattr(patience, "TRIES", 2)
    shop.fill(range(1, 21))
    engines: list[Any] = []

    def target() -> Any:
        """A database that is away at first."""
        from sqlalchemy import create_engine

        where = "sqlite:////nowhere/at/all.db" if shop.kind == "sqlite" else shop.engine.url.set(port=1)
        engines.append(create_engine(where) if not engines else shop.engine)
        return engines[-1]

    handle = shop.bulk(settling(), target=target)
    run_id = handle.enqueue().run_id
    with hand(shop) as one:
        claimed = one.claim()
        assert claimed is not None
        outcome = one.execute(claimed)
        one.end(claimed, outcome)
        assert outcome.how == "failed"
        from fencepost.bulk import places

        places._PLACES._made.clear()
        assert one.play(run_id).state == "succeeded"
    assert shop.settled() == list(range(1, 21))


def _backfilled(shop: Shop, handle: Any, day: datetime, **wishes: Any) -> Any:
    from fencepost.app.composing import publish

    publish(shop.app)
    shop.app.operations.backfill(handle.name, day, day, by="ann", **wishes)
    newest = shop.app.operations.runs(job=handle.name, limit=1)[0]
    with hand(shop) as one:
        return one.play(newest.id)


class TestOtherParameters:
    def test_a_repetition_with_others_begins_anew_and_leaves_the_checkpoints_of_the_first(self, shop: Shop) -> None:
        """Without a window, a run and its repetitions share checkpoints; one with other parameters does other work."""
        shop.fill(range(1, 21))

        class Settle(settling(chunk=5)):  # type: ignore[misc]
            def __init__(self, region: str = "eu") -> None:
                self.region = region

        handle = shop.bulk(Settle)
        first = played(shop, handle, region="eu")
        assert shop.settled() == list(range(1, 21))
        shop.fill(range(21, 24))
        with hand(shop) as one:
            made = one.app.operations.retry(first.id, params={"region": "us"}, by="ann")
            names = {instance_name(one.app.ledger, history.run(one.app.ledger, each)) for each in (first.id, made)}
            assert names == {f"run-{first.id}", f"run-{made}"}
            with pytest.raises(InvalidParameters):
                one.app.operations.retry(first.id, params={"nowhere": 1}, by="ann")

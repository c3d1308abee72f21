"""Requests: one key, one run; the caller's transaction; cancelling, retrying, releasing, reprocessing."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from fencepost.core.runs import Requested
from fencepost.errors import ConfigurationError, DuplicateRequest, IllegalMove, NoSuchRun
from fencepost.ledger import history, journal, requests
from fencepost.ledger.history import RunFilter
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.requests import Cancelled

Opened = Callable[[str], Ledger]
WEEK_US = 7 * 86_400_000_000


def asked(job: str = "settle", **changes: Any) -> Requested:
    return Requested(job=job, type="manual", **{"params": '{"a":1}', "params_hash": "h1"} | changes)


def change(ledger: Ledger, run_id: int, **values: Any) -> None:
    """Do to a run's row what nodes do."""
    table = ledger.tables.run
    ledger.write(lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == run_id).values(values)))


def only(ledger: Ledger, request: Requested) -> int:
    [made] = requests.enqueue(ledger, [request])
    return made.run_id


class TestEnqueue:
    def test_a_request_becomes_a_run_that_may_be_claimed_now(self, ledger: Ledger) -> None:
        run = history.run(
            ledger, only(ledger, asked(requested_by="me", reason="why not", priority=5, queue="fast", sla_us=60))
        )
        assert (run.state, run.waits_for, run.priority, run.queue) == ("queued", None, 5, "fast")
        assert (run.requested_by, run.reason, run.params, run.attempts, run.token) == ("me", "why not", '{"a":1}', 0, 0)
        assert run.available_at == run.created_at
        assert run.sla_at == run.created_at + 60
        assert abs(run.created_at - ledger.now_us()) < 60_000_000

    def test_one_for_later_waits_for_its_time(self, ledger: Ledger) -> None:
        later_us = ledger.now_us() + 60_000_000
        run = history.run(ledger, only(ledger, asked(available_at_us=later_us)))
        assert (run.state, run.waits_for, run.available_at) == ("waiting", "time", later_us)

    def test_what_did_not_run_is_recorded_as_ended(self, ledger: Ledger) -> None:
        run = history.run(ledger, only(ledger, asked(state="misfired", why="too late", due_at_us=1, ticks=7)))
        assert (run.state, run.why, run.ticks) == ("misfired", "too late", 7)
        assert run.ended_at == run.created_at

    def test_ids_come_in_the_order_of_the_requests(self, ledger: Ledger) -> None:
        made = requests.enqueue(ledger, [asked(reason=f"number {number}") for number in range(20)])
        assert [history.run(ledger, each.run_id).reason for each in made] == [
            f"number {number}" for number in range(20)
        ]
        assert all(each.is_new for each in made)

    def test_the_same_key_gives_the_same_run(self, ledger: Ledger) -> None:
        first, again = (
            requests.enqueue(ledger, [asked(origin_key="request:x")]),
            requests.enqueue(ledger, [asked(origin_key="request:x")]),
        )
        assert first[0].run_id == again[0].run_id
        assert (first[0].is_new, again[0].is_new) == (True, False)

    def test_a_key_within_one_batch_counts_once_and_the_rest_goes_on(self, ledger: Ledger) -> None:
        made = requests.enqueue(ledger, [asked(origin_key="k"), asked(origin_key="k"), asked(), asked(origin_key="l")])
        assert [each.is_new for each in made] == [True, False, True, True]
        assert made[0].run_id == made[1].run_id

    @pytest.mark.parametrize("changes", [{"params_hash": "h2"}, {"job": "other", "params_hash": "of the other"}])
    def test_a_key_used_for_something_else_is_refused_and_nothing_enqueued(
        self, ledger: Ledger, changes: dict[str, str]
    ) -> None:
        run_id = only(ledger, asked(origin_key="request:x"))
        told = f"^the key 'x' was already used for run {run_id} of job 'settle'"
        with pytest.raises(DuplicateRequest, match=told) as error:
            requests.enqueue(ledger, [asked(), asked(origin_key="request:x", **changes)])
        assert error.value.run_id == run_id
        assert [run.id for run in history.runs(ledger)] == [run_id]

    def test_keys_that_differ_in_case_are_two(self, ledger: Ledger) -> None:
        made = requests.enqueue(ledger, [asked(origin_key="request:A"), asked(origin_key="request:a")])
        assert [each.is_new for each in made] == [True, True]

    def test_one_key_from_many_connections_at_once_is_one_run(self, ledger_url: str, opened: Opened) -> None:
        start, answers = threading.Barrier(4), []

        def ask(ledger: Ledger) -> None:
            for number in range(20):
                start.wait()
                answers.append((number, *requests.enqueue(ledger, [asked(origin_key=f"request:{number}")])[0]))

        threads = [threading.Thread(target=ask, args=(opened(ledger_url),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 80
        for number in range(20):
            mine = [answer[1:] for answer in answers if answer[0] == number]
            assert len({run_id for run_id, _ in mine}) == 1
            assert sum(is_new for _, is_new in mine) == 1

    def test_zero_characters_do_not_break_it(self, ledger: Ledger) -> None:
        assert history.run(ledger, only(ledger, asked(reason="a\x00b"))).reason == "a\ufffdb"


@contextmanager
def callers_connection(ledger: Ledger, manner: str) -> Iterator[Any]:
    """Yield a connection as an application would have it, and close it."""
    engine = sa.create_engine(ledger.url.sqlalchemy(), poolclass=sa.NullPool)
    if manner == "sqlalchemy":
        with engine.connect() as connection:
            yield connection
    elif manner == "session":
        with Session(engine) as session:
            yield session
    else:
        with closing(_driver(ledger)) as connection:
            yield connection


def _driver(ledger: Ledger) -> Any:
    store = ledger.url.store
    if ledger.dialect.name == "sqlite":
        connection = sqlite3.connect(ledger.url.path)
        connection.row_factory = sqlite3.Row
        return connection
    if ledger.dialect.name == "mysql":
        return pymysql.connect(
            host=store.hosts[0][0],
            port=store.hosts[0][1] or 0,
            user="root",
            database="fencepost",
            cursorclass=pymysql.cursors.DictCursor,
        )
    return psycopg.connect(str(store), row_factory=dict_row)


class TestTheCallersTransaction:
    @pytest.mark.parametrize("manner", ["driver", "sqlalchemy", "session"])
    def test_what_is_committed_is_there_and_what_is_rolled_back_is_not(self, ledger: Ledger, manner: str) -> None:
        with callers_connection(ledger, manner) as connection:
            [lost] = requests.enqueue(ledger, [asked(origin_key="request:x")], tx=connection)
            assert lost.is_new
            connection.rollback()
        assert history.runs(ledger) == []
        with callers_connection(ledger, manner) as connection:
            made = requests.enqueue(
                ledger, [asked(origin_key="request:x"), asked(origin_key="request:x")], tx=connection
            )
            connection.commit()
        assert [run.id for run in history.runs(ledger)] == [made[0].run_id]
        assert [each.is_new for each in made] == [True, False]

    def test_nothing_is_seen_before_the_caller_commits(self, ledger: Ledger) -> None:
        with callers_connection(ledger, "driver") as connection:
            requests.enqueue(ledger, [asked()], tx=connection)
            assert history.runs(ledger) == []
            connection.commit()
        assert len(history.runs(ledger)) == 1

    def test_a_connection_that_commits_at_once_is_refused(self, ledger: Ledger) -> None:
        with (
            closing(ledger.dialect.dial()) as connection,
            pytest.raises(ConfigurationError, match="autocommit mode and has no transaction open"),
        ):
            requests.enqueue(ledger, [asked()], tx=connection)

    def test_an_explicit_transaction_on_a_connection_in_autocommit_mode_is_fine(self, ledger: Ledger) -> None:
        with closing(ledger.dialect.dial()) as connection:
            connection.cursor().execute("BEGIN")
            requests.enqueue(ledger, [asked()], tx=connection)
            connection.cursor().execute("ROLLBACK")
        assert history.runs(ledger) == []

    @pytest.mark.parametrize("wrong", ["an engine", "a string", "another driver's"])
    def test_what_is_no_connection_to_this_database_is_refused_in_a_sentence(self, ledger: Ledger, wrong: str) -> None:
        engine = sa.create_engine(ledger.url.sqlalchemy(), poolclass=sa.NullPool)
        other = (
            sqlite3.connect(":memory:") if ledger.dialect.name != "sqlite" else pymysql.Connection(defer_connect=True)
        )
        tx = {"an engine": engine, "a string": "postgresql://…", "another driver's": other}[wrong]
        with pytest.raises(ConfigurationError, match="tx="):
            requests.enqueue(ledger, [asked()], tx=tx)
        if isinstance(other, sqlite3.Connection):
            other.close()

    def test_a_cursor_is_no_connection(self, ledger: Ledger) -> None:
        with (
            callers_connection(ledger, "driver") as connection,
            closing(connection.cursor()) as cursor,
            pytest.raises(ConfigurationError, match="it must be a connection to the same database"),
        ):
            requests.enqueue(ledger, [asked()], tx=cursor)

    def test_another_database_is_named_as_such(self, ledger: Ledger, opened: Opened) -> None:
        elsewhere = opened(re.sub(r"\?prefix=.*|$", "?prefix=elsewhere_", str(ledger.url), count=1))
        with callers_connection(ledger, "driver") as connection:
            with pytest.raises(ConfigurationError, match="a database without the tables of the ledger"):
                requests.enqueue(elsewhere, [asked()], tx=connection)
            connection.rollback()


class TestCancel:
    @pytest.mark.parametrize("changes", [{}, {"state": "waiting", "waits_for": "person"}])
    def test_what_has_not_started_is_cancelled_at_once(self, ledger: Ledger, changes: dict[str, str]) -> None:
        run_id = only(ledger, asked())
        if changes:
            change(ledger, run_id, **changes)
        assert requests.cancel(ledger, run_id, by="me", reason="wrong month") is Cancelled.NOW
        run = history.run(ledger, run_id)
        assert (run.state, run.waits_for, run.cancel_by, run.why) == ("cancelled", None, "me", "wrong month")
        assert run.ended_at is not None
        [entry] = journal.entries(ledger)
        assert (entry.what, entry.run_id, entry.by, entry.reason) == ("run cancelled", run_id, "me", "wrong month")

    def test_what_runs_is_asked_to_stop_once(self, ledger: Ledger) -> None:
        run_id = only(ledger, asked())
        change(ledger, run_id, state="running", token=5)
        assert requests.cancel(ledger, run_id, by="me") is Cancelled.REQUESTED
        first = history.run(ledger, run_id).cancel_requested_at
        assert requests.cancel(ledger, run_id, by="you") is Cancelled.REQUESTED
        run = history.run(ledger, run_id)
        assert (run.state, run.cancel_requested_at, run.cancel_by) == ("running", first, "me")
        assert [entry.what for entry in journal.entries(ledger)] == ["cancel requested"]

    def test_what_has_ended_stays_as_it_is(self, ledger: Ledger) -> None:
        run_id = only(ledger, asked())
        change(ledger, run_id, state="succeeded", ended_at=1)
        assert requests.cancel(ledger, run_id) is Cancelled.TOO_LATE
        assert history.run(ledger, run_id).state == "succeeded"
        assert journal.entries(ledger) == []

    def test_the_next_in_line_for_its_key_does_not_wait_for_ever(self, ledger: Ledger) -> None:
        promoted, waiting = (only(ledger, asked(exclusive_key="k")) for _ in range(2))
        change(ledger, waiting, state="waiting", waits_for="key")
        requests.cancel(ledger, promoted)
        assert history.run(ledger, waiting).state == "queued"

    def test_a_run_that_never_was_is_named(self, ledger: Ledger) -> None:
        with pytest.raises(NoSuchRun, match="there is no run 4711"):
            requests.cancel(ledger, 4711)


class TestRetry:
    def test_the_new_run_is_the_old_one_again(self, ledger: Ledger) -> None:
        request = asked(
            origin_key="tick:s:9",
            schedule="s",
            due_at_us=9,
            first_due_at_us=7,
            ticks=3,
            window_start_us=6,
            window_end_us=9,
        )
        old_id = only(ledger, request)
        change(ledger, old_id, state="dead", ended_at=1, attempts=3, failures=3)
        new = history.run(ledger, requests.retry(ledger, old_id, by="me", reason="fixed"))
        assert (new.retry_of, new.state, new.origin_key, new.attempts) == (old_id, "queued", None, 0)
        assert (new.params, new.window_start, new.window_end, new.due_at, new.ticks) == ('{"a":1}', 6, 9, 9, 3)
        assert (new.requested_by, new.reason) == ("me", "fixed")
        assert history.run(ledger, old_id).state == "dead"
        [entry] = journal.entries(ledger)
        assert (entry.what, entry.run_id) == ("run retried", new.id)

    @pytest.mark.parametrize("state", ["queued", "running", "waiting"])
    def test_what_has_not_ended_cannot_be_retried(self, ledger: Ledger, state: str) -> None:
        run_id = only(ledger, asked())
        change(ledger, run_id, state=state)
        with pytest.raises(IllegalMove):
            requests.retry(ledger, run_id)

    def test_reprocessing_goes_on_from_an_id_and_repeats_each_once(self, ledger: Ledger) -> None:
        old = [made.run_id for made in requests.enqueue(ledger, [asked() for _ in range(5)] + [asked("other")])]
        for run_id in old:
            change(ledger, run_id, state="dead", ended_at=1)
        change(ledger, old[1], state="succeeded")
        first = requests.reprocess(ledger, RunFilter(job="settle"), limit=2, by="me")
        assert [each.old_id for each in first] == [old[0], old[2]]
        rest = requests.reprocess(ledger, RunFilter(job="settle"), after_id=first[-1].old_id, limit=10)
        assert [each.old_id for each in rest] == [old[3], old[4]]
        assert requests.reprocess(ledger, RunFilter(job="settle"), after_id=rest[-1].old_id) == []
        again = requests.reprocess(ledger, RunFilter(job="settle"), limit=10)
        assert [each.run_id for each in again] == [each.run_id for each in first + rest]
        assert not any(each.is_new for each in again)
        assert history.counts(ledger) == {"dead": 5, "queued": 4, "succeeded": 1}


class TestRelease:
    def test_a_held_run_goes_on(self, ledger: Ledger) -> None:
        run_id = only(ledger, asked())
        change(ledger, run_id, state="waiting", waits_for="person", why="its node died", available_at=1)
        requests.release_held(ledger, run_id, by="me")
        run = history.run(ledger, run_id)
        assert (run.state, run.waits_for, run.why) == ("queued", None, None)
        assert run.available_at > 1
        assert [entry.what for entry in journal.entries(ledger)] == ["run released"]

    def test_what_waits_for_something_else_is_not_released(self, ledger: Ledger) -> None:
        run_id = only(ledger, asked(available_at_us=ledger.now_us() + WEEK_US))
        with pytest.raises(IllegalMove):
            requests.release_held(ledger, run_id)

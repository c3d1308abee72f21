"""History, jobs, nodes, the journal and what is pruned of them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from fencepost.core.identity import request_key, tick_key
from fencepost.core.runs import Requested
from fencepost.errors import InvalidSetting, NoSuchJob, NoSuchRun
from fencepost.ledger import history, jobs, journal, nodes, requests
from fencepost.ledger.history import RunFilter
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.journal import About
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.pruning import DAY_S, Retention, prune
from fencepost.ledger.roots import root_of

DAY_US = round(DAY_S * 1_000_000)
HOUR_US = DAY_US // 24


def enqueued(ledger: Ledger, count: int, **changes: Any) -> list[int]:
    request = Requested(**{"job": "settle", "type": "manual"} | changes)
    return [made.run_id for made in requests.enqueue(ledger, [request] * count)]


def change(ledger: Ledger, run_id: int, **values: Any) -> None:
    table = ledger.tables.run
    ledger.write(lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == run_id).values(values)))


def node(number: int, **changes: Any) -> NewNode:
    values = {"name": f"host:{number}", "grant_id": "g", "token": 7, "generation": 1, "version": "0", "slots": 4}
    return NewNode(**{"id": f"{number:032}", **values, "queues": ("default",), "jobs": ("settle",)} | changes)


class TestPages:
    def test_pages_neither_overlap_nor_skip_while_runs_come_in(self, ledger: Ledger) -> None:
        made, seen, before = enqueued(ledger, 25), [], None
        while page := history.runs(ledger, RunFilter(job="settle"), before_id=before, limit=10):
            seen += [run.id for run in page]
            before = page[-1].id
            enqueued(ledger, 3)
        assert seen == sorted(made, reverse=True)

    def test_newer_runs_are_followed_from_an_id_on(self, ledger: Ledger) -> None:
        first = enqueued(ledger, 5)
        assert [run.id for run in history.runs(ledger, after_id=first[1], limit=2)] == first[2:4]
        later = enqueued(ledger, 2)
        assert [run.id for run in history.runs(ledger, after_id=first[-1])] == later

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (RunFilter(job="other"), [1]),
            (RunFilter.failed(), [2]),
            (RunFilter.failed("other"), []),
            (RunFilter(states=("queued", "dead")), [0, 1, 2]),
            (RunFilter.held(), [3]),
            (RunFilter(states=("it's 100 % new", "dead")), [2]),
            (RunFilter(requested_by="me"), [4]),
            (RunFilter(schedule="s"), [5]),
            (RunFilter(queue="slow"), [6]),
            (RunFilter(since_us=2 * HOUR_US, until_us=4 * HOUR_US), [1, 2]),
            (RunFilter(since_us=7 * HOUR_US), [6]),
            (RunFilter(since_us=8 * HOUR_US), []),
            (RunFilter(until_us=2 * HOUR_US), [0]),
            (RunFilter(states=("queued",), since_us=2 * HOUR_US), [1]),
        ],
    )
    def test_filters_find_what_they_say(self, ledger: Ledger, wanted: RunFilter, found: list[int]) -> None:
        ids = [
            *enqueued(ledger, 1),
            *enqueued(ledger, 1, job="other"),
            *enqueued(ledger, 1),
            *enqueued(ledger, 1),
            *enqueued(ledger, 1, requested_by="me", state="skipped"),
            *enqueued(ledger, 1, schedule="s", state="skipped"),
            *enqueued(ledger, 1, queue="slow", state="skipped"),
        ]
        for number, run_id in enumerate(ids):
            change(ledger, run_id, created_at=(number + 1) * HOUR_US)
        change(ledger, ids[2], state="dead")
        change(ledger, ids[3], state="waiting", waits_for="person")
        assert [run.id for run in history.runs(ledger, wanted, after_id=0)] == [ids[number] for number in found]

    def test_a_page_of_several_states_is_in_the_order_of_ids(self, ledger: Ledger) -> None:
        ids = enqueued(ledger, 12)
        for number, run_id in enumerate(ids):
            change(ledger, run_id, state=("queued", "dead", "running", "skipped")[number % 4])
        wanted = RunFilter(states=("running", "queued", "dead"))
        of_those = [run_id for number, run_id in enumerate(ids) if number % 4 != 3]
        assert [run.id for run in history.runs(ledger, wanted, after_id=0, limit=5)] == of_those[:5]
        assert [run.id for run in history.runs(ledger, wanted, limit=5)] == of_those[:-6:-1]
        assert history.counts(ledger, wanted) == {"dead": 3, "queued": 3, "running": 3}

    def test_runs_are_counted_by_state(self, ledger: Ledger) -> None:
        first, _ = enqueued(ledger, 2)
        change(ledger, first, state="dead")
        enqueued(ledger, 1, job="other")
        assert history.counts(ledger) == {"dead": 1, "queued": 2}
        assert history.counts(ledger, RunFilter(job="other")) == {"queued": 1}

    def test_a_run_that_is_not_there_is_named(self, ledger: Ledger) -> None:
        with pytest.raises(NoSuchRun, match="there is no run 4711"):
            history.run(ledger, 4711)


class TestWhy:
    def test_a_due_time_is_answered_by_the_run_that_covers_it(self, ledger: Ledger) -> None:
        [alone] = enqueued(ledger, 1, schedule="s", due_at_us=10, first_due_at_us=10)
        [stretch] = enqueued(ledger, 1, schedule="s", due_at_us=50, first_due_at_us=20, ticks=4, state="misfired")
        enqueued(ledger, 1, schedule="t", due_at_us=30, first_due_at_us=30)
        assert [run.id for run in history.why(ledger, "s", 10)] == [alone]
        assert [run.id for run in history.why(ledger, "s", 30)] == [stretch]
        assert [run.id for run in history.why(ledger, "s", 50)] == [stretch]
        assert history.why(ledger, "s", 15) == []
        assert history.why(ledger, "s", 51) == []

    @pytest.mark.parametrize("state", ["skipped", "misfired", "succeeded"])
    def test_a_stretch_is_found_behind_however_many_back_fills_within_it(self, ledger: Ledger, state: str) -> None:
        """Its row is due at its end: twenty runs that were due before that hid it, as if there were no record."""
        key = tick_key("s", 90)
        [whole] = enqueued(
            ledger, 1, schedule="s", due_at_us=90, first_due_at_us=10, ticks=9, state=state, origin_key=key
        )
        for due_us in (60, 70, 80) * 7:
            enqueued(ledger, 1, schedule="s", due_at_us=due_us)
        for names in (None, ["settle"]):
            assert [run.id for run in history.why(ledger, "s", 10, jobs=names)] == [whole]
            assert history.why(ledger, "s", 60, jobs=names)[0].id == whole
            assert history.why(ledger, "s", 9, jobs=names) == []
        assert history.why(ledger, "s", 10, jobs=["other"]) == []

    def test_the_ticks_own_run_comes_before_those_that_repeat_it(self, ledger: Ledger) -> None:
        [first] = enqueued(ledger, 1, schedule="s", due_at_us=10, first_due_at_us=10)
        change(ledger, first, state="dead")
        again = requests.retry(ledger, first)
        assert [run.id for run in history.why(ledger, "s", 10)] == [first, again]


class TestJobs:
    def job(self, name: str = "settle", policy: str = '{"type":"bulk"}') -> NewJob:
        return NewJob(name, "bulk", policy, "{}", "Settles.")

    def test_jobs_are_registered_and_found(self, ledger: Ledger) -> None:
        assert jobs.register(ledger, [self.job("b"), self.job("a")], generation=3) == ()
        assert [(row.name, row.generation, row.doc) for row in jobs.jobs(ledger)] == [
            ("a", 3, "Settles."),
            ("b", 3, "Settles."),
        ]
        assert jobs.job(ledger, "a").policy == '{"type":"bulk"}'
        with pytest.raises(NoSuchJob, match="no job 'A' in the ledger"):
            jobs.job(ledger, "A")

    def test_an_older_deploy_never_overwrites_a_newer_one(self, ledger: Ledger) -> None:
        jobs.register(ledger, [self.job(policy="new")], generation=2)
        assert jobs.register(ledger, [self.job(policy="old"), self.job("x")], generation=1) == ("settle",)
        assert {row.name: (row.policy, row.generation) for row in jobs.jobs(ledger)}["settle"] == ("new", 2)
        jobs.register(ledger, [self.job(policy="newer")], generation=3)
        assert jobs.job(ledger, "settle").policy == "newer"


class TestNodes:
    def test_a_node_joins_lives_and_leaves(self, ledger: Ledger) -> None:
        nodes.join(ledger, node(1))
        nodes.join(ledger, node(1, name="somebody else"))
        [row] = nodes.living_nodes(ledger)
        assert (row.name, row.grant_id, row.token, row.queues, row.jobs) == (
            "host:1",
            "g",
            7,
            ("default",),
            ("settle",),
        )
        assert row.is_living
        nodes.note_pause(ledger, row.id, 500)
        nodes.note_pause(ledger, row.id, 300)
        assert nodes.living_nodes(ledger)[0].longest_pause_us == 500
        assert nodes.leave(ledger, row.id)
        assert not nodes.leave(ledger, row.id)
        assert nodes.living_nodes(ledger) == []
        assert not nodes.nodes(ledger)[0].is_living

    def test_one_of_many_notes_a_death_and_it_is_on_record(self, ledger: Ledger) -> None:
        nodes.join(ledger, node(1))
        nodes.join(ledger, node(2))
        said = [
            ledger.write(lambda cursor: nodes.died(ledger, cursor, node(1).id, "its session expired")) for _ in range(2)
        ]
        assert said == [True, False]
        assert [row.id for row in nodes.living_nodes(ledger)] == [node(2).id]
        assert [row.id for row in nodes.nodes(ledger)] == [node(2).id, node(1).id]
        assert [(entry.what, entry.node) for entry in journal.entries(ledger)] == [("node died", node(1).id)]


class TestJournal:
    def test_entries_are_read_by_keyset_and_by_what_they_are_about(self, ledger: Ledger) -> None:
        for number in range(5):
            journal.journal(ledger, what="clock leapt", job=f"j{number % 2}", reason=f"r{number}", detail={"n": number})
        newest = journal.entries(ledger, limit=2)
        assert [entry.reason for entry in newest] == ["r4", "r3"]
        assert [entry.reason for entry in journal.entries(ledger, before_id=newest[-1].id)] == ["r2", "r1", "r0"]
        assert [entry.reason for entry in journal.entries(ledger, after_id=newest[-1].id)] == ["r4"]
        assert [entry.detail for entry in journal.entries(ledger, about=About(job="j1"))] == ['{"n": 3}', '{"n": 1}']
        assert journal.entries(ledger, what="nothing") == []


class TestPruning:
    def aged(self, ledger: Ledger, days: float, state: str, **changes: Any) -> int:
        [run_id] = enqueued(ledger, 1, **changes)
        at = ledger.now_us() - round(days * DAY_US)
        ended = None if state in ("queued", "running", "waiting") else at
        change(ledger, run_id, state=state, created_at=at, ended_at=ended)
        return run_id

    def prune(self, ledger: Ledger, retention: Retention, limit: int = 500) -> int:
        removed = 0
        while count := prune(ledger, None, retention, limit=limit):
            removed += count
        return removed

    def test_each_outcome_is_kept_as_long_as_it_says(self, ledger: Ledger) -> None:
        states = ("succeeded", "dead", "cancelled", "skipped", "misfired")
        old = {state: self.aged(ledger, 40, state) for state in states}
        young = [self.aged(ledger, 20, state) for state in states]
        assert self.prune(ledger, Retention()) == 4
        assert sorted(run.id for run in history.runs(ledger)) == sorted([old["dead"], *young])

    def test_the_living_are_never_removed(self, ledger: Ledger) -> None:
        alive = [self.aged(ledger, 4000, state) for state in ("queued", "running", "waiting")]
        self.aged(ledger, 4000, "dead")
        assert self.prune(ledger, Retention.of(succeeded="1s", dead="1s")) == 1
        assert sorted(run.id for run in history.runs(ledger)) == alive

    def test_attempts_go_with_their_run_and_no_others(self, ledger: Ledger) -> None:
        gone, stays = self.aged(ledger, 40, "succeeded"), self.aged(ledger, 1, "succeeded")
        table = ledger.tables.attempt
        for run_id in (gone, stays):
            row = {"run_id": run_id, "number": 1, "token": 1, "ended_at": 1, "outcome": "succeeded"}
            ledger.write(lambda cursor, row=row: ledger.change(cursor, sa.insert(table).values(row)))
        self.prune(ledger, Retention())
        assert history.attempts(ledger, gone) == []
        assert [row.number for row in history.attempts(ledger, stays)] == [1]

    def test_many_are_removed_in_batches(self, ledger: Ledger) -> None:
        ids = enqueued(ledger, 57)
        at = ledger.now_us() - 40 * DAY_US
        table = ledger.tables.run
        old = sa.update(table).where(table.c.id.in_(ids[:50])).values(state="succeeded", created_at=at, ended_at=at)
        ledger.write(lambda cursor: ledger.change(cursor, old))
        assert prune(ledger, None, Retention(), limit=20) == 20
        assert self.prune(ledger, Retention(), limit=20) == 30
        assert sorted(run.id for run in history.runs(ledger)) == ids[50:]

    def test_what_is_kept_for_ever_is(self, ledger: Ledger) -> None:
        self.aged(ledger, 4000, "succeeded")
        assert self.prune(ledger, Retention.of(succeeded="forever", dead=None)) == 0

    def test_a_repetition_is_kept_as_long_as_what_it_repeats(self, ledger: Ledger) -> None:
        chain, at = [self.aged(ledger, 41, "dead")], ledger.now_us() - 40 * DAY_US
        for state in ("cancelled", "succeeded"):
            chain.append(requests.retry(ledger, chain[-1]))
            change(ledger, chain[-1], state=state, created_at=at, ended_at=at)
        assert self.prune(ledger, Retention()) == 0
        assert not any(each.is_new for each in requests.reprocess(ledger, RunFilter()))
        assert self.prune(ledger, Retention.of(dead="30d")) == 3

    def test_a_success_is_kept_as_long_as_any_repetition_before_it(self, ledger: Ledger) -> None:
        first = self.aged(ledger, 200, "dead")
        given_up = self.repeated(ledger, first, 170, "dead")
        succeeded = self.repeated(ledger, first, 169, "succeeded")
        assert self.prune(ledger, Retention()) == 1
        found = requests.reprocess(ledger, RunFilter())
        assert [(each.old_id, each.run_id, each.is_new) for each in found] == [(given_up, succeeded, False)]
        assert self.prune(ledger, Retention.of(dead="30d")) == 2

    def test_a_success_is_found_when_what_it_repeated_is_gone(self, ledger: Ledger) -> None:
        first = self.aged(ledger, 200, "dead")
        one, other = (self.repeated(ledger, first, 199, "dead") for _ in "ab")
        given_up = self.repeated(ledger, one, 170, "dead")
        succeeded = self.repeated(ledger, other, 169, "succeeded")
        assert self.prune(ledger, Retention()) == 3
        assert [(each.old_id, each.run_id) for each in requests.reprocess(ledger, RunFilter())] == [
            (given_up, succeeded)
        ]

    def test_what_a_repetition_goes_back_to_is_known_when_all_before_it_is_gone(self, ledger: Ledger) -> None:
        first = self.aged(ledger, 200, "dead")
        last = self.repeated(ledger, self.repeated(ledger, first, 199, "cancelled"), 170, "dead")
        change(ledger, last - 1, root=None)  # as older versions make them
        change(ledger, last, root=None)
        before = ledger.read(lambda cursor: root_of(ledger, cursor, history.run(ledger, last)))
        assert self.prune(ledger, Retention(), limit=1) == 2
        assert ledger.read(lambda cursor: root_of(ledger, cursor, history.run(ledger, last))) == before

    def repeated(self, ledger: Ledger, run_id: int, days: float, state: str) -> int:
        """Repeat a run by hand, and let that have ended so many days ago."""
        made, at = requests.retry(ledger, run_id), ledger.now_us() - round(days * DAY_US)
        change(ledger, made, state=state, created_at=at, ended_at=at)
        return made

    def test_a_request_with_a_key_is_recognized_for_as_long_as_that_says_and_others_are_not_kept(
        self, ledger: Ledger
    ) -> None:
        keyed = self.aged(ledger, 20, "succeeded", origin_key=request_key("pay:7"))
        others = [self.aged(ledger, 20, "succeeded", origin_key=key) for key in (None, "tick:1:settle")]
        assert self.prune(ledger, Retention.of(succeeded="7d")) == len(others)
        assert enqueued(ledger, 1, origin_key=request_key("pay:7")) == [keyed]
        assert self.prune(ledger, Retention.of(succeeded="7d", requests="forever")) == 0
        assert self.prune(ledger, Retention.of(succeeded="7d", requests="14d")) == 1
        assert enqueued(ledger, 1, origin_key=request_key("pay:7")) != [keyed]

    def test_the_journal_and_ended_nodes_are_pruned_too(self, ledger: Ledger) -> None:
        for number in (1, 2, 3):
            nodes.join(ledger, node(number))
            journal.journal(ledger, what="x", node=str(number))
        nodes.leave(ledger, node(1).id)
        nodes.leave(ledger, node(2).id)
        [run_id] = enqueued(ledger, 1)
        change(ledger, run_id, state="running", node=node(2).id)
        table, old = ledger.tables, ledger.now_us() - 400 * DAY_US
        ledger.write(
            lambda cursor: ledger.change(
                cursor, sa.update(table.node).values(left_at=old).where(table.node.c.left_at > 0)
            )
        )
        first = journal.entries(ledger)[-1].id
        ledger.write(
            lambda cursor: ledger.change(
                cursor, sa.update(table.journal).values(at=old).where(table.journal.c.id == first)
            )
        )
        assert self.prune(ledger, Retention()) == 2
        assert sorted(row.id for row in nodes.nodes(ledger)) == [node(2).id, node(3).id]
        assert len(journal.entries(ledger)) == 2

    def test_keys_that_nobody_has_had_for_long_are_forgotten(self, ledger: Ledger) -> None:
        old, table = ledger.now_us() - 40 * DAY_US, ledger.tables.exclusive
        rows = [("free", None, old), ("held", 5, old), ("young", None, ledger.now_us()), ("new", None, 0)]
        for row in rows:
            ledger.write(lambda cursor, row=row: ledger.change(cursor, sa.insert(table).values(row)))
        assert self.prune(ledger, Retention()) == 1
        left = ledger.read(lambda cursor: ledger.rows(cursor, sa.select(table.c.key).order_by(table.c.key)))
        assert [row[0] for row in left] == ["held", "new", "young"]

    def test_an_unknown_outcome_is_refused(self) -> None:
        with pytest.raises(InvalidSetting, match="retention knows no 'succeded'"):
            Retention.of(succeded="1d")

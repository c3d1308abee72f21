"""What is under way is found: by those who ask at once, in whatever transaction, and at no cost of what has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fencepost.errors import AlreadyRequested
from fencepost.ledger import history, requests
from fencepost.ledger.duplicates import live_twin
from fencepost.ledger.history import RunFilter
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.recording import Enqueued
from tests.ledger.scene import Scene
from tests.ledger.test_plans import LITTLE, MUCH, analyze, fill, never_reads_a_whole_table
from tests.ledger.test_requests import asked, callers_connection, change, only
from tests.ledger.work_meter import OnPostgres, metered

Opened = Callable[[str], Ledger]
NEWCOMER = NewJob("settle", "manual", "{}", "{}")


def unique(ledger: Ledger, request_hash: str = "h1", **where: Any) -> Enqueued:
    return requests.enqueue_unique(ledger, asked(params_hash=request_hash), newcomer=NEWCOMER, **where)


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """Make all calls at the same moment, each on a thread of its own; return what they gave or raised."""
    start, answers = threading.Barrier(len(calls)), list[object]()

    def make(call: Callable[[], object]) -> None:
        start.wait()
        try:
            answers.append(call())
        except AlreadyRequested as refused:
            answers.append(refused)

    threads = [threading.Thread(target=make, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class TestUnique:
    def test_what_is_under_way_stands_for_the_second_request(self, ledger: Ledger) -> None:
        first = unique(ledger)
        assert unique(ledger) == (first.run_id, False)
        assert unique(ledger, "h2").is_new

    @pytest.mark.parametrize(
        "values",
        [
            {"state": "running"},
            *({"state": "waiting", "waits_for": what} for what in ("time", "key", "person")),
        ],
        ids=str,
    )
    def test_it_is_under_way_in_every_state_but_the_final_ones(self, ledger: Ledger, values: dict[str, str]) -> None:
        first = unique(ledger)
        change(ledger, first.run_id, **values)
        assert unique(ledger) == (first.run_id, False)

    @pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled", "skipped"])
    def test_what_has_ended_is_run_again(self, ledger: Ledger, state: str) -> None:
        change(ledger, unique(ledger).run_id, state=state)
        assert unique(ledger).is_new

    def test_a_run_that_was_asked_for_without_looking_is_found(self, ledger: Ledger) -> None:
        assert unique(ledger).run_id == only(ledger, asked()) - 1
        assert not unique(ledger).is_new

    def test_of_those_who_ask_at_once_one_makes_the_run(self, ledger: Ledger, opened: Opened) -> None:
        ledgers = [opened(ledger.url.text) for _ in range(4)]
        for number in range(15):
            answers = at_once([lambda each=each: unique(each, f"round {number}") for each in ledgers])  # type: ignore[misc]  # noqa: B023
            assert sorted(answer.is_new for answer in answers if isinstance(answer, Enqueued)) == [False] * 3 + [True]
        assert len(history.runs(ledger, limit=100)) == 15


class TestInTheCallersTransaction:
    def test_what_the_caller_asked_for_before_is_found(self, ledger: Ledger) -> None:
        with callers_connection(ledger, "driver") as connection:
            first = unique(ledger, tx=connection)
            assert unique(ledger, tx=connection) == (first.run_id, False)
            connection.rollback()
        assert history.runs(ledger) == []

    def test_what_others_committed_after_it_began_is_found(self, ledger: Ledger) -> None:
        if ledger.dialect.has_one_writer:
            pytest.skip("whoever writes here has read what is newest, or is refused")
        unique(ledger, "other")  # so that the job is on record
        with callers_connection(ledger, "sqlalchemy") as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            connection.exec_driver_sql(f"SELECT count(*) FROM {ledger.tables.name('run')}").all()
            first = unique(ledger)
            assert unique(ledger, tx=connection) == (first.run_id, False)

    def test_others_wait_until_it_is_decided(self, ledger: Ledger, opened: Opened) -> None:
        if ledger.dialect.has_one_writer:
            pytest.skip("there everybody waits for the writer")
        unique(ledger, "other")
        other, answers = opened(ledger.url.text), list[Enqueued]()
        with callers_connection(ledger, "driver") as connection:
            first = unique(ledger, tx=connection)
            thread = threading.Thread(target=lambda: answers.append(unique(other)))
            thread.start()
            thread.join(0.2)
            assert answers == []
            connection.commit()
        thread.join()
        assert answers == [(first.run_id, False)]


class TestRetry:
    def dead(self, ledger: Ledger) -> int:
        run_id = only(ledger, asked())
        change(ledger, run_id, state="dead")
        return run_id

    def test_a_run_whose_repetition_is_under_way_is_not_repeated_unless_somebody_insists(self, ledger: Ledger) -> None:
        old_id = self.dead(ledger)
        new_id = requests.retry(ledger, old_id, by="ann")
        with pytest.raises(AlreadyRequested, match=f"run {new_id} of job 'settle' repeats run {old_id} already"):
            requests.retry(ledger, old_id, by="bob")
        assert requests.retry(ledger, old_id, by="bob", again=True) > new_id

    def test_when_the_repetition_has_ended_it_is_repeated_again(self, ledger: Ledger) -> None:
        old_id = self.dead(ledger)
        change(ledger, requests.retry(ledger, old_id), state="dead")
        assert history.run(ledger, requests.retry(ledger, old_id)).retry_of == old_id

    def test_other_runs_with_the_same_parameters_do_not_hinder_it(self, ledger: Ledger) -> None:
        old_id = self.dead(ledger)
        only(ledger, asked())
        assert history.run(ledger, requests.retry(ledger, old_id)).retry_of == old_id

    def test_pressed_by_several_at_once_it_makes_one_run(self, ledger: Ledger, opened: Opened) -> None:
        ledgers = [opened(ledger.url.text) for _ in range(3)]
        for _ in range(10):
            old_id = self.dead(ledger)
            answers = at_once([lambda each=each: requests.retry(each, old_id) for each in ledgers])  # type: ignore[misc]  # noqa: B023
            made = [answer for answer in answers if isinstance(answer, int)]
            assert [each.id for each in history.runs(ledger, RunFilter(retry_of=old_id))] == made
            assert {answer.run_id for answer in answers if isinstance(answer, AlreadyRequested)} == set(made)

    def test_reprocessing_and_a_retry_by_hand_make_one_run_of_it(self, ledger: Ledger, opened: Opened) -> None:
        other = opened(ledger.url.text)
        for _ in range(10):
            old_id = self.dead(ledger)
            by_hand = partial(requests.retry, ledger, old_id)
            at_once([by_hand, partial(requests.reprocess, other, RunFilter(job="settle"), after_id=old_id - 1)])
            [repetition] = history.runs(ledger, RunFilter(retry_of=old_id))
            change(ledger, repetition.id, state="succeeded")
            change(ledger, old_id, state="succeeded")  # so that it is not reprocessed in the next round

    def test_reprocessing_points_to_the_repetition_under_way(self, ledger: Ledger) -> None:
        first, second = self.dead(ledger), self.dead(ledger)
        by_hand = requests.retry(ledger, first)
        found = requests.reprocess(ledger, RunFilter(job="settle"))
        assert found[0] == (first, by_hand, False)
        assert (found[1].old_id, found[1].is_new) == (second, True)

    def test_reprocessing_leaves_out_what_has_succeeded_at_whatever_depth(self, ledger: Ledger) -> None:
        once, twice, beside = self.dead(ledger), self.dead(ledger), self.dead(ledger)
        first = self.repeated(ledger, once, "succeeded")
        second = self.repeated(ledger, self.repeated(ledger, twice, "cancelled"), "succeeded")
        self.repeated(ledger, beside, "dead")
        third = self.repeated(ledger, beside, "succeeded")
        found = requests.reprocess(ledger, RunFilter(job="settle"))
        assert [(each.run_id, each.is_new) for each in found] == [
            (run_id, False) for run_id in (first, second, third, third)
        ]

    def test_of_several_that_were_given_up_it_repeats_the_last(self, ledger: Ledger) -> None:
        first = self.dead(ledger)
        last = self.repeated(ledger, self.repeated(ledger, first, "dead"), "dead")
        found = requests.reprocess(ledger, RunFilter(job="settle"))
        assert [each.old_id for each in found if each.is_new] == [last]

    def test_what_was_called_off_and_what_died_after_a_success_is_repeated(self, ledger: Ledger) -> None:
        called_off = self.dead(ledger)
        self.repeated(ledger, called_off, "cancelled")
        succeeded = self.dead(ledger)
        change(ledger, succeeded, state="succeeded")
        on_purpose = self.repeated(ledger, succeeded, "dead")
        found = requests.reprocess(ledger, RunFilter(job="settle"))
        assert [each.old_id for each in found if each.is_new] == [called_off, on_purpose]

    def repeated(self, ledger: Ledger, run_id: int, state: str) -> int:
        """Repeat a run by hand, and let that end."""
        made = requests.retry(ledger, run_id)
        change(ledger, made, state=state, ended_at=1)
        return made


def test_looking_costs_no_more_where_much_has_ended(ledger: Ledger) -> None:
    scene = Scene(ledger)
    scene.add(*[asked(params_hash=str(number)) for number in range(20)])

    def look() -> None:
        assert scene.connection.read(lambda cursor: live_twin(ledger, cursor, asked(params_hash="7"))) is not None

    works = []
    for count in (LITTLE, MUCH):
        fill(scene, count)
        analyze(scene)
        with metered(scene.connection) as meter:
            works.append([meter.work(look) for _ in range(2)][-1])
            if isinstance(meter, OnPostgres):
                never_reads_a_whole_table("live_twin", meter)
    scene.close()
    assert works[1] <= works[0] * 1.5 + 40

"""Claim, finish, reap, plan, cancel and fenced effects of two and three nodes, in enumerated statement orders.

Whatever the order: a key has one run at a time, nobody waits for a key that nobody has, an attempt ends once, and
nothing deadlocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fencepost.core.retry import Rerun
from fencepost.core.runs import Claim, Requested
from fencepost.ledger import claiming, migrations, requests
from fencepost.ledger.claiming import Claimed, claim
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.finishing import Finished, finish
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.planning import SchedulePlan, plan
from fencepost.ledger.promoting import promote_stranded
from fencepost.ledger.reaping import reap
from tests.interleaving import Order, at_random, chosen, interrupted_once, is_full
from tests.ledger.scene import HORIZON_US, Scene, ending, failed, replaces, skips, tick, waits
from tests.ledger.steps import Act, Actor, Watcher, played
from tests.ledger.test_planning import add_schedule
from tests.servers import RUNTIME

CLAIM_STEPS, FINISH_STEPS, REAP_STEPS = 12, 11, 12
PART = 13
MORE = 8  # times as many random ones where there is time


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    server = request.getfixturevalue(request.param)
    ledger = open_ledger(f"{server.url}?prefix=steps{RUNTIME.new_id()[:6]}_", RUNTIME)
    migrations.migrate(ledger)
    scene = Scene(ledger)
    yield scene
    scene.close()
    ledger.close()


@pytest.fixture(scope="module")
def actors(scene: Scene) -> Iterator[list[Actor]]:
    watcher = Watcher(scene.ledger)
    actors = [Actor(scene.ledger, watcher, name) for name in ("first", "second", "third")]
    yield actors
    for actor in (*actors, watcher):
        actor.close()


# -- what there is before, what the actors do, and what must hold after


def reset(scene: Scene) -> None:
    for table in ("run", "attempt", "exclusive", "schedule", "journal"):
        scene.change(f"DELETE FROM {{{table}}}")


def held(scene: Scene, *keys: str | None, node: str = "one") -> list[Claim]:
    """Runs with these keys, all running on `node`."""
    scene.add(*(Requested("job", "manual", exclusive_key=key) for key in keys))
    return scene.claim(node=node).claims


def waiting(scene: Scene, key: str, count: int = 1) -> list[int]:
    """Runs that wait for a key which is held."""
    ids = scene.add(*[Requested("job", "manual", exclusive_key=key)] * count)
    scene.claim()
    assert set(scene.states(ids)) == {"waiting"}
    return ids


def claims(node: str, decide: Any = waits) -> Act:
    return lambda connection: claim(connection, node=node, jobs=("job",), queues=("default",), limit=8, decide=decide)


def finishes(*ended: Claim, how: Any = ending) -> Act:
    return lambda connection: finish(connection, [how(each) for each in ended])


def reaps(node: str) -> Act:
    return lambda connection: reap(connection, node=node, limit=8, decide=lambda job, crashes: Rerun())


def cancels(ledger: Ledger, run_id: int) -> Act:
    return lambda connection: requests.cancel(ledger, run_id, connection=connection)


def fenced(scene: Scene, claimed: Claim) -> Act:
    """An effect that is committed only if the run is still its node's: begin, effect, check, commit."""
    sql = (
        "SELECT 1 FROM {run} r WHERE r.id = %s AND r.token = %s AND r.state = 'running'"
        + scene.ledger.dialect.spelling.share
    )

    def work(cursor: Any) -> bool:
        scene.statements.change(
            cursor, "INSERT INTO {journal} (at, what, run_id) VALUES (0, 'effect', %s)", claimed.run_id
        )
        return bool(scene.statements.rows(cursor, sql, claimed.run_id, claimed.token))

    def act(connection: LedgerConnection) -> bool:
        with connection.autocommit() as cursor:
            cursor.execute("BEGIN")
            is_ours = work(cursor)
            cursor.execute("COMMIT" if is_ours else "ROLLBACK")
        return is_ours

    return act


def assert_sound(scene: Scene, schedule: object) -> None:
    """What holds between any two transactions."""
    runs = scene._all("run", "ORDER BY id")
    running = [(run["exclusive_key"], run["id"], run["token"]) for run in runs if run["state"] == "running"]
    keyed = {key: (run_id, token) for key, run_id, token in running if key is not None}
    assert len(keyed) == len([key for key, _, _ in running if key is not None]), (schedule, "two runs have one key")
    for key, run_id, token in scene.rows("SELECT x.key, x.run_id, x.token FROM {exclusive} x"):
        assert run_id == keyed.get(key, (None, 0))[0], (schedule, key, "is not with its holder")
        assert token >= keyed.get(key, (None, 0))[1], (schedule, key, "has forgotten a token")
    queued = {run["exclusive_key"] for run in runs if run["state"] == "queued"}
    for run in runs:
        if run["waits_for"] == "key":
            assert run["exclusive_key"] in keyed.keys() | queued, (schedule, run["id"], "waits for nobody")
        attempts = [attempt["number"] for attempt in scene.attempts(run["id"])]
        is_under_way = run["state"] == "running"
        assert attempts == list(range(1, run["attempts"] + 1 - is_under_way)), (schedule, run["id"], attempts)


def orders(counts: Sequence[int], mixed: int = 25) -> Iterator[Order]:
    many = mixed * MORE if is_full() else mixed
    return chosen((*interrupted_once(counts), *at_random(counts, many)), part=PART)


def drained(scene: Scene) -> list[int]:
    """Run all that can be run, one after the other, and return it: nothing may be left waiting."""
    done = []
    while got := scene.claim(node="last").claims:
        scene.finish(*map(ending, got))
        done += [each.run_id for each in got]
    assert scene.rows("SELECT r.id FROM {run} r WHERE r.state IN ('waiting', 'queued')") == []
    return done


class TestKeys:
    def test_who_finds_a_key_taken_and_who_gives_it_up_do_not_miss_each_other(
        self, scene: Scene, actors: list[Actor]
    ) -> None:
        for schedule in orders((CLAIM_STEPS, FINISH_STEPS)):
            reset(scene)
            [holder] = held(scene, "k")
            run_id = scene.add_one(exclusive_key="k")
            claimed, finished = played(actors, [claims("two"), finishes(holder)], schedule)
            assert finished.refused == [], schedule
            assert_sound(scene, schedule)
            assert scene.state(run_id) == ("running" if claimed.claims else "queued"), schedule

    def test_two_nodes_claim_the_same_keys_in_opposite_orders(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((CLAIM_STEPS, CLAIM_STEPS)):
            reset(scene)
            scene.finish(*map(ending, held(scene, "b")))  # one key has a row already, one not
            for key, priority in (("a", 3), ("b", 2), ("b", 1), ("a", 0)):
                scene.add_one(exclusive_key=key, priority=priority)
            played(actors, [claims("one"), claims("two")], schedule)
            assert_sound(scene, schedule)
            running = scene.claim(node="one").claims
            scene.finish(*map(ending, running))

    def test_a_tick_is_skipped_only_while_another_runs(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((CLAIM_STEPS, FINISH_STEPS)):
            reset(scene)
            [holder] = held(scene, "k")
            [run_id] = scene.add(tick("s", scene.now_us(), exclusive_key="k"))
            claimed, _ = played(actors, [claims("two", skips), finishes(holder)], schedule)
            assert_sound(scene, schedule)
            expected = "running" if claimed.claims else "skipped" if claimed.skipped else "queued"
            assert scene.state(run_id) == expected, schedule

    def test_holder_that_is_replaced_ends_meanwhile(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((CLAIM_STEPS, FINISH_STEPS)):
            reset(scene)
            [holder] = held(scene, "k")
            scene.add_one(exclusive_key="k")
            _, finished = played(actors, [claims("two", replaces), finishes(holder)], schedule)
            assert finished.refused == [], schedule
            assert_sound(scene, schedule)
            assert scene.state(holder.run_id) == "succeeded", schedule

    def test_retry_of_the_holder_and_the_next_in_line_both_get_their_turn(
        self, scene: Scene, actors: list[Actor]
    ) -> None:
        def again(each: Claim) -> Any:
            return failed(each, "queued")

        for schedule in orders((CLAIM_STEPS, FINISH_STEPS)):
            reset(scene)
            [holder] = held(scene, "k")
            [next_id] = waiting(scene, "k")
            third = scene.add_one(exclusive_key="k")
            claimed, _ = played(actors, [claims("two"), finishes(holder, how=again)], schedule)
            assert_sound(scene, schedule)
            scene.finish(*map(ending, claimed.claims))
            done = {each.run_id for each in claimed.claims} | set(drained(scene))
            assert done == {holder.run_id, next_id, third}, schedule

    def test_next_in_line_is_cancelled_while_the_holder_ends(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((FINISH_STEPS, 8)):
            reset(scene)
            [holder] = held(scene, "k")
            first, second = waiting(scene, "k", 2)
            played(actors, [finishes(holder), cancels(scene.ledger, first)], schedule)
            assert_sound(scene, schedule)
            assert scene.states([first, second]) == ["cancelled", "queued"], schedule

    def test_keys_of_many_runs_end_while_others_want_them(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((CLAIM_STEPS, FINISH_STEPS), mixed=50):
            reset(scene)
            holders = held(scene, "a", "b", "c")
            waiting(scene, "b")
            for key in ("c", "b", "a"):
                scene.add_one(exclusive_key=key)
            played(actors, [claims("two"), finishes(*reversed(holders))], schedule)
            assert_sound(scene, schedule)
            drained_after(scene)

    def test_stranded_runs_are_looked_for_while_their_key_changes_hands(
        self, scene: Scene, actors: list[Actor]
    ) -> None:
        for schedule in orders((FINISH_STEPS, 8)):
            reset(scene)
            [holder] = held(scene, "k")
            waiting(scene, "k", 2)
            played(actors, [finishes(holder), promote_stranded], schedule)
            assert_sound(scene, schedule)


def drained_after(scene: Scene) -> None:
    """End what runs, whoever runs it, and see that everybody gets a turn."""
    for node in ("one", "two"):
        scene.finish(*map(ending, claiming.mine(scene.connection, node=node)))
    drained(scene)


class TestEndsThatMeet:
    @pytest.mark.parametrize("keys", [("k", None), (None, None)])
    def test_of_finish_and_reap_exactly_one_ends_the_attempt(
        self, scene: Scene, actors: list[Actor], keys: tuple[str | None, ...]
    ) -> None:
        for schedule in orders((FINISH_STEPS, REAP_STEPS)):
            reset(scene)
            both = held(scene, *keys)
            waits_for_k = waiting(scene, "k") if "k" in keys else []
            finished, reaped = played(actors, [finishes(*both), reaps("one")], schedule)
            assert_sound(scene, schedule)
            assert sorted(finished.refused) == [each.run_id for each in reaped], schedule
            for each in both:
                [attempt] = scene.attempts(each.run_id)
                is_lost = each.run_id in finished.refused
                assert attempt["outcome"] == ("lost" if is_lost else "succeeded"), schedule
                assert scene.state(each.run_id) == ("queued" if is_lost else "succeeded"), schedule
            assert scene.states(waits_for_k) == ["queued"] * len(waits_for_k), schedule

    @pytest.mark.parametrize("keys", [("k", None), (None, None)])
    def test_finish_that_is_repeated_before_the_first_is_answered(
        self, scene: Scene, actors: list[Actor], keys: tuple[str | None, ...]
    ) -> None:
        for schedule in orders((FINISH_STEPS, FINISH_STEPS)):
            reset(scene)
            both = held(scene, *keys)
            answers = played(actors, [finishes(*both), finishes(*both)], schedule)
            assert [each.refused for each in answers] == [[], []], schedule
            assert_sound(scene, schedule)
            assert scene.journal() == [], schedule

    @pytest.mark.parametrize("keys", [("k", None), (None, None)])
    def test_two_reapers_lose_an_attempt_once(
        self, scene: Scene, actors: list[Actor], keys: tuple[str | None, ...]
    ) -> None:
        for schedule in orders((REAP_STEPS, REAP_STEPS)):
            reset(scene)
            both = held(scene, *keys)
            answers = played(actors, [reaps("one"), reaps("one")], schedule)
            reaped = sorted(each.run_id for answer in answers for each in answer)
            assert reaped == sorted(each.run_id for each in both), schedule
            assert_sound(scene, schedule)
            assert len(scene.journal()) == 2, schedule

    def test_late_finish_never_ends_the_heirs_attempt(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((FINISH_STEPS, 4, 4), mixed=40):
            reset(scene)
            [holder] = held(scene, "k")
            finished, reaped, claimed = played(actors, [finishes(holder), reaps("one"), claims("two")], schedule)
            assert_sound(scene, schedule)
            assert bool(finished.refused) == bool(reaped), schedule
            if claimed.claims:
                assert scene.state(holder.run_id) == "running", schedule
                assert claimed.claims[0].token > holder.token

    def test_run_that_is_cancelled_before_it_is_claimed_never_starts(self, scene: Scene, actors: list[Actor]) -> None:
        for schedule in orders((CLAIM_STEPS, 8)):
            reset(scene)
            ids = scene.add(Requested("job", "manual"), Requested("job", "manual", exclusive_key="k"))
            for run_id in ids:
                reset_state(scene, ids)
                claimed, cancelled = played(actors, [claims("one"), cancels(scene.ledger, run_id)], schedule)
                assert_sound(scene, schedule)
                is_started = run_id in {each.run_id for each in claimed.claims}
                assert scene.state(run_id) == ("running" if is_started else "cancelled"), schedule
                assert str(cancelled) == ("requested" if is_started else "cancelled"), schedule


def reset_state(scene: Scene, ids: Sequence[int]) -> None:
    """Let runs be queued as if nothing had happened."""
    for run_id in ids:
        scene.change(
            "UPDATE {run} SET state = 'queued', attempts = 0, ended_at = NULL, cancel_requested_at = NULL "
            "WHERE id = %s",
            run_id,
        )
    scene.change("UPDATE {exclusive} SET run_id = NULL")


class TestFence:
    def test_effect_that_was_committed_was_committed_before_its_run_was_lost(
        self, scene: Scene, actors: list[Actor]
    ) -> None:
        for schedule in orders((5, REAP_STEPS, 2), mixed=40):
            reset(scene)
            [holder] = held(scene, "k")
            is_ours, reaped, _ = played(actors, [fenced(scene, holder), reaps("one"), claims("two")], schedule)
            assert_sound(scene, schedule)
            effects = [each["id"] for each in scene.journal() if each["what"] == "effect"]
            losses = [each["id"] for each in scene.journal() if each["what"] == "run lost"]
            assert len(effects) == is_ours, schedule
            assert len(losses) == len(reaped), schedule


class TestPlanners:
    def test_two_planners_plan_every_tick_once_and_move_every_schedule(self, scene: Scene, actors: list[Actor]) -> None:
        def plans(connection: LedgerConnection) -> Any:
            return plan(connection, horizon_us=HORIZON_US, limit=8, decide=_once)

        for schedule in orders((8, 8)):
            reset(scene)
            now_us = scene.now_us()
            for name in ("a", "b", "c"):
                add_schedule(scene, name, now_us)
            scene.add_one(available_at_us=now_us + 5_000_000)
            scene.change("UPDATE {run} SET available_at = %s WHERE waits_for = 'time'", now_us)
            answers = played(actors, [plans, plans], schedule)
            rest = plan(scene.connection, horizon_us=HORIZON_US, limit=8, decide=_once)
            assert sum(each.runs for each in (*answers, rest)) == 4, schedule
            rows = scene.rows("SELECT r.schedule, r.state FROM {run} r ORDER BY r.schedule")
            assert sorted(str(name) for name, _ in rows) == ["None", "a", "b", "c"], schedule
            assert {state for _, state in rows} == {"queued"}, schedule


def _once(now_us: int, row: Any) -> SchedulePlan:
    return SchedulePlan([tick(row.id, row.next_due_at)], row.next_due_at, None)


def test_answers_are_what_they_are_called(scene: Scene, actors: list[Actor]) -> None:
    """The machinery above really makes the calls: or nothing else here would mean anything."""
    reset(scene)
    [holder] = held(scene, "k")
    waiting(scene, "k")
    claimed, finished = played(actors, [claims("two"), finishes(holder)], (1,) * FINISH_STEPS + (0,) * CLAIM_STEPS)
    assert isinstance(claimed, Claimed)
    assert isinstance(finished, Finished)
    assert (len(claimed.claims), finished.promoted) == (1, 1)

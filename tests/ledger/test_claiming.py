"""Claiming: who gets which run, under which token, on each database."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fencepost.core.runs import Requested
from fencepost.ledger.claiming import Blocked, KeyedClaims, SkippedRun, WantedKey, keys_wanted, mine
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join
from tests.ledger.scene import HOUR_US, Scene, ending, failed, handed_back, replaces, skips, tick, waits


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


class TestFreeRuns:
    def test_claim_tells_all_that_a_node_needs_to_run_it(self, scene: Scene) -> None:
        now_us = scene.now_us()
        [run_id] = scene.add(
            Requested(
                "job",
                "scheduled",
                params='{"a": "ü\\"x"}',
                origin_key="tick:s:1",
                schedule="s",
                first_due_at_us=now_us - 9,
                due_at_us=now_us - 5,
                ticks=3,
                window_start_us=now_us - 99,
                window_end_us=now_us - 5,
                available_at_us=now_us - 4,
                requested_by="ann",
            )
        )
        claimed = scene.claim()
        [got] = claimed.claims
        assert got.claimed_at_us == claimed.now_us >= now_us
        assert got._replace(token=0, claimed_at_us=0) == (
            *(run_id, "job", 1, 0, '{"a": "ü\\"x"}', "s", now_us - 5, now_us - 99, now_us - 5, None, 0, 0, "ann"),
            *(now_us - 4, 0, 3),
        )
        assert claimed[2:] == ([], [], False, 0)
        run = scene.run(run_id)
        assert (run["state"], run["node"], run["token"], run["attempts"]) == ("running", "node", got.token, 1)
        assert run["started_at"] == claimed.now_us

    @pytest.mark.parametrize("end", ["dead_at", "left_at"])
    @pytest.mark.parametrize("key", [None, "key"])
    def test_node_whose_end_is_noted_claims_nothing(self, scene: Scene, end: str, key: str | None) -> None:
        for node in ("ended", "living"):
            join(scene.ledger, NewNode(node, node, "grant", 1, 0, "test", 1, ("default",), ("job",)))
        scene.change(f"UPDATE {{node}} SET {end} = 1 WHERE id = 'ended'")
        run_id = scene.add_one(exclusive_key=key)
        claimed = scene.claim(node="ended")
        assert (claimed.claims, claimed.blocked, claimed.more) == ([], [], False)
        assert claimed.now_us > 0
        assert scene.state(run_id) == "queued"
        assert scene.claim_one(node="living").run_id == run_id

    def test_nothing_due_is_an_empty_claim_that_tells_the_time(self, scene: Scene) -> None:
        scene.add_one(available_at_us=scene.now_us() + 1_500_000)
        scene.add_one(available_at_us=scene.now_us() + HOUR_US)
        claimed = scene.claim()
        assert claimed[1:] == ([], [], [], False, 0)
        assert abs(claimed.now_us - scene.now_us()) < 60_000_000

    def test_urgent_runs_come_first_then_those_due_earlier_then_older_ones(self, scene: Scene) -> None:
        now_us = scene.now_us()
        wishes = [(0, 5), (7, 1), (0, 9), (7, 8), (-3, 99), (0, 9)]
        ids = scene.add(
            *(Requested("job", "manual", priority=p, available_at_us=now_us - early) for p, early in wishes)
        )
        order = [ids[place] for place in (3, 1, 2, 5, 0, 4)]
        assert [each.run_id for each in scene.claim(limit=4).claims] == order[:4]
        assert [each.run_id for each in scene.claim(limit=4).claims] == order[4:]

    def test_only_known_jobs_and_served_queues(self, scene: Scene) -> None:
        ids = scene.add(
            *(
                Requested(job, "manual", queue=queue)
                for job in ("job", "other", 'a "quoted\\one')
                for queue in ("default", "night", "mail")
            )
        )
        got = scene.claim(jobs=("job", 'a "quoted\\one'), queues=("default", "mail"))
        assert {each.run_id for each in got.claims} == {ids[0], ids[2], ids[6], ids[8]}

    def test_urgency_is_compared_across_queues(self, scene: Scene) -> None:
        ids = scene.add(
            *(Requested("job", "manual", queue=queue, priority=p) for p in (1, 2, 3) for queue in ("a", "b"))
        )
        got = scene.claim(queues=("a", "b"), limit=3)
        assert [each.run_id for each in got.claims] == [ids[4], ids[5], ids[2]]
        assert got.more
        assert [each.run_id for each in scene.claim(queues=("a", "b")).claims] == [ids[3], ids[0], ids[1]]

    def test_more_is_said_when_the_limit_was_reached(self, scene: Scene) -> None:
        scene.add(*[Requested("job", "manual")] * 12)
        assert scene.claim(limit=8).more
        assert not scene.claim(limit=8).more

    def test_limit_is_never_exceeded(self, scene: Scene) -> None:
        scene.add(*[Requested("job", "manual")] * 40)
        for limit in (1, 2, 5, 7, 11):
            assert 0 < len(scene.claim(limit=limit).claims) <= limit

    def test_what_comes_late_and_is_older_than_what_was_taken_is_taken_too(self, scene: Scene) -> None:
        """Who works a queue off in full batches goes on where the last one ended, but forgets nothing."""
        now_us = scene.now_us()
        ids = scene.add(*(Requested("job", "manual", available_at_us=now_us - 1000 + n) for n in range(30)))
        got = [each.run_id for _ in range(2) for each in scene.claim(limit=8).claims]
        assert got == ids[:16]
        late = [scene.add_one(available_at_us=now_us - HOUR_US, priority=priority) for priority in (5, 0, -5)]
        while claims := scene.claim(limit=8).claims:
            got += [each.run_id for each in claims]
        assert len(got) == len(set(got))
        assert sorted(got) == sorted(ids + late)

    def test_token_rises_with_every_claim_even_if_the_clock_goes_back(self, scene: Scene) -> None:
        run_id = scene.add_one()
        first = scene.claim_one()
        scene.change("UPDATE {run} SET token = %s WHERE id = %s", first.token + HOUR_US, run_id)
        scene.finish(handed_back(first._replace(token=first.token + HOUR_US)))
        second = scene.claim_one()
        assert second.token == first.token + HOUR_US + 1
        assert second.attempt == 1

    def test_every_run_goes_to_one_of_many_nodes(self, scene: Scene) -> None:
        ids = scene.add(*[Requested("job", "manual")] * 300)
        connections = [scene.ledger.connect(f"node{number}") for number in range(4)]
        got: list[int] = []

        def work(number: int) -> None:
            while claims := scene.claim(node=f"node{number}", limit=16, connection=connections[number]).claims:
                got.extend(each.run_id for each in claims)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.rest()
        assert sorted(got) == ids


class TestMine:
    def test_what_runs_under_a_nodes_name_is_told_as_it_was_claimed(self, scene: Scene) -> None:
        scene.add(Requested("job", "manual"), Requested("job", "manual", exclusive_key="k"))
        claims = scene.claim().claims
        scene.add_one()
        scene.claim(node="other")
        assert mine(scene.connection, node="node") == sorted(claims)
        scene.finish(*(ending(each) for each in claims))
        assert mine(scene.connection, node="node") == []


class TestKeyedRuns:
    def test_of_two_with_one_key_the_second_waits_and_says_for_whom(self, scene: Scene) -> None:
        first, second = scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        claimed = scene.claim()
        assert [each.run_id for each in claimed.claims] == [first]
        assert claimed.blocked == [Blocked(second, "job", "k", first)]
        run = scene.run(second)
        assert (run["state"], run["waits_for"], run["attempts"]) == ("waiting", "key", 0)
        assert f"run {first}" in run["why"]
        assert scene.holder("k") == (first, claimed.claims[0].token)

    def test_different_keys_do_not_exclude_each_other(self, scene: Scene) -> None:
        ids = scene.add(*(Requested("job", "manual", exclusive_key=key) for key in ("b", "a", "ä", "A", "B")))
        claims = scene.claim().claims
        assert [each.run_id for each in claims] == ids
        assert [scene.holder(each.exclusive_key) for each in claims] == [(each.run_id, each.token) for each in claims]

    def test_what_makes_good_for_several_ticks_waits_where_a_tick_would_be_skipped(self, scene: Scene) -> None:
        now_us = scene.now_us()
        first, late, tick_after = scene.add(
            tick("s", now_us - 9, exclusive_key="k"),
            tick("s", now_us - 5, exclusive_key="k", first_due_at_us=now_us - 8, ticks=4),
            tick("s", now_us - 4, exclusive_key="k"),
        )
        claimed = scene.claim(decide=skips)
        assert [each.run_id for each in claimed.claims] == [first]
        assert [each.run_id for each in claimed.blocked] == [late]
        assert [each.run_id for each in claimed.skipped] == [tick_after]
        scene.finish(ending(claimed.claims[0], "succeeded", "succeeded"))
        assert scene.claim_one().run_id == late

    def test_tick_that_may_not_overlap_is_skipped_with_a_reason(self, scene: Scene) -> None:
        now_us = scene.now_us()
        first, second = scene.add(*(tick("s", now_us - early, exclusive_key="k") for early in (2, 1)))
        claimed = scene.claim(decide=skips)
        assert [each.run_id for each in claimed.claims] == [first]
        [skipped] = claimed.skipped
        assert skipped == SkippedRun(second, "job", skipped.reason, first)
        run = scene.run(second)
        when_us = claimed.claims[0].claimed_at_us
        assert (run["state"], run["why"], run["ended_at"]) == ("skipped", skipped.reason, when_us)

    def test_skipped_tick_says_whether_the_run_before_it_had_even_started(self, scene: Scene) -> None:
        now_us = scene.now_us()
        scene.add(*(tick("s", now_us - early, exclusive_key="k") for early in (3, 2)))
        [unstarted] = scene.claim(decide=skips).skipped
        scene.add(tick("s", now_us - 1, exclusive_key="k"))
        [running] = scene.claim(decide=skips).skipped
        assert "had not started when this one came due" in unstarted.reason
        assert "has not ended" in running.reason

    def test_skipped_tick_names_the_run_that_makes_good_for_missed_due_times(self, scene: Scene) -> None:
        now_us = scene.now_us()
        catching_up, _ = scene.add(
            tick("s", now_us - 5, exclusive_key="k", first_due_at_us=now_us - 8, ticks=4),
            tick("s", now_us - 4, exclusive_key="k"),
        )
        [at_once] = scene.claim(decide=skips).skipped
        scene.add(tick("s", now_us - 3, exclusive_key="k"))
        [later] = scene.claim(decide=skips).skipped
        reason = f"run {catching_up}, which makes good for 4 missed due times, has not ended, and overlap is forbid"
        assert [at_once.reason, later.reason] == [reason] * 2
        assert scene.run(later.run_id)["why"] == reason

    def test_requested_run_is_no_tick(self, scene: Scene) -> None:
        scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        claimed = scene.claim(decide=skips)
        assert len(claimed.blocked) == 1
        assert claimed.skipped == []

    def test_replacing_run_has_the_holder_asked_to_stop_once(self, scene: Scene) -> None:
        first = scene.add_one(exclusive_key="k")
        scene.claim()
        second, third = scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        scene.claim(node="other", decide=replaces)
        run = scene.run(first)
        assert run["cancel_requested_at"] is not None
        assert run["cancel_by"].startswith(f"run {second} ")
        assert scene.states([first, second, third]) == ["running", "waiting", "waiting"]

    def test_free_and_keyed_runs_are_claimed_together(self, scene: Scene) -> None:
        ids = scene.add(*(Requested("job", "manual", exclusive_key=key) for key in (None, "k", None, "l", "k")))
        claimed = scene.claim()
        assert {each.run_id for each in claimed.claims} == set(ids[:4])
        assert [each.run_id for each in claimed.blocked] == [ids[4]]
        assert {each.attempt for each in claimed.claims} == {1}

    def test_token_is_above_every_one_given_under_the_key(self, scene: Scene) -> None:
        scene.add_one(exclusive_key="k")
        first = scene.claim_one()
        scene.finish(ending(first))
        scene.change("UPDATE {exclusive} SET token = %s", first.token + HOUR_US)
        scene.add_one(exclusive_key="k")
        second = scene.claim_one()
        assert second.token == first.token + HOUR_US + 1
        assert scene.holder("k") == (second.run_id, second.token)
        assert scene.run(second.run_id)["token"] == second.token

    def test_key_held_by_another_transaction_is_left_for_later(self, scene: Scene) -> None:
        if scene.ledger.dialect.name == "sqlite":
            pytest.skip("one writer at a time: nothing is ever locked")
        scene.finish(ending(_claimed(scene, "k")))
        run_id, free_id = scene.add(Requested("job", "manual", exclusive_key="k"), Requested("job", "manual"))
        other = scene.ledger.connect("other")
        with other.transaction() as cursor:
            scene.statements.rows(cursor, "SELECT x.key FROM {exclusive} x WHERE x.key = 'k' FOR UPDATE")
            assert [each.run_id for each in scene.claim().claims] == [free_id]
        other.rest()
        assert scene.claim_one().run_id == run_id

    def test_candidate_that_failed_meanwhile_waits_for_its_back_off(self, scene: Scene) -> None:
        run_id = scene.add_one(exclusive_key="k")
        found_us = scene.now_us()
        scene.finish(failed(scene.claim_one(), "queued", delay_us=900_000))
        late = KeyedClaims(scene.statements, node="late", now_us=found_us, decide=waits, gate=None)
        assert late.serve(scene.connection, [(run_id, "k")]).claims == []
        assert (scene.state(run_id), scene.holder("k")[0]) == ("queued", None)

    def test_claim_that_was_held_up_is_dated_when_its_key_was_free_again(self, scene: Scene) -> None:
        found_us = scene.now_us()
        scene.finish(ending(_claimed(scene, "k")))  # looked for before that, and settled after it
        ended_us = scene.now_us()
        run_id = scene.add_one(exclusive_key="k")
        late = KeyedClaims(scene.statements, node="late", now_us=found_us, decide=waits, gate=None)
        [got] = late.serve(scene.connection, [(run_id, "k")]).claims
        assert min(got.claimed_at_us, got.token) >= ended_us
        assert scene.run(run_id)["started_at"] == got.claimed_at_us

    def test_two_nodes_never_run_one_key_at_a_time(self, scene: Scene) -> None:
        keys = ("a", "b", "c")
        scene.add(*(Requested("job", "manual", exclusive_key=keys[number % 3]) for number in range(60)))
        running: dict[str, str] = {}
        done: list[int] = []
        broken: list[str] = []

        def work(node: str) -> None:
            connection = scene.ledger.connect(node)
            here = Scene(scene.ledger)
            while len(done) < 60 and not broken:
                for each in scene.claim(node=node, limit=8, connection=connection).claims:
                    other = running.setdefault(each.exclusive_key or "", node)
                    if other != node:
                        broken.append(f"{node} and {other} run {each.exclusive_key}")
                    del running[each.exclusive_key or ""]
                    here.finish(ending(each))
                    done.append(each.run_id)
            connection.rest()
            here.close()

        threads = [threading.Thread(target=work, args=(f"node{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert broken == []
        assert len(done) == len(set(done)) == 60


class TestGate:
    def test_only_keys_from_the_gate_are_taken_with_the_gates_token(self, scene: Scene) -> None:
        far_us = scene.now_us() + HOUR_US
        free, open_, shut = scene.add(*(Requested("job", "manual", exclusive_key=key) for key in (None, "k", "l")))
        claims = {each.run_id: each for each in scene.claim(gate={"k": far_us}).claims}
        assert set(claims) == {free, open_}
        assert claims[open_].token == far_us
        assert scene.holder("k") == (open_, far_us)
        assert scene.state(shut) == "queued"
        assert scene.claim(gate={}).claims == []

    def test_gates_token_below_one_that_was_given_starts_nothing(self, scene: Scene) -> None:
        scene.finish(ending(_claimed(scene, "k")))
        run_id = scene.add_one(exclusive_key="k")
        assert scene.claim(gate={"k": 5}).claims == []
        assert scene.state(run_id) == "queued"

    def test_key_that_is_taken_is_decided_about_without_a_token(self, scene: Scene) -> None:
        _claimed(scene, "k")
        waiting = scene.add_one(exclusive_key="k")
        assert [each.run_id for each in scene.claim(gate={"k": 0}).blocked] == [waiting]
        assert scene.state(waiting) == "waiting"

    def test_keys_wanted_are_those_of_due_runs_with_their_last_tokens(self, scene: Scene) -> None:
        past = _claimed(scene, "used")
        scene.finish(ending(past))
        holder = _claimed(scene, "taken")
        now_us = scene.now_us()
        scene.add(
            *(Requested("job", "manual", exclusive_key=key) for key in ("used", "used", "new", "taken", None)),
            Requested("job", "manual", exclusive_key="later", available_at_us=now_us + 1_900_000),
            Requested("other", "manual", exclusive_key="unknown"),
            Requested("job", "manual", exclusive_key="elsewhere", queue="mail"),
            Requested("job", "manual", exclusive_key="urgent", priority=5),
        )

        def wanted(limit: int = 100, without: tuple[str, ...] = ()) -> list[WantedKey]:
            return keys_wanted(scene.connection, jobs=("job",), queues=("default",), limit=limit, without=without)

        urgent, new = WantedKey("urgent", 0, is_taken=False), WantedKey("new", 0, is_taken=False)
        used, taken = WantedKey("used", past.token, is_taken=False), WantedKey("taken", holder.token, is_taken=True)
        assert wanted()[0] == urgent
        assert sorted(wanted()) == sorted([urgent, used, new, taken])
        assert wanted(1) == [urgent]
        assert sorted(wanted(without=("urgent", "used"))) == sorted([new, taken])


def _claimed(scene: Scene, key: str):
    run_id = scene.add_one(exclusive_key=key)
    [claimed] = [each for each in scene.claim(decide=waits).claims if each.run_id == run_id]
    return claimed

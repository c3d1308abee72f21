"""Jobs in worker processes: one outcome per claim whatever dies, stopped when told, dead before trust ends."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.events import Event, What
from fencepost.core.runs import StopReason
from fencepost.core.timings import Timings
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.process import ProcessRunner
from fencepost.engine.runners.worker_pool import WorkerPool
from fencepost.engine.wire import Greeting
from testbed.keeper import is_alive
from testbed.wait import until
from tests.cli.command import parent_of
from tests.engine.runner_stand import LONG_S, RUNTIME, Stand, claim, descriptors, gone, said

TIMINGS = Timings.of("30s")
BRISK = Timings.of("30s", term_grace="300ms")
NOTHING = ("nothing", {})


def stand(*, slots: int = 1, timings: Timings = TIMINGS, app: str = "tests.engine.shop:app", **options) -> Stand:
    events = []
    options = {"emit": events.append} | options
    made = Stand(ProcessRunner(app, slots=slots, timings=timings, runtime=RUNTIME, **options))
    made.events = events
    return made


@pytest.fixture
def one() -> Iterator[Stand]:
    yield from _started(slots=1)


@pytest.fixture(scope="module")
def kept() -> Iterator[Stand]:
    """One worker for tests that leave it as it is."""
    yield from _started(slots=1)


@pytest.fixture
def two() -> Iterator[Stand]:
    yield from _started(slots=2)


@pytest.fixture
def brisk() -> Iterator[Stand]:
    """Two workers, little patience, and a timeout for those who hold the interpreter."""
    yield from _started(slots=2, timings=BRISK, timeouts={"hold_the_gil": 0.5, "nothing": None})


def _started(*, slots: int, **options) -> Iterator[Stand]:
    made = stand(slots=slots, **options)
    made.start(slots=slots)
    yield made
    made.runner.close(0)
    made.collect()
    assert made.outcomes.keys() == made.submitted.keys()


class TestBeginning:
    """The first worker loads the application alone: four at once are all ready late."""

    @staticmethod
    def pool() -> WorkerPool:
        class Recording:
            def spawn(self, name: str, work: object) -> None: ...

        made: Any = Recording()
        greeting = Greeting("shop:app", None, None)
        return WorkerPool(
            made, greeting, slots=4, timings=TIMINGS, runtime=made, lock=made, command=["-"], env={}, emit=print
        )

    def test_others_are_started_when_the_first_is_ready(self) -> None:
        pool = self.pool()
        pool.start_missing(10.0)
        pool.start_missing(11.0)
        assert len(pool.handles) == 1
        pool.mark_ready(pool.handles[0])
        pool.start_missing(11.1)
        assert len(pool.handles) == 4

    def test_others_do_not_wait_for_one_that_takes_long(self) -> None:
        pool = self.pool()
        pool.start_missing(10.0)
        pool.start_missing(13.0)
        assert pool.is_complete


class TestExecution:
    def test_ten_thousand_claims_come_back_exactly_once(self, two: Stand) -> None:
        two.pump([NOTHING] * 10_000)
        hows = Counter(outcome.how for outcome in two.outcomes.values())
        # On a machine that is busy with other things some wait for more than a second, and are handed back.
        assert hows[How.SUCCEEDED] + hows[How.RETURNED] == hows.total() == 10_000
        assert hows[How.SUCCEEDED] > 1000

    def test_results_and_errors_cross_the_line(self, kept: Stand) -> None:
        assert kept.run("answer", n=21).result == "42"
        failed = kept.run("fail")
        assert failed.how == How.FAILED
        assert failed.error_code == "ValueError"
        assert "empty" in failed.error
        assert "secret" not in failed.error + failed.trace
        assert kept.run("leave").how == How.FAILED
        unknown = kept.run("no_such_job")
        assert (unknown.how, unknown.error_code) == (How.RETURNED, "unknown job")
        assert kept.run("nothing").how == How.SUCCEEDED

    def test_time_is_measured(self, kept: Stand) -> None:
        outcome = kept.run("sleep", duration_s=0.05)
        assert 50_000 <= outcome.took_us < 60_000_000

    def test_parameters_may_be_larger_than_any_packet(self, kept: Stand) -> None:
        sizes = [10, 3_000_000, 70_000, 10]
        claims = [kept.submit("big", text="x" * size) for size in sizes]
        assert [kept.outcome(each).result for each in claims] == [str(size) for size in sizes]

    def test_a_worker_is_prepared_and_knows_its_node(self) -> None:
        for made in _started(slots=1, node="node-1", prepare="tests.engine.shop:prepare"):
            assert json.loads(made.run("node").result) == ["node-1", "yes"]

    def test_a_child_that_a_job_forked_is_no_worker(self, kept: Stand) -> None:
        pids = {kept.run(job).result for job in ("pid", "fork_and_return", "pid", "pid")}
        assert len(pids) == 1

    def test_a_worker_is_used_again(self, kept: Stand) -> None:
        pids = {kept.run("pid").result for _ in range(3)}
        assert len(pids) == 1

    def test_what_jobs_print_passes_through(self, capfd: pytest.CaptureFixture[str]) -> None:
        for made in _started(slots=1):
            made.run("shout")
        printed = capfd.readouterr()
        assert "said on standard output" in printed.out
        assert "said on standard error" in printed.err

    def test_coroutines_execute_on_a_loop_that_is_kept(self, kept: Stand, tmp_path: Path) -> None:
        for name in ("first", "second"):
            outcome = kept.run("sleep_async", path=str(tmp_path / name), duration_s=0)
            assert (outcome.how, outcome.result) == (How.SUCCEEDED, '"slept"')

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGURG])
    def test_what_is_sent_to_everybody_is_no_business_of_a_worker(
        self, kept: Stand, tmp_path: Path, number: signal.Signals
    ) -> None:
        held = kept.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        os.kill(int(said(tmp_path / "started")), number)
        (tmp_path / "go").touch()
        assert kept.outcome(held).how == How.SUCCEEDED

    def test_nothing_is_left_open(self) -> None:
        before = descriptors()
        made = stand(slots=2)
        made.start(slots=2)
        pids = [int(made.run("pid").result) for _ in range(2)]
        made.runner.close(1)
        gone(*pids)
        assert descriptors() == before


class TestLongAndShort:
    def test_nothing_is_taken_ahead_of_what_is_not_known_to_be_short(self, two: Stand, tmp_path: Path) -> None:
        assert two.runner.room() == 2
        held = [two.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / n)) for n in "ab"]
        assert two.runner.room() == 0
        (tmp_path / "go").touch()
        for each in held:
            two.outcome(each)

    def test_short_runs_are_taken_ahead_but_not_for_a_worker_that_is_stuck(self, two: Stand, tmp_path: Path) -> None:
        two.pump([NOTHING] * 200)
        assert two.runner.room() > 2
        held = [two.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / n)) for n in "ab"]
        until(lambda: two.runner.room() == 0, LONG_S, what="both workers are known to be stuck")
        (tmp_path / "go").touch()
        for each in held:
            two.outcome(each)

    def test_what_waits_behind_a_long_run_is_executed_elsewhere(self, two: Stand, tmp_path: Path) -> None:
        two.pump([NOTHING] * 200 + [("wait_for", {"path": "/", "started": str(tmp_path / "x")})] * 100)
        held = two.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        short = [two.submit("nothing") for _ in range(40)]  # some of them are in its socket
        assert {two.outcome(each).how for each in short} <= {How.SUCCEEDED, How.RETURNED}
        assert held.run_id not in two.outcomes
        (tmp_path / "go").touch()
        assert two.outcome(held).how == How.SUCCEEDED

    def test_what_waits_behind_long_runs_everywhere_is_handed_back(self, one: Stand, tmp_path: Path) -> None:
        one.pump([NOTHING] * 200)
        held = one.submit("hold_the_gil", path=str(tmp_path / "started"))
        short = [one.submit("nothing") for _ in range(40)]
        assert {one.outcome(each).how for each in short} == {How.RETURNED}
        assert held.run_id not in one.outcomes
        one.runner.stop(held.run_id, held.token, StopReason.LOST)

    def test_taking_back_returns_what_has_not_started_and_nothing_else(self, one: Stand, tmp_path: Path) -> None:
        one.pump([NOTHING] * 200)
        held = one.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        short = [one.submit("nothing") for _ in range(40)]
        said(tmp_path / "started")
        one.runner.take_back()
        assert {one.outcome(each).how for each in short} == {How.RETURNED}
        (tmp_path / "go").touch()
        assert one.outcome(held).how == How.SUCCEEDED


class TestDeath:
    def test_a_run_whose_worker_is_killed_has_crashed_and_the_others_go_on(self, two: Stand, tmp_path: Path) -> None:
        held = two.submit("sleep", duration_s=60, path=str(tmp_path / "pid"))
        os.kill(int(said(tmp_path / "pid")), signal.SIGKILL)
        outcome = two.outcome(held)
        assert outcome.how == How.CRASHED
        assert outcome.error == "its process was killed by signal 9 (out of memory?)"
        two.pump([NOTHING] * 100)

    @pytest.mark.parametrize(
        ("job", "params", "error"),
        [
            ("exit_hard", {"status": 3}, "its process exited with status 3"),
            ("die", {"how": int(signal.SIGSEGV)}, "its process was killed by signal 11"),
        ],
    )
    def test_the_error_says_how_it_died(self, one: Stand, job: str, params: dict[str, object], error: str) -> None:
        outcome = one.run(job, **params)
        assert (outcome.how, outcome.error) == (How.CRASHED, error)
        assert one.run("nothing").how == How.SUCCEEDED

    def test_only_the_run_that_was_executing_has_crashed(self, one: Stand) -> None:
        one.pump([NOTHING] * 500)
        one.submitted.clear()
        one.outcomes.clear()
        one.pump([NOTHING] * 100 + [("exit_hard", {"status": 1})] + [NOTHING] * 100)
        hows = Counter(outcome.how for outcome in one.outcomes.values())
        assert hows[How.CRASHED] == 1
        assert hows[How.SUCCEEDED] + hows[How.RETURNED] == 200  # back if the next worker takes a second to start

    def test_what_a_dead_worker_left_behind_ends_with_it(self, one: Stand, tmp_path: Path) -> None:
        left = one.submit("leave_children", path=str(tmp_path / "child"), status=1)
        assert one.outcome(left).how == How.CRASHED
        gone(int(said(tmp_path / "child")))

    def test_a_worker_does_not_outlive_its_guardian(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("sleep", duration_s=60, path=str(tmp_path / "pid"))
        pid = int(said(tmp_path / "pid"))
        os.kill(parent_of(pid), signal.SIGKILL)
        assert one.outcome(held).how == How.CRASHED
        assert not is_alive(pid)

    def test_each_claim_has_one_outcome_while_workers_are_killed_at_random(self, two: Stand) -> None:
        stopped = RUNTIME.event()
        killed: list[int] = []

        def kill_now_and_then() -> None:
            while not stopped.wait(0.1 + random.random() * 0.4):
                if busy := [handle.process.pid for handle in list(two.runner._pool.handles) if handle.assignments]:
                    killed.append(random.choice(busy))
                    with suppress(ProcessLookupError):
                        os.kill(killed[-1], signal.SIGKILL)

        task = RUNTIME.spawn("killer", kill_now_and_then)
        two.pump([("sleep", {"duration_s": 0.0005})] * 2_000)
        stopped.set()
        task.join()
        hows = Counter(outcome.how for outcome in two.outcomes.values())
        assert hows.keys() <= {How.SUCCEEDED, How.CRASHED, How.RETURNED}
        assert 0 < hows[How.CRASHED] <= len(killed)


class TestStopping:
    def test_a_cancelled_job_cleans_up_and_its_worker_is_replaced(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("clean_up", path=str(tmp_path / "x"))
        pid = int(said(tmp_path / "x.started"))
        one.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        assert one.outcome(held).how == How.CANCELLED
        assert said(tmp_path / "x.why") == "cancelled"
        assert (tmp_path / "x.cleaned").exists()
        assert not is_alive(pid)
        assert one.run("nothing").how == How.SUCCEEDED

    def test_cleaning_up_is_not_interrupted_a_second_time(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("clean_up", path=str(tmp_path / "x"), takes_s=0.5)
        said(tmp_path / "x.started")
        one.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        said(tmp_path / "x.why")
        one.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        one.runner.stop(held.run_id, held.token, StopReason.SHUTDOWN)
        assert one.outcome(held).how == How.CANCELLED
        assert (tmp_path / "x.cleaned").exists()

    def test_a_deaf_job_is_killed_after_its_grace(self, brisk: Stand, tmp_path: Path) -> None:
        held = brisk.submit("deaf", path=str(tmp_path / "pid"))
        pid = int(said(tmp_path / "pid"))
        stopped_at = RUNTIME.monotonic()
        brisk.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        assert brisk.outcome(held).how == How.CANCELLED
        assert RUNTIME.monotonic() - stopped_at >= BRISK.term_grace_s
        assert not is_alive(pid)

    def test_a_job_that_holds_the_interpreter_is_killed_at_its_timeout_while_others_go_on(
        self, brisk: Stand, tmp_path: Path
    ) -> None:
        held = brisk.submit("hold_the_gil", path=str(tmp_path / "pid"))
        pid = int(said(tmp_path / "pid"))
        others = [brisk.run("nothing").how for _ in range(20)]
        assert set(others) == {How.SUCCEEDED}
        outcome = brisk.outcome(held)
        assert (outcome.how, outcome.error_code) == (How.TIMED_OUT, "timeout")
        assert outcome.error == "stopped: it did not end within its timeout of 500ms"
        assert 500_000 + round(BRISK.term_grace_s * 1e6) <= outcome.took_us < 20_000_000
        assert not is_alive(pid)

    def test_the_outcome_is_told_when_all_that_the_job_started_is_gone(self, brisk: Stand, tmp_path: Path) -> None:
        held = brisk.submit("have_children", path=str(tmp_path / "pids"))
        pids = json.loads(said(tmp_path / "pids"))
        brisk.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        assert brisk.outcome(held).how == How.CANCELLED
        gone(*pids)

    def test_a_coroutine_is_cancelled(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("sleep_async", path=str(tmp_path / "x"))
        said(tmp_path / "x.started")
        one.runner.stop(held.run_id, held.token, StopReason.TIMED_OUT)
        assert one.outcome(held).how == How.TIMED_OUT
        assert (tmp_path / "x.cancelled").exists()
        assert (tmp_path / "x.cleaned").exists()

    def test_the_run_itself_sees_that_it_has_to_stop(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("check_until_stopped", path=str(tmp_path / "started"))
        said(tmp_path / "started")
        one.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
        assert one.outcome(held).how == How.CANCELLED

    def test_a_run_that_is_over_may_do_nothing_more(self, one: Stand, tmp_path: Path) -> None:
        one.run("outlive", path=str(tmp_path / "x"))
        one.run("nothing")
        (tmp_path / "x.go").touch()
        assert (said(tmp_path / "x.before"), said(tmp_path / "x.after")) == ("False", "True")

    def test_what_has_not_started_is_stopped_without_starting(self, one: Stand, tmp_path: Path) -> None:
        one.pump([NOTHING] * 200)
        held = one.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        waiting = one.submit("sleep", duration_s=0, path=str(tmp_path / "no"))
        short = one.submit("nothing")
        one.runner.stop(waiting.run_id, waiting.token, StopReason.CANCELLED)
        assert one.outcome(waiting).how == How.CANCELLED
        (tmp_path / "go").touch()
        assert one.outcome(held).how == How.SUCCEEDED
        assert one.outcome(short).how in (How.SUCCEEDED, How.RETURNED)
        assert not (tmp_path / "no").exists()

    def test_a_stop_for_another_token_or_another_run_is_ignored(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        said(tmp_path / "started")
        one.runner.stop(held.run_id, held.token - 1, StopReason.CANCELLED)
        one.runner.stop(held.run_id + 1, held.token, StopReason.CANCELLED)
        (tmp_path / "go").touch()
        assert one.outcome(held).how == How.SUCCEEDED

    def test_stopping_one_of_many_short_runs_never_hits_another(self, two: Stand) -> None:
        asked: set[int] = set()
        is_over = RUNTIME.event()

        def stop_the_oldest() -> None:  # it executes, and will have ended in a moment
            while not is_over.wait(0.02):
                for each in [two.submitted[run_id] for run_id, _ in list(two.runner._held)[:1]]:
                    asked.add(each.run_id)
                    two.runner.stop(each.run_id, each.token, StopReason.CANCELLED)

        task = RUNTIME.spawn("stopper", stop_the_oldest)
        two.pump([("sleep", {"duration_s": 0.001})] * 400)
        is_over.set()
        task.join()
        cancelled = {run_id for run_id, outcome in two.outcomes.items() if outcome.how == How.CANCELLED}
        assert cancelled <= asked
        hows = Counter(outcome.how for outcome in two.outcomes.values())
        assert hows.keys() <= {How.SUCCEEDED, How.CANCELLED, How.RETURNED}


class TestTrust:
    def test_nothing_is_taken_without_trust(self) -> None:
        made = stand()
        made.runner.start(made.news.set)
        refused = made.submit("nothing")
        assert made.outcome(refused).how == How.RETURNED
        assert made.runner.room() == 0
        made.trust()
        until(lambda: made.runner.room() == 1, LONG_S, what="there is room once there is trust")
        made.runner.close(0)

    def test_what_was_lost_is_killed_at_once_and_work_goes_on_with_new_trust(self, two: Stand, tmp_path: Path) -> None:
        held = [two.submit("deaf", path=str(tmp_path / name)) for name in "ab"]
        pids = [int(said(tmp_path / name)) for name in "ab"]
        waiting = two.submit("nothing")
        lost_at = RUNTIME.monotonic()
        two.runner.lose()
        assert [two.outcome(each).how for each in (*held, waiting)] == [How.LOST, How.LOST, How.RETURNED]
        assert gone(*pids) - lost_at < TIMINGS.term_grace_s
        assert two.runner.room() == 0
        two.trust()
        assert two.run("nothing").how == How.SUCCEEDED
        two.pump([NOTHING] * 10)

    def test_a_run_that_comes_again_is_not_taken_for_the_one_that_was_lost(self, tmp_path: Path) -> None:
        made = stand()
        made.start(slots=1)
        first = claim(1, "deaf", path=str(tmp_path / "pid"))
        made.runner.submit([first])
        said(tmp_path / "pid")
        made.runner.lose()
        made.trust()
        second = claim(1, "nothing")
        made.runner.submit([second])  # while the first one is still dying
        outcomes: dict[int, str] = {}

        def have_both_ended() -> bool:
            outcomes.update({outcome.token: outcome.how for outcome in made.runner.collect()})
            return len(outcomes) == 2

        until(have_both_ended, LONG_S, what="both have ended")
        assert outcomes.pop(first.token) == How.LOST
        assert outcomes.pop(second.token) in (How.SUCCEEDED, How.RETURNED)
        made.runner.close(0)

    def test_workers_are_dead_before_trust_that_is_not_extended_ends(self, tmp_path: Path) -> None:
        timings = Timings.of("3s")
        made = stand(timings=timings)
        made.start(slots=1)
        made.runner.close(0)
        made = stand(timings=timings)
        made.start(slots=1, trust_s=5)
        held = made.submit("deaf", path=str(tmp_path / "pid"))
        pid = int(said(tmp_path / "pid"))
        until_at = made.trust(5.5)
        assert gone(pid) < until_at
        assert made.outcome(held).how in (How.LOST, How.CRASHED)
        made.runner.close(0)

    def test_trust_is_never_shortened(self, one: Stand, tmp_path: Path) -> None:
        held = one.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        said(tmp_path / "started")
        one.trust(0)
        assert one.runner.room() == 0
        (tmp_path / "go").touch()
        assert one.outcome(held).how == How.SUCCEEDED
        assert one.runner.room() >= 1


class TestClosing:
    def test_what_runs_gets_its_grace_and_what_has_not_started_goes_back(self, tmp_path: Path) -> None:
        made = stand(timings=BRISK)
        made.start(slots=1)
        made.pump([NOTHING] * 200)
        held = made.submit("wait_for", path=str(tmp_path / "go"), started=str(tmp_path / "started"))
        waiting = [made.submit("nothing") for _ in range(10)]
        said(tmp_path / "started")
        task = RUNTIME.spawn("close", lambda: made.runner.close(LONG_S))
        assert {made.outcome(each).how for each in waiting} == {How.RETURNED}
        assert made.runner.room() == 0
        (tmp_path / "go").touch()
        assert made.outcome(held).how == How.SUCCEEDED
        task.join(LONG_S)
        assert made.outcome(made.submit("nothing")).how == How.RETURNED

    def test_what_does_not_end_is_stopped_and_has_crashed(self, tmp_path: Path) -> None:
        made = stand(timings=BRISK)
        made.start(slots=1)
        held = made.submit("clean_up", path=str(tmp_path / "x"))
        pid = int(said(tmp_path / "x.started"))
        made.runner.close(0.1)
        outcome = made.outcome(held)
        assert (outcome.how, outcome.error_code) == (How.INTERRUPTED, "shutdown")
        assert (tmp_path / "x.cleaned").exists()
        assert not is_alive(pid)


class TestTrouble:
    def test_an_application_that_does_not_load_is_told_in_a_sentence_and_not_tried_too_often(self) -> None:
        told: list[tuple[float, Event]] = []
        made = stand(
            app="tests.engine.no_such_module:app",
            slots=2,
            emit=lambda event: told.append((RUNTIME.monotonic(), event)),
        )
        made.runner.start(made.news.set)
        made.trust()
        until(lambda: len(told) >= 3, LONG_S, what="trouble is told again and again")
        made.runner.close(0)
        assert {event.what for _, event in told} == {What.RUNNER_WARNING}
        assert "no module named 'tests.engine.no_such_module'" in told[0][1].reason
        assert made.runner.room() == 0
        assert told[1][0] - told[0][0] >= 0.5
        assert told[2][0] - told[1][0] >= 1.0

    def test_a_worker_that_cannot_be_started_is_told(self) -> None:
        made = stand(command=["/no/such/python"])
        made.runner.start(made.news.set)
        made.trust()
        until(lambda: made.events, LONG_S, what="trouble is told")
        assert "could not be started" in made.events[0].reason
        made.runner.close(0)


class TestSupervisor:
    """What happens to workers when the process that started them is stopped or gone."""

    TTL_S = 9.0  # workers are killed a thirtieth of it before trust ends: on a busy machine a guardian wakes up late

    @pytest.fixture
    def supervisor(self, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([sys.executable, "-m", "tests.engine.supervisor", str(tmp_path), f"{self.TTL_S}s"])
        yield process
        process.kill()
        process.wait()

    def test_workers_of_a_killed_supervisor_are_gone_at_once(
        self, supervisor: subprocess.Popen[bytes], tmp_path: Path
    ) -> None:
        pids = [int(said(tmp_path / name)) for name in "ab"]
        killed_at = RUNTIME.monotonic()
        supervisor.kill()
        assert gone(*pids) - killed_at < 3.0

    def test_workers_of_a_stopped_supervisor_are_dead_before_trust_ends_and_it_finds_them_lost(
        self, supervisor: subprocess.Popen[bytes], tmp_path: Path
    ) -> None:
        pids = [int(said(tmp_path / name)) for name in "ab"]
        guardians = [parent_of(pid) for pid in pids]
        supervisor.send_signal(signal.SIGSTOP)
        died_at = gone(*pids)
        trusted_until = float(said(tmp_path / "until"))
        assert died_at < trusted_until
        gone(*guardians)
        until(lambda: RUNTIME.monotonic() > trusted_until, LONG_S, what="trust has ended")
        supervisor.send_signal(signal.SIGCONT)
        assert said(tmp_path / "outcomes") == "lost, lost"
        assert supervisor.wait(LONG_S) == 0

"""Jobs that are programs: told by their environment, answering by their exit status, dead when they have to be."""

import json
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.core.masked_values import MASKED, MaskedValues
from fencepost.core.policy import Policy
from fencepost.core.runs import StopReason
from fencepost.core.timings import Timings
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.runners.command import CommandRunner, environment
from fencepost.engine.runners.outcome import How
from fencepost.threaded import passing_on
from testbed.keeper import is_alive
from testbed.wait import until
from tests.engine.runner_stand import LONG_S, RUNTIME, TRUST_S, Stand, claim, descriptors, gone, said

BRISK = Timings.of("30s", term_grace="300ms")
SAYS = 'say() { printf "%s" "$2" > "$D/$1.new"; mv "$D/$1.new" "$D/$1"; }; '


def command(name: str, script: str, *, timeout: str | None = None) -> Job:
    return Job.of_command(["sh", "-c", SAYS + script], name=name, policy=Policy.of(timeout=timeout))


JOBS = Jobs(
    [
        command("fine", "exit 0"),
        command("later", "echo the bank is closed >&2; exit 75"),
        command("broken", "echo first >&2; echo cannot reach postgresql://me:secret@host >&2; exit 3"),
        command("talkative", "i=0; while [ $i -lt 3000 ]; do echo line $i of many >&2; i=$((i+1)); done; exit 1"),
        command("silent", "exit 1"),
        command("suicidal", "kill -9 $$"),
        command("environment", 'env | grep ^FENCEPOST > "$D/env"; cat > "$D/stdin"'),
        command("sleeping", "say pid $$; exec sleep 60"),
        command("polite", "trap 'say cleaned yes; exit 0' TERM; say pid $$; while :; do sleep 0.02; done"),
        command("deaf", "trap '' TERM; say pid $$; while :; do sleep 1; done"),
        command("slow", "say pid $$; exec sleep 60", timeout="1s"),
        command("parent", "sleep 60 & say child $!; exit 0"),
        command(
            "telling", 'printf "<looked-"; sleep 0.3; echo "up-value>"; echo looked-up-value >&2; printf "end: look"'
        ),
        command(
            "leaving",
            """setsid sh -c 'echo $$ > "$D/new"; mv "$D/new" "$D/left"; exec sleep 60' &
            while [ ! -e "$D/left" ]; do sleep 0.02; done; printf 'a patch'""",
        ),
        Job.of_command(["/no/such/program"], name="missing", policy=Policy.of()),
    ]
)


@pytest.fixture
def timings() -> Timings:
    return BRISK


@pytest.fixture
def stand(tmp_path: Path, timings: Timings) -> Iterator[Stand]:
    env = {**os.environ, "D": str(tmp_path), "FENCEPOST_DUE_AT": "old"}
    runner = CommandRunner(JOBS, slots=2, timings=timings, runtime=RUNTIME, env=env)
    made = Stand(runner)
    made.start(slots=2)
    yield made
    runner.close(0)
    made.collect()
    assert made.outcomes.keys() == made.submitted.keys()


@pytest.mark.parametrize("letter", ["가", "🔒", "a"])
def test_all_parameters_that_are_taken_fit_into_a_variable(letter: str) -> None:
    params = {"text": letter * (59_000 // len(letter.encode()))}
    told = environment({}, claim(7, "environment", **params))["FENCEPOST_PARAMS"]
    assert json.loads(told) == params
    assert len(told.encode()) <= 60_000


def test_a_program_is_told_what_it_runs_for(stand: Stand, tmp_path: Path) -> None:
    made = claim(7, "environment", account=3)._replace(
        due_at_us=None, schedule="nightly", window_start_us=1_700_000_000_000_000, window_end_us=1_700_000_060_000_000
    )
    stand.submit_all([made])
    assert stand.outcome(made).how == How.SUCCEEDED
    told = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    told = {name: value for name, value in told.items() if not name.startswith("FENCEPOST_TEST_")}  # not of a job
    assert json.loads(told.pop("FENCEPOST_PARAMS")) == {"account": 3}
    assert told == {
        "FENCEPOST_JOB": "environment",
        "FENCEPOST_RUN": "7",
        "FENCEPOST_ATTEMPT": "1",
        "FENCEPOST_TOKEN": str(made.token),
        "FENCEPOST_SCHEDULE": "nightly",
        "FENCEPOST_WINDOW_START": "2023-11-14T22:13:20Z",
        "FENCEPOST_WINDOW_END": "2023-11-14T22:14:20Z",
    }
    assert (tmp_path / "stdin").read_text() == ""


@pytest.mark.parametrize(
    ("job", "how", "code", "error"),
    [
        ("fine", How.SUCCEEDED, None, None),
        ("later", How.RETRY, "exit 75", "sh exited with status 75:\nthe bank is closed"),
        ("broken", How.FAILED, "exit 3", "sh exited with status 3:\nfirst\ncannot reach postgresql://me:***@host"),
        ("silent", How.FAILED, "exit 1", "sh exited with status 1; it wrote nothing to standard error"),
        (
            "suicidal",
            How.FAILED,
            "signal 9",
            "sh was killed by signal 9 (out of memory?); it wrote nothing to standard error",
        ),
        ("missing", How.FAILED, "not started", "cannot run '/no/such/program': No such file or directory"),
    ],
)
def test_it_answers_by_its_end(stand: Stand, job: str, how: How, code: str | None, error: str | None) -> None:
    outcome = stand.outcome(stand.submit(job))
    assert (outcome.how, outcome.error_code, outcome.error) == (how, code, error)


def test_of_what_it_wrote_the_end_is_kept_and_all_is_passed_on(stand: Stand, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = stand.outcome(stand.submit("talkative"))
    assert outcome.error.startswith("sh exited with status 1:\n")
    assert outcome.error.endswith("line 2999 of many")
    assert 3000 < len(outcome.error) <= 4000
    assert capfd.readouterr().err.count("of many") == 3000


@pytest.fixture
def masked() -> Iterator[MaskedValues]:
    """What is masked in this process, without what a test adds."""
    before = MASKED.__dict__.copy()
    MASKED.__dict__.update(MaskedValues().__dict__)
    yield MASKED
    MASKED.__dict__.update(before)


def test_values_of_secrets_are_masked_in_what_is_passed_on_and_in_the_log(
    masked: MaskedValues, capfd: pytest.CaptureFixture[str]
) -> None:
    held, logs = masked.add("looked-up-value"), RunLogs(RUNTIME)
    stand = Stand(CommandRunner(JOBS, slots=1, timings=BRISK, runtime=RUNTIME, logs=logs))
    stand.start(slots=1)
    assert stand.outcome(stand.submit("telling")).how == How.SUCCEEDED
    stand.runner.close(0)
    passing_on.flush()
    assert capfd.readouterr() == ("<***>\nend: look", "***\n")
    written = b"".join(zlib.decompress(chunk.text) for chunk in logs.take(1 << 20))
    assert sorted(written.splitlines()) == [b"***", b"<***>", b"end: look"]
    del held


def test_end_of_what_a_program_wrote_is_passed_on_though_one_that_it_left_behind_lives(
    masked: MaskedValues, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    held = masked.add("patch-of-a-secret")
    env = {**os.environ, "D": str(tmp_path)}
    stand = Stand(CommandRunner(JOBS, slots=1, timings=BRISK, runtime=RUNTIME, env=env))
    stand.start(slots=1)
    try:
        assert stand.outcome(stand.submit("leaving")).how == How.SUCCEEDED
        passing_on.flush()
        assert capfd.readouterr().out == "a patch"
    finally:
        os.kill(int(said(tmp_path / "left")), signal.SIGKILL)
        stand.runner.close(0)
    del held


def test_parameters_too_large_for_an_environment_are_told(stand: Stand) -> None:
    outcome = stand.outcome(stand.submit("fine", text="x" * 300_000))
    assert outcome.how == How.FAILED
    assert "parameters are too large" in outcome.error


@pytest.mark.parametrize("timings", [Timings.of("90s", term_grace="20s")], ids=["time to clean up"])
def test_a_cancelled_program_can_clean_up(stand: Stand, tmp_path: Path) -> None:
    held = stand.submit("polite")
    said(tmp_path / "pid")
    stand.runner.stop(held.run_id, held.token - 1, StopReason.CANCELLED)
    assert stand.runner.running() == 1
    stand.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
    assert stand.outcome(held).how == How.CANCELLED
    assert (tmp_path / "cleaned").exists()


def test_a_deaf_program_is_killed_after_its_grace(stand: Stand, tmp_path: Path) -> None:
    held = stand.submit("deaf")
    pid = int(said(tmp_path / "pid"))
    stopped_at = RUNTIME.monotonic()
    stand.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
    assert stand.outcome(held).how == How.CANCELLED
    assert RUNTIME.monotonic() - stopped_at >= BRISK.term_grace_s
    assert not is_alive(pid)


def test_it_is_stopped_at_its_timeout(stand: Stand, tmp_path: Path) -> None:
    outcome = stand.outcome(stand.submit("slow"))
    assert (outcome.how, outcome.error) == (How.TIMED_OUT, "stopped: it did not end within its timeout of 1s")
    assert outcome.took_us >= 1_000_000
    assert not is_alive(int(said(tmp_path / "pid")))


def test_what_is_lost_is_killed_at_once(stand: Stand, tmp_path: Path) -> None:
    held = stand.submit("deaf")
    pid = int(said(tmp_path / "pid"))
    lost_at = RUNTIME.monotonic()
    stand.runner.lose()
    assert stand.outcome(held).how == How.LOST
    assert gone(pid) - lost_at < 5
    assert stand.runner.room() == 0
    stand.trust()
    assert stand.outcome(stand.submit("fine")).how == How.SUCCEEDED


def test_what_it_leaves_behind_ends_with_it(stand: Stand, tmp_path: Path) -> None:
    assert stand.outcome(stand.submit("parent")).how == How.SUCCEEDED
    gone(int(said(tmp_path / "child")))


def test_it_is_dead_before_trust_that_is_not_extended_ends(tmp_path: Path) -> None:
    runner = CommandRunner(
        JOBS, slots=1, timings=Timings.of("3s"), runtime=RUNTIME, env={**os.environ, "D": str(tmp_path)}
    )
    made = Stand(runner)
    made.start(slots=1, trust_s=3.0)
    held = made.submit("deaf")
    trusted_until = made.trust(3.5)
    pid = int(said(tmp_path / "pid"))
    assert gone(pid) < trusted_until
    assert made.outcome(held).how in (How.LOST, How.CRASHED)
    runner.close(0)


def test_there_are_never_more_than_slots(stand: Stand, tmp_path: Path) -> None:
    held = [stand.submit("sleeping") for _ in range(2)]
    assert stand.runner.room() == 0
    assert stand.outcome(stand.submit("fine")).how == How.RETURNED
    said(tmp_path / "pid")
    for each in held:
        stand.runner.stop(each.run_id, each.token, StopReason.CANCELLED)
        assert stand.outcome(each).how == How.CANCELLED


def test_closing_waits_then_stops_and_leaves_nothing_open(tmp_path: Path) -> None:
    before = descriptors()
    runner = CommandRunner(JOBS, slots=2, timings=BRISK, runtime=RUNTIME, env={**os.environ, "D": str(tmp_path)})
    made = Stand(runner)
    made.start(slots=2, trust_s=TRUST_S)
    held = made.submit("deaf")
    pid = int(said(tmp_path / "pid"))
    runner.close(0.1)
    outcome = made.outcome(held)
    assert (outcome.how, outcome.error_code) == (How.INTERRUPTED, "shutdown")
    assert not is_alive(pid)
    assert made.outcome(made.submit("fine")).how == How.RETURNED
    until(lambda: descriptors() == before, LONG_S, what="nothing is left open")


def test_a_program_that_stops_itself_is_reached_by_its_end(stand: Stand, tmp_path: Path) -> None:
    held = stand.submit("sleeping")
    pid = int(said(tmp_path / "pid"))
    os.kill(pid, signal.SIGSTOP)
    stand.runner.stop(held.run_id, held.token, StopReason.CANCELLED)
    assert stand.outcome(held).how == How.CANCELLED
    assert not is_alive(pid)

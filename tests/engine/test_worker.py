"""What runs inside a worker process, with a line that a test holds the other end of; and what it stands on."""

import json
import mmap
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import ProgramExit
from fencepost.engine import wire
from fencepost.engine.loading import load_app
from fencepost.engine.runners import verdicts
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.engine.shared_page import SharedPage
from fencepost.engine.trust import NodeTrust, SharedPageTrust
from fencepost.engine.worker import Worker
from fencepost.errors import InvalidApp, Stopped
from fencepost.testing import ManualClock
from tests.engine.runner_stand import RUNTIME, claim

MATE = claim(5, "settle", account=3)
DONE = Outcome(MATE.run_id, MATE.attempt, MATE.token, How.SUCCEEDED, took_us=12)


class Line:
    """Messages from a list, answers into one. A message that is a function is called, as a signal would be."""

    def __init__(self, *messages: bytes | Callable[[], None]) -> None:
        self.shared = memoryview(mmap.mmap(-1, 4096))
        self.messages = deque(messages)
        self.answers: list[bytes] = []
        self.passed_on = 0
        self.look: Callable[[], None] = lambda: None
        self.end: Callable[[], None] = lambda: None

    def at_hand(self) -> bytes | None:
        return self.messages.popleft() if self.messages and isinstance(self.messages[0], bytes) else None

    def receive(self) -> bytes | None:
        while self.messages:
            message = self.messages.popleft()
            if isinstance(message, bytes):
                return message
            message()
        return None

    def answer(self, line: bytes) -> None:
        self.answers.append(line)

    def heed(self, *, look: Callable[[], None], end: Callable[[], None]) -> None:
        self.look, self.end = look, end

    def pass_on_term(self) -> None:
        self.passed_on += 1

    def read(self) -> list[object]:
        return [json.loads(line) for line in self.answers]


class Job:
    """An executor whose one job is a function of the test."""

    def __init__(self, work: Callable[[Claim], Outcome | None] = lambda _: None, *, cancels: bool = False) -> None:
        self.work = work
        self.cancels = cancels
        self.cancelled = 0
        self.executed: list[Claim] = []

    def execute(self, made: Claim) -> Outcome:
        self.executed.append(made)
        return self.work(made) or Outcome(made.run_id, made.attempt, made.token, How.SUCCEEDED, took_us=1)

    def cancel(self) -> bool:
        self.cancelled += 1
        return self.cancels


def served(line: Line, job: Job) -> int:
    line.messages.appendleft(wire.greeting_message(wire.Greeting("shop:app")))
    return Worker(line, RUNTIME).run(lambda greeting, trust: job)


class TestWorker:
    def test_claims_are_executed_in_turn_and_answered_at_once(self) -> None:
        line = Line(wire.claim_message(1, MATE), wire.claim_message(2, MATE))
        job = Job(lambda _: answered.append(len(line.answers)))
        answered: list[int] = []
        assert served(line, job) == 0
        assert line.read() == [["ready"], [1, "succeeded", 1], [2, "succeeded", 1]]
        assert answered == [1, 2]
        assert job.executed == [MATE, MATE]

    def test_the_board_shows_a_claim_before_it_is_executed(self) -> None:
        line = Line(wire.claim_message(7, MATE))
        shown: list[int] = []
        served(line, Job(lambda _: shown.append(SharedPage(line.shared).executing()[0])))
        assert shown == [7]

    def test_a_stop_is_raised_in_the_job_once_and_is_its_last(self) -> None:
        line = Line(wire.claim_message(1, MATE), wire.claim_message(2, MATE))
        raised: list[str] = []

        def work(_: Claim) -> None:
            SharedPage(line.shared).stop(1, StopReason.CANCELLED)
            try:
                line.look()
            except Stopped as stopped:
                raised.append(stopped.reason)
                line.look()
                line.end()
                raise

        job = Job(work)
        served(line, job)
        assert raised == ["cancelled"]
        assert line.read()[1][:3] == ["interrupted", 1, "failed"]
        assert len(job.executed) == 1
        assert line.passed_on == 1

    def test_a_stop_that_comes_late_does_not_hit_the_next(self) -> None:
        line = Line(wire.claim_message(1, MATE), wire.claim_message(2, MATE))

        def work(_: Claim) -> None:
            SharedPage(line.shared).stop(1, StopReason.CANCELLED)
            if SharedPage(line.shared).executing()[0] == 2:
                line.look()

        served(line, Job(work))
        assert line.read() == [["ready"], [1, "succeeded", 1], [2, "succeeded", 1]]

    def test_a_claim_that_was_stopped_before_it_began_does_not_begin(self) -> None:
        line = Line(wire.claim_message(1, MATE))
        SharedPage(line.shared).stop(1, StopReason.TIMED_OUT)
        job = Job()
        served(line, job)
        assert job.executed == []
        assert line.read()[1][:2] == ["interrupted", 1]

    def test_a_coroutine_is_cancelled_and_nothing_is_raised(self) -> None:
        line = Line(wire.claim_message(1, MATE))

        def work(_: Claim) -> None:
            SharedPage(line.shared).stop(1, StopReason.TIMED_OUT)
            line.look()

        job = Job(work, cancels=True)
        served(line, job)
        assert job.cancelled == 1
        assert line.read()[1][:3] == ["interrupted", 1, "succeeded"]

    def test_told_to_end_while_it_waits_it_takes_nothing_more(self) -> None:
        line = Line()

        def end() -> None:
            line.end()

        line.messages.extend([end, wire.claim_message(1, MATE)])
        job = Job()
        assert served(line, job) == 0
        assert job.executed == []

    def test_told_to_end_as_it_takes_a_claim_that_is_at_hand_it_does_not_begin_it(self) -> None:
        class Late(Line):
            def at_hand(self) -> bytes | None:
                message = super().at_hand()
                if len(self.answers) == 2:  # one claim is done: this is the next
                    self.end()
                return message

        line, job = Late(wire.claim_message(1, MATE), wire.claim_message(2, MATE)), Job()
        assert served(line, job) == 0
        assert len(job.executed) == 1
        assert line.read() == [["ready"], [1, "succeeded", 1]]
        assert line.messages == deque()

    def test_told_to_end_just_before_a_claim_begins_it_does_not_begin_it(self) -> None:
        line, job = Line(wire.claim_message(1, MATE)), Job()

        class Trust(SharedPageTrust):
            def begin(self, serial: int, claim: Claim) -> None:
                line.end()
                super().begin(serial, claim)

        line.messages.appendleft(wire.greeting_message(wire.Greeting("shop:app")))
        worker = Worker(line, RUNTIME)
        worker._trust = Trust(worker._page, RUNTIME.monotonic)
        assert worker.run(lambda greeting, trust: job) == 0
        assert job.executed == []
        assert line.read()[1][:3] == ["interrupted", 1, "failed"]

    def test_told_to_end_while_it_executes_it_interrupts(self) -> None:
        line = Line(wire.claim_message(1, MATE), wire.claim_message(2, MATE))
        job = Job(lambda _: line.end())
        served(line, job)
        assert line.read()[1][:2] == ["interrupted", 1]
        assert "lost" in line.answers[1].decode()
        assert len(job.executed) == 1

    def test_whatever_escapes_from_a_job_is_a_failure(self) -> None:
        def work(_: Claim) -> None:
            raise KeyboardInterrupt("whim")

        line = Line(wire.claim_message(1, MATE), wire.claim_message(2, MATE))
        served(line, Job(work))
        assert [answer[:2] for answer in line.read()[1:]] == [[1, "failed"], [2, "failed"]]

    def test_an_application_that_does_not_load_is_told(self) -> None:
        line = Line(wire.greeting_message(wire.Greeting("shop:app")))

        def load(greeting: wire.Greeting, _: SharedPageTrust) -> Job:
            raise InvalidApp(f"{greeting.app} has no wheels; see postgresql://me:secret@host")

        assert Worker(line, RUNTIME).run(load) == 1
        assert line.read() == [["failed", "shop:app has no wheels; see postgresql://me:***@host"]]

    def test_without_a_supervisor_it_ends(self) -> None:
        assert Worker(Line(), RUNTIME).run(lambda *_: Job()) == 0


class TestWire:
    @pytest.mark.parametrize(
        "outcome",
        [
            DONE,
            DONE._replace(result='{"a": "é\\n"}'),
            DONE._replace(how=How.FAILED, error_code="ValueError", error="no\nsuch", trace="…", retry_after_us=5),
        ],
    )
    def test_an_outcome_crosses_unchanged(self, outcome: Outcome) -> None:
        line = wire.outcome_line(3, outcome)
        assert line.count(b"\n") == 1
        [answer] = wire.read_lines([line.removesuffix(b"\n")])
        assert wire.outcome_of(MATE, answer) == outcome
        [interrupted] = wire.read_lines([wire.interrupted_line(3, outcome).removesuffix(b"\n")])
        assert interrupted == ["interrupted", *answer]

    def test_a_claim_crosses_unchanged(self) -> None:
        assert wire.read_claim(wire.claim_message(9, MATE)) == (9, MATE)

    def test_a_greeting_crosses_unchanged(self) -> None:
        for greeting in (wire.Greeting("shop:app"), wire.Greeting("shop:app", "node-1", "logs:configure")):
            assert wire.read_greeting(wire.greeting_message(greeting)) == greeting


class TestTrust:
    @pytest.fixture
    def page(self) -> SharedPage:
        return SharedPage(memoryview(bytearray(4096)))

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def test_a_new_board_trusts_nobody(self, page: SharedPage, clock: ManualClock) -> None:
        trust = SharedPageTrust(page, clock)
        trust.begin(1, MATE)
        assert trust.stopped(MATE.run_id, MATE.token) is StopReason.LOST

    def test_trust_ends_with_the_clock(self, page: SharedPage, clock: ManualClock) -> None:
        trust = SharedPageTrust(page, clock)
        trust.begin(1, MATE)
        page.trust(clock() + 5)
        assert trust.stopped(MATE.run_id, MATE.token) is None
        clock.advance(5)
        assert trust.stopped(MATE.run_id, MATE.token) is StopReason.LOST

    def test_only_the_claim_that_executes_is_trusted(self, page: SharedPage, clock: ManualClock) -> None:
        trust = SharedPageTrust(page, clock)
        page.trust(clock() + 5)
        assert trust.stopped(MATE.run_id, MATE.token) is StopReason.LOST
        trust.begin(1, MATE)
        assert trust.stopped(MATE.run_id, MATE.token - 1) is StopReason.LOST
        trust.begin(2, MATE._replace(run_id=6))
        assert trust.stopped(MATE.run_id, MATE.token) is StopReason.LOST

    @pytest.mark.parametrize("why", list(StopReason))
    def test_a_stop_names_its_claim_and_its_reason(self, page: SharedPage, clock: ManualClock, why: StopReason) -> None:
        trust = SharedPageTrust(page, clock)
        page.trust(clock() + 5)
        page.stop(2, why)
        trust.begin(1, MATE)
        assert trust.reason is None
        trust.begin(2, MATE)
        assert trust.reason is why
        assert trust.lost

    def test_what_is_lost_is_lost_for_all(self, page: SharedPage, clock: ManualClock) -> None:
        page.trust(clock() + 5)
        page.lose()
        assert page.stopped(1) is page.stopped(2) is StopReason.LOST

    def test_in_one_process_trust_is_extended_never_shortened_and_lost(self, clock: ManualClock) -> None:
        trust = NodeTrust(clock)
        assert trust.stopped(1, 2) is StopReason.LOST
        trust.extend(clock() + 5)
        trust.extend(clock() + 1)
        clock.advance(4)
        assert trust.stopped(1, 2) is None
        trust.stop(1, 2, StopReason.CANCELLED)
        trust.stop(1, 2, StopReason.TIMED_OUT)
        assert trust.stopped(1, 2) is StopReason.CANCELLED
        assert trust.stopped(1, 3) is None
        trust.forget(1, 2)
        assert trust.stopped(1, 2) is None
        trust.lose()
        assert trust.stopped(1, 2) is StopReason.LOST


class TestVerdicts:
    def test_a_process_that_was_ended_from_outside_says_by_what(self) -> None:
        outcome = verdicts.crashed(MATE, ProgramExit(-9, "its trust was not extended"), took_us=3)
        assert (outcome.how, outcome.took_us) == (How.CRASHED, 3)
        assert outcome.error == "its process was ended: its trust was not extended"

    @pytest.mark.parametrize(
        ("why", "how"),
        [
            (StopReason.CANCELLED, How.CANCELLED),
            (StopReason.TIMED_OUT, How.TIMED_OUT),
            (StopReason.LOST, How.RETURNED),
            (StopReason.SHUTDOWN, How.RETURNED),
        ],
    )
    def test_what_never_began_did_not_crash(self, why: StopReason, how: How) -> None:
        assert verdicts.stopped_unstarted(MATE, why).how == how


class TestLoading:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        before = set(sys.modules)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.chdir(tmp_path)
        yield tmp_path
        for name in set(sys.modules) - before:
            if name.startswith("shop"):
                del sys.modules[name]

    def test_an_application_is_found_in_the_current_folder(self, folder: Path) -> None:
        (folder / "shop_here.py").write_text("from tests.engine.shop import app")
        assert load_app("shop_here:app") is load_app("tests.engine.shop:app") is load_app("shop_here")

    @pytest.mark.parametrize(
        ("spec", "sentence"),
        [
            ("shop_none:app", "cannot load 'shop_none:app': no module named 'shop_none' in /"),
            ("tests.no.where:app", "no module named 'tests.no' in /"),
            ("tests.engine.shop:ap", "module 'tests.engine.shop' has no attribute 'ap'; it has: app"),
            ("tests.engine.shop:not_an_app", "'tests.engine.shop:not_an_app' is not an App but of type int; make one"),
            ("shop/jobs.py:app", "is a path; name the module instead, as in 'shop.jobs:app'"),
            ("shop jobs", "does not name an application; write 'package.module:app'"),
            ("", "does not name an application"),
            ("json:app", "module 'json' has no attribute 'app'; there are: "),
        ],
    )
    def test_what_cannot_be_loaded_is_told_in_a_sentence(self, folder: Path, spec: str, sentence: str) -> None:
        with pytest.raises(InvalidApp) as caught:
            load_app(spec)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("import nowhere_to_be_found", "shop_bad.py:1 with ModuleNotFoundError: No module named 'nowhere"),
            ("x = 1\nraise RuntimeError('postgresql://me:secret@host')", "shop_bad.py:2 with RuntimeError: postgresql"),
            ("def f(:\n", "importing 'shop_bad' failed with SyntaxError"),
            ("import sys\nsys.exit(4)", "shop_bad.py:2 with SystemExit: 4"),
            ("from fencepost import App\n\napp = App(ttl='1ms')", "shop_bad.py:3 with InvalidSetting"),
        ],
    )
    def test_a_module_that_fails_is_told_with_its_place(self, folder: Path, text: str, sentence: str) -> None:
        (folder / "shop_bad.py").write_text(text)
        with pytest.raises(InvalidApp) as caught:
            load_app("shop_bad:app")
        assert sentence in str(caught.value)
        assert "secret" not in str(caught.value)

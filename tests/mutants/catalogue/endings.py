"""Attempts that end twice, or somebody else's; retries that come too often or too soon."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_SQLITE = "fencepost.ledger.dialects.statements_sqlite"
_RETRY = "fencepost.core.retry"
_HANDLE = "fencepost.engine.runners.worker_handle:WorkerHandle"
_TEST = "tests/ledger/test_finishing.py::"
_HANDLE_TEST = "tests/engine/test_worker_handle.py::"

ENDINGS = (
    mutant(
        "failure without its traceback",
        "the log says that a run has failed, and not where",
        Code("fencepost.observe.logs:_write", "record.exc_text = event.trace", "record.exc_text = None"),
        tests="tests/app/test_run.py::test_the_traceback_of_a_failed_run_is_in_the_log_in_every_format[TextFormatter]",
    ),
    mutant(
        "record without its run",
        "what a module's own logger writes inside a run does not say of which run it is",
        Code("fencepost.observe.logs:_known", "if (fields := find()) is not None", "if (fields := find()) is False"),
        tests="tests/app/test_run.py::"
        "test_any_logger_inside_a_run_says_of_which_run_it_speaks_and_keeps_what_was_passed_as_extra",
    ),
    mutant(
        "the last ones sent come back",
        "what is recalled from a worker is taken for what was sent to it last",
        Code(
            f"{_HANDLE}.take_back",
            "map(wire.serial_of, self.process.recall())",
            "list(self.assignments)[len(self.assignments) - len(self.process.recall()) :]",
        ),
        tests=f"{_HANDLE_TEST}test_what_a_worker_takes_in_the_middle_of_a_recall_stays_with_it_and_nothing_else_does",
    ),
    mutant(
        "one end spares another",
        "the end of a run that was to stop takes back the order to kill its worker, whoever else it is for",
        Code(f"{_HANDLE}.done", "min((held.kill_at for held in self.assignments.values()), default=_NEVER)", "_NEVER"),
        tests=f"{_HANDLE_TEST}test_the_end_of_one_that_was_to_stop_does_not_spare_another_that_is",
    ),
    mutant(
        "finish without the token",
        "an ending is believed without comparing its token",
        Text(f"{_SQLITE}:_KEEP", " AND r.token = :token", ""),
        Text(f"{_SQLITE}:_END", " AND r.token = :token", ""),
        tests=f"{_TEST}TestRefusedEndings::test_after_somebody_else_took_it_over[sqlite]",
    ),
    mutant(
        "finish without token or attempt",
        "an ending is believed if the run runs, whoever runs it",
        Text(f"{_SQLITE}:_KEEP", " AND r.token = :token AND r.attempts = :attempt", ""),
        Text(f"{_SQLITE}:_END", " AND r.token = :token AND r.attempts = :attempt", ""),
        tests=f"{_TEST}TestRefusedEndings::test_after_somebody_else_took_it_over[sqlite]",
    ),
    mutant(
        "ended run ends again",
        "an ending is believed although the run has ended",
        Text(f"{_SQLITE}:_END", " AND r.state = 'running'", ""),
        tests=f"{_TEST}TestRefusedEndings::test_another_outcome_after_it_ended[sqlite]",
    ),
    mutant(
        "ending without its attempt",
        "a run ends, and its attempt leaves no row",
        Text(f"{_SQLITE}:_KEEP", ":outcome IS NOT NULL AND", ":outcome = 'failed' AND"),
    ),
    mutant(
        "ending forgotten in an outage",
        "endings that the ledger did not take are dropped",
        Code(
            "fencepost.engine.exchange:Exchange._end",
            "self._batch = max(1, len(batch) // 2)",
            "self._batch = max(1, len(batch) // 2)\n        self._ended.clear()",
        ),
    ),
    mutant(
        "repeated finish is refused",
        "a finish whose answer was lost is not recognized when it is repeated",
        Code("fencepost.ledger.finishing:_refused", "_identity(each) not in kept", "True"),
        tests="tests/ledger/test_finishing.py::TestRepeatedFinish::test_is_recognized_as_ours[sqlite]",
    ),
    mutant(
        "repeated finish is an attempt",
        "a finish whose answer was lost is repeated as a new attempt",
        Text(
            f"{_SQLITE}:_END",
            "WHERE r.id = :id AND r.token = :token AND r.attempts = :attempt AND r.state = 'running'",
            "WHERE r.id = :id AND r.token = :token AND r.state IN ('running', 'succeeded')",
        ),
        Text(
            f"{_SQLITE}:_KEEP",
            "SELECT r.id, r.attempts, r.node",
            "SELECT r.id, 1 + (SELECT count(*) FROM {attempt} a WHERE a.run_id = r.id), r.node",
        ),
        Text(
            f"{_SQLITE}:_KEEP",
            "r.id = :id AND r.token = :token AND r.attempts = :attempt AND r.state = 'running'",
            "r.id = :id AND r.token = :token AND r.state IN ('running', 'succeeded')",
        ),
        tests="tests/ledger/test_finishing.py::TestRepeatedFinish::test_is_recognized_as_ours[sqlite]",
    ),
    mutant(
        "crash limit ignored",
        "a run that kills its node is run again for ever",
        Code(f"{_RETRY}:after_loss", "crashes >= policy.crash_limit", "False"),
        tests="tests/engine/test_exchange.py::test_worker_that_crashes_once_too_often_is_told_of_as_a_run_that_was_given_up[sqlite]",
    ),
    mutant(
        "crashes count as failures",
        "an attempt that was lost uses up a retry",
        Code("fencepost.core.ending:_fate_of_failed", "claim.failures + 1", "claim.failures + claim.crashes + 1"),
        tests="tests/core/test_ending.py::test_crashes_do_not_count_as_failures_nor_failures_as_crashes",
    ),
    mutant(
        "one retry too many",
        "a run fails once more often than its policy allows",
        Code(f"{_RETRY}:after_failure", "attempts_failed > policy.retries", "attempts_failed > policy.retries + 1"),
        tests="tests/core/test_retry.py::test_there_are_as_many_attempts_as_one_and_the_retries",
    ),
    mutant(
        "no back-off",
        "a failed run is tried again at once",
        Code("fencepost.core.ending:_fate_of_failed", "delay_us=round(decision.delay_s * 1_000_000)", "delay_us=0"),
    ),
    mutant(
        "timeout ignored",
        "a run that takes longer than its timeout goes on",
        Code("fencepost.engine.runners.local:LocalRunner._check", "for claim in overdue:", "for claim in []:"),
        tests="tests/engine/test_thread_runner.py::TestThreads::test_run_that_outlives_its_timeout_is_stopped",
    ),
    mutant(
        "final transaction ends nothing",
        "a transaction that is to end its run commits without ending it",
        Code("fencepost.engine.transactions:_transaction", "_finish(run, attempt) if final else None", "None"),
        tests="tests/app/test_transaction.py::"
        "test_a_final_transaction_ends_the_run_with_its_effects[sqlite-read committed]",
    ),
    mutant(
        "shutdown is a crash",
        "an orderly shutdown counts against the crash limit",
        Code(
            "fencepost.core.ending:_fate",
            "return _fate_of_interrupted(policy)",
            "return fate_of_lost(after_loss(policy, crashes=claim.crashes + 1))",
        ),
        tests="tests/engine/test_stopping.py::test_shutdowns_in_a_row_interrupt_a_run_and_end_it_never[sqlite]",
    ),
)

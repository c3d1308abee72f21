"""What people ask for, and what is done twice, or not at all."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_SQLITE = "fencepost.ledger.dialects.statements_sqlite"
_TEST = "tests/ledger/test_requests.py::"
_ONCE = "tests/fence/test_idempotency.py::"

REQUESTS = (
    mutant(
        "key forgotten with its run",
        "a request under a key is made once more, when the run that stood for it is pruned before the key's time",
        Code(
            "fencepost.ledger.pruning:_prune_runs",
            "and_(over, _is_not_recognized(database, _before(retention.requests, now_us)))",
            "over",
        ),
        tests="tests/ledger/test_history.py::TestPruning::"
        "test_a_request_with_a_key_is_recognized_for_as_long_as_that_says_and_others_are_not_kept[sqlite]",
    ),
    mutant(
        "success of a repetition not seen",
        "what was given up is repeated although somebody has repeated it, and that succeeded",
        Code("fencepost.ledger.requests:reprocess", "row.id not in repeated_by", "True"),
        tests="tests/ledger/test_duplicates.py::TestRetry::"
        "test_reprocessing_leaves_out_what_has_succeeded_at_whatever_depth[sqlite]",
    ),
    mutant(
        "repetition pruned before its original",
        "the key of a repetition goes with it, and what was given up is repeated once more",
        Code(
            "fencepost.ledger.pruning:_prune_runs",
            "(~_repeats_what_is_there(database.tables),",
            "(~_comes_after_others(database.tables),",
        ),
        tests="tests/ledger/test_history.py::TestPruning::test_a_repetition_is_kept_as_long_as_what_it_repeats[sqlite]",
    ),
    mutant(
        "cancel lost at a retry",
        "a run that is to be cancelled is tried again when it fails",
        Text(f"{_SQLITE}:_END", "r.cancel_requested_at IS NOT NULL THEN 'cancelled'", "false THEN 'cancelled'"),
        tests="tests/ledger/test_finishing.py::TestBelievedEndings::"
        "test_run_that_is_to_be_cancelled_is_not_tried_again[sqlite-failed]",
    ),
    mutant(
        "cancel not told",
        "the node that runs it is never told that it is to be cancelled",
        Text("fencepost.ledger.looking:_LOOK", "AND r.cancel_requested_at IS NOT NULL)", "AND false)"),
        tests="tests/engine/test_node.py::test_a_run_can_be_cancelled_while_it_runs[sqlite]",
    ),
    mutant(
        "ended run cancelled",
        "a run that has ended is cancelled afterwards",
        Code("fencepost.ledger.requests:_cancelled", "if is_terminal(state):", "if False:"),
        tests=f"{_TEST}TestCancel::test_what_has_ended_stays_as_it_is[sqlite]",
    ),
    mutant(
        "cancel strands the next in line",
        "the run behind one that is cancelled waits for a key that nobody has",
        Code("fencepost.ledger.requests:cancel", "outcome is Cancelled.NOW and", "False and"),
        tests=f"{_TEST}TestCancel::test_the_next_in_line_for_its_key_does_not_wait_for_ever[sqlite]",
    ),
    mutant(
        "request hash ignored",
        "another request under a key that was used gets the run of the first",
        Code(
            "fencepost.ledger.recording:_found",
            "params_hash != request.params_hash or (not params_hash and job != request.job)",
            "False",
        ),
        tests=f"{_TEST}TestEnqueue::test_a_key_used_for_something_else_is_refused_and_nothing_enqueued[sqlite-changes0]",
    ),
    mutant(
        "repeated by two at once",
        "of two who repeat a run at once, both make one",
        Code("fencepost.ledger.requests:retry", "{} if again else live_repetitions(database, cursor, [run_id])", "{}"),
        tests="tests/ledger/test_duplicates.py::TestRetry::"
        "test_a_run_whose_repetition_is_under_way_is_not_repeated_unless_somebody_insists[sqlite]",
    ),
    mutant(
        "unique requests not held",
        "of two who ask for the same at once, both get a run of their own",
        Code("fencepost.ledger.requests:enqueue_unique", "hold(database, cursor, request.job, newcomer)", "pass"),
        tests="tests/ledger/test_duplicates.py::TestUnique::test_of_those_who_ask_at_once_one_makes_the_run[postgresql]",
    ),
    mutant(
        "progress of a lost attempt",
        "an attempt that lost its run shows its progress all the same",
        Text("fencepost.ledger.running_runs:_PROGRESS", "AND token = %s", "AND %s > 0"),
        tests="tests/ledger/test_looking.py::test_check_and_progress_compare_the_token[sqlite]",
    ),
    mutant(
        "run.check without the token",
        "a run that was taken over is told that it is still its own",
        Text("fencepost.ledger.running_runs:_CHECK", "AND r.token = %s", "AND %s > 0"),
        tests="tests/ledger/test_looking.py::test_check_and_progress_compare_the_token[sqlite]",
    ),
    mutant(
        "key in a transaction of its own",
        "an idempotency key is kept although the work that it stands for was rolled back",
        Code(
            "fencepost.fence.keys:take",
            "            return True",
            "            landing.execute('COMMIT', [])\n            return True",
        ),
        tests=f"{_ONCE}TestOnce::test_a_key_that_is_rolled_back_was_never_offered[sqlite3]",
    ),
    mutant(
        "failed work counts as done",
        "a key stays when its work has failed",
        Code("fencepost.fence.idempotency:_performed", "give_back(landing, wanted.key)", "pass"),
        tests=f"{_ONCE}TestIdempotent::test_work_that_fails_was_not_done_even_if_somebody_commits[sqlite3]",
    ),
    mutant(
        "payload not compared",
        "other arguments under the same key get the first one's result",
        Code("fencepost.fence.idempotency:_replayed", "found.payload_hash != wanted.payload_hash", "False"),
        tests=f"{_ONCE}TestIdempotent::test_other_arguments_under_the_key_are_refused[sqlite3]",
    ),
    mutant(
        "valid key taken as expired",
        "a key whose time is not over is given again",
        Code("fencepost.fence.keys:_take_expired", "AND expires_at <= {landing.now}", "AND expires_at IS NOT NULL"),
        tests=f"{_ONCE}TestOnce::test_of_two_who_take_an_expired_key_one_gets_it[pymysql]",
    ),
    mutant(
        "once is always",
        "a key that was taken is given again",
        Code("fencepost.fence.idempotency:once_by", "return take(", "return not None or take("),
    ),
    mutant(
        "sequence without comparing",
        "a sequence moves from wherever it is",
        Code("fencepost.fence.sequence:Sequence._move", "AND position = %s", "AND position <> %s || 'x'"),
        tests="tests/fence/test_sequence.py::test_who_believes_it_elsewhere_is_told_where_it_is[sqlite3-4]",
    ),
)

"""Fences that let in who has lost its right to write."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_RULE = "fencepost.core.fencing"
_ROW = "fencepost.fence.fence_row"
_TRANSACTION = "fencepost.fence.transaction:FencedTransaction"
_TABLE = "tests/core/test_fencing.py::test_the_table_of_the_module_holds"
_ORDERS = "tests/fence/test_interleavings.py"
_ROWS = "tests/fence/test_fence_row.py"

_LEDGERS = "tests/fence/test_two_ledgers.py"
_VERSIONS = f"{_LEDGERS}::TestTwoVersions"

FENCES = (
    mutant(
        "fences of single runs stay",
        "the fence of a run that excludes nobody is never removed: one row for each run, for ever",
        Code("fencepost.engine.which_fence:fence_of", "if attempt.claim.exclusive_key is not None:", "if True:"),
        tests=f"{_ROWS}::TestWhoMayRaiseIt::"
        "test_those_of_runs_that_ended_long_ago_go_by_themselves_and_still_refuse[sqlite]",
    ),
    mutant(
        "marks of single runs stay",
        "a service that checks tokens keeps a mark for each run that excludes nobody, for ever",
        Code("fencepost.fence.marks:is_of_one_run", "_OF_ONE_RUN.fullmatch(key) is not None", "False"),
        tests="tests/fence/test_sql_marks.py::TestAdmit::test_those_of_single_runs_do_not_stay_for_ever[sqlite]",
    ),
    mutant(
        "fence without its ledger",
        "jobs of one name in two ledgers keep each other out of the database that both write to",
        Code("fencepost.ledger.naming:Naming.fence", 'f"ledger:{self.ledger}:{key}"', "key"),
        tests=f"{_LEDGERS}::TestTwoLedgers::test_runs_of_one_number_and_jobs_of_one_name_do_not_keep_each_other_out"
        "[sqlite-queue]",
    ),
    mutant(
        "older fence not compared",
        "beside older nodes, a stale writer looks at the new name of its fence alone",
        Code("fencepost.engine.attempt:Attempt.shown", "if naming.is_mixed else None", "if False else None"),
        tests=f"{_VERSIONS}::test_a_stale_writer_of_this_one_is_refused_after_its_successor_of_the_older_one[sqlite]",
    ),
    mutant(
        "older fence not raised",
        "a successor raises the new name of its fence alone, and its predecessor on an older node goes on",
        Code(f"{_ROW}:FenceRow.keys", "(fitted(self.former), self.key)", "(self.key,)"),
        tests=f"{_VERSIONS}::test_a_stale_writer_of_the_older_one_is_refused_after_its_successor_of_this_one[sqlite]",
    ),
    mutant(
        "older token let in",
        "a fence lets in a token below its mark",
        Code(f"{_RULE}:refusal", "offered.token < mark.token", "False"),
        Code(f"{_RULE}:refusal", "offered.grant_id != mark.grant_id", "False"),
        tests=_TABLE,
    ),
    mutant(
        "equal token of another grant",
        "two grants with one token are both let in",
        Code(f"{_RULE}:refusal", "offered.grant_id != mark.grant_id", "False"),
        tests=_TABLE,
    ),
    mutant(
        "token from the future",
        "a token far ahead raises the mark, and keeps out everybody after it",
        Code(f"{_RULE}:refusal", "now_us is not None and", "False and"),
        tests="tests/core/test_fencing.py::test_a_token_may_be_a_day_ahead_and_no_more",
    ),
    mutant(
        "lost lease comes to the fence",
        "a holder that knows that it is lost shows its token all the same",
        Code(f"{_RULE}:fencing_of", 'getattr(claimant, "lost", False)', "False"),
        tests="tests/fence/test_runs_and_leases.py::test_a_lease_that_knows_it_is_lost_does_not_even_come_to_the_fence",
    ),
    mutant(
        "fence raised without comparing",
        "whoever comes raises the mark to its own token",
        Code(f"{_ROW}:_compared_and_raised", "next(filter(None, refusals), None) or", "None or"),
        Code(f"{_ROW}:_compared_and_raised", "mark.token < row.token", "True"),
        tests=f"{_ROWS}::TestWhoMayRaiseIt::test_one_that_comes_late_does_not[sqlite]",
    ),
    mutant(
        "fence not raised",
        "a successor writes without raising the mark, and its predecessor after it",
        Code(
            f"{_ROW}:_compared_and_raised",
            "_write(target, row, key, is_there",
            "str or _write(target, row, key, is_there",
        ),
        tests=f"{_ROWS}::TestWhoMayRaiseIt::test_a_successor_raises_it_and_the_former_one_is_out[sqlite]",
    ),
    mutant(
        "fence's floor ignored",
        "a holder whose mark was pruned is let in below the floor",
        Code(f"{_ROW}:_below", "offered.token >= floor.token", "True"),
        tests=f"{_ROWS}::TestWhoMayRaiseIt::test_below_the_floor_nobody_does_who_has_no_row[sqlite]",
    ),
    mutant(
        "mark not compared",
        "at the commit it is enough that there is a mark",
        Code(f"{_ROW}:FenceRow.query", "AND token = %s AND grant_id = %s", "AND %s > 0 AND %s <> ''"),
        tests=f"{_ORDERS}::TestFenceRow::test_writer_whose_heir_raises_the_fence[mariadb-read committed]",
    ),
    mutant(
        "run's row without its token",
        "a run that another node runs by now still commits",
        Code("fencepost.fence.run_row:FencedRun.query", "AND token = %s AND", "AND %s > 0 AND"),
        tests="tests/app/test_ledger_transaction.py::test_what_was_taken_over_before_does_not_even_begin[sqlite]",
    ),
    mutant(
        "run's row without its state",
        "a run that has ended still commits",
        Code("fencepost.fence.run_row:FencedRun.query", " AND state = 'running'", ""),
        tests=f"{_ORDERS}::TestRunRow::test_writer_whose_run_is_ended_by_somebody_else[mariadb-read committed]",
    ),
    mutant(
        "compared first, not last",
        "the fence is compared when a transaction begins, and not when it is committed",
        Code(
            f"{_TRANSACTION}._is_still_ours",
            "at_once = database.commit_if_ours(self._source, fence, self._terms, self._change)",
            "return True, True",
        ),
        tests=f"{_ORDERS}::TestRunRow::test_writer_whose_run_is_reaped[postgres-read committed]",
    ),
    mutant(
        "compared without a lock",
        "a successor may take over between the comparison and the commit",
        Code("fencepost.fence.databases:ServerDatabase.check", "{where} {self.sharing}", "{where}"),
        tests=f"{_ORDERS}::TestRunRow::test_writer_whose_run_is_reaped[postgres-read committed]",
    ),
    mutant(
        "refused, committed all the same",
        "a transaction of a stale writer is refused and committed",
        Code(f"{_TRANSACTION}._commit", "if is_ours and is_unbroken:", "if is_unbroken:"),
        tests=f"{_ORDERS}::TestRunRow::test_writer_whose_run_is_reaped[postgres-read committed]",
    ),
    mutant(
        "untrusted writer commits",
        "a run whose node has lost its trust still commits",
        Code(f"{_TRANSACTION}._commit", "self._terms.check_trust()", "pass"),
        Code(f"{_TRANSACTION}.__enter__", "self._terms.check_trust()", "pass"),
        tests="tests/app/test_ledger_transaction.py::test_without_trust_it_neither_begins_nor_commits[sqlite]",
    ),
    mutant(
        "service forgets its marks",
        "a service compares a token, and does not remember it",
        Code("fencepost.fence.marks:MemoryMarks.admit", "self._marks[offered.key] = Mark", "Mark"),
        tests="tests/fence/test_http.py::TestMiddleware::test_lets_in_what_is_not_older_and_refuses_what_is[wsgi]",
    ),
    mutant(
        "rows handed to two",
        "two readers at once get the same rows",
        Code("fencepost.fence.taking:_extended", "SPELLING[kind].skip_locked", '""'),
        tests="tests/fence/test_taking.py::TestSharing::test_readers_at_the_same_time_get_different_rows[postgresql-driver]",
    ),
    mutant(
        "pruned key counts as taken",
        "a key that expired and was removed since one looked is said to stand, and its effect is lost",
        Code(
            "fencepost.fence.keys:take",
            "there = _look(landing, wanted.key, landing.past_snapshot)",
            'there = "valid" if there == "expired" else _look(landing, wanted.key, landing.past_snapshot)',
        ),
        tests="tests/fence/test_pruned_meanwhile.py::"
        "test_once_says_true_if_nothing_stands_under_the_key[REPEATABLE READ-pymysql]",
    ),
)

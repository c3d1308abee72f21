"""Runs that are begun by the wrong node, at the wrong time, or under the wrong number."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_SQLITE = "fencepost.ledger.dialects.statements_sqlite"
_CLAIMING = "fencepost.ledger.claiming"
_TEST = "tests/ledger/test_claiming.py::"

CLAIMS = (
    mutant(
        "parked although a node can take it",
        "runs are set aside although a living node has their job",
        Code("fencepost.ledger.parking:_park", "if not served.has(job, queue)}", "}"),
        Code("fencepost.ledger.parking:_park", "if not served.has(job, queue) and", "if"),
        Code("fencepost.ledger.parking:_park", "since[job, queue] <= now_us - WARNED_AFTER_US", "True"),
        tests="tests/ledger/test_parking.py::test_nothing_else_is_set_aside[sqlite-a node has it]",
    ),
    mutant(
        "parked for good",
        "runs that were set aside are not queued again when a node with their job comes",
        Code("fencepost.ledger.parking:unpark", "if served.has(*row)", "if not served.has(*row)"),
        tests="tests/ledger/test_parking.py::"
        "test_runs_of_a_job_that_nobody_has_are_set_aside_and_come_back_to_their_place[sqlite]",
    ),
    mutant(
        "claim does not raise the token",
        "the second claim of a run has the token of the first, if the clock stands still or went back",
        Text(f"{_SQLITE}:_START", "max(r.token + 1, %s)", "max(r.token, %s)"),
        tests=f"{_TEST}TestFreeRuns::test_token_rises_with_every_claim_even_if_the_clock_goes_back[sqlite]",
    ),
    mutant(
        "attempts not counted",
        "the second attempt has the number of the first",
        Text(f"{_SQLITE}:_START", "attempts = r.attempts + 1", "attempts = max(r.attempts, 1)"),
    ),
    mutant(
        "claim takes any queue",
        "a node takes runs from queues that it does not serve",
        Text(f"{_SQLITE}:_FIND", "r.queue = %s", "%s <> ''"),
        tests=f"{_TEST}TestFreeRuns::test_only_known_jobs_and_served_queues[sqlite]",
    ),
    mutant(
        "claim takes unknown jobs",
        "a node takes runs of jobs that it does not have",
        Text(f"{_SQLITE}:_FIND", "{texts:+r.job}", "({texts:+r.job} OR true)"),
    ),
    mutant(
        "claim ahead of time",
        "a run begins before its time has come",
        Text(f"{_SQLITE}:_FIND", "r.available_at <= %s", "r.available_at - 400000 <= %s"),
    ),
    mutant(
        "stale candidate claimed",
        "a run that failed since it was found due is claimed before its back-off is over",
        Text(f"{_CLAIMING}:_LOCK_RUNS", "r.available_at + 0 <= %s", "%s > 0"),
        tests=f"{_TEST}TestKeyedRuns::test_candidate_that_failed_meanwhile_waits_for_its_back_off[sqlite]",
    ),
    mutant(
        "claim without a lock",
        "two nodes find the same run, and both take it",
        Code(
            "fencepost.ledger.dialects.statements:TransactionStatements.take",
            "return connection.write(lambda cursor: self._take(cursor, wanted))",
            "with connection.autocommit() as cursor:\n        return self._take(cursor, wanted)",
        ),
        tests=f"{_TEST}TestFreeRuns::test_every_run_goes_to_one_of_many_nodes[sqlite]",
    ),
    mutant(
        "unanswered claim forgotten",
        "runs that were claimed without an answer stay in the node's name, and nobody executes them",
        Code("fencepost.engine.exchange:Exchange._claimed", "self._is_unsure = True", "pass"),
        Code("fencepost.engine.exchange:Exchange._reconcile", "or now >= self._reconcile_at", ""),
        tests="tests/engine/test_exchange.py::test_run_in_our_name_that_nobody_here_knows_is_handed_back[sqlite]",
    ),
    mutant(
        "known claims handed back",
        "a node hands back what it executes itself",
        Code(
            "fencepost.engine.exchange:Exchange._hand_back_unknown",
            "(each.run_id, each.token) not in known",
            "known is None",
        ),
    ),
    mutant(
        "lost claims begin under the next",
        "what was claimed while the session was being lost begins under the next identity",
        Code(
            "fencepost.engine.exchange:Exchange._begin",
            "group.runner.stop(taken.run_id, taken.token, StopReason.LOST)",
            "pass",
        ),
        tests="tests/engine/test_exchange.py::"
        "test_what_was_claimed_while_the_session_was_being_lost_does_not_begin_under_the_next[sqlite]",
    ),
    mutant(
        "begin what the lost claimed",
        "what was claimed is given to its runner before it is asked whether its identity is gone",
        Code("fencepost.engine.exchange:Exchange._begin", "self._hand_back(claims)\n        return", "pass"),
        tests="tests/engine/test_exchange.py::"
        "test_what_an_identity_claimed_that_is_gone_by_then_never_begins_and_goes_back[sqlite]",
    ),
    mutant(
        "gate's token not compared",
        "a run starts with a token from the gate that is below one given before",
        Code(
            f"{_CLAIMING}:KeyedClaims._token",
            "token if token is not None and token > last_token else None",
            "token",
        ),
        tests=f"{_TEST}TestGate::test_gates_token_below_one_that_was_given_starts_nothing[sqlite]",
    ),
)

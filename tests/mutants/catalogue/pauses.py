"""Work that goes on although a person has paused it, or asked a node to drain."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_STATEMENTS = "fencepost.ledger.dialects.statements"
_LEDGER = "tests/ledger/test_queue_pauses.py::"
_ENGINE = "tests/engine/test_pausing.py::"

PAUSES = (
    mutant(
        "claims of a paused queue",
        "a node claims runs of a queue that is paused",
        Text("fencepost.ledger.dialects.statements_sqlite:_FIND", "AND {unpaused:%s %s}", "AND %s <> '' AND %s > 0"),
        tests=f"{_LEDGER}TestClaims::test_paused_queue_is_claimed_again_after_it_and_not_before[sqlite-queues0-None]",
    ),
    mutant(
        "pause of everything is one of the nameless queue",
        "a pause of everything holds for no queue at all",
        Code(f"{_STATEMENTS}:LedgerStatements._unpaused", "z.queue IN ('', {queue})", "z.queue = {queue}"),
        tests=f"{_LEDGER}TestClaims::test_pause_of_everything_holds_for_every_queue[sqlite-None]",
    ),
    mutant(
        "keyed runs are started after the pause",
        "a claim that found its runs before a pause starts them after it",
        Text("fencepost.ledger.claiming:_LOCK_RUNS", "AND {unpaused:r.queue %s}", "AND %s > 0"),
        tests=f"{_LEDGER}TestClaims::test_claim_that_had_found_its_runs_before_the_pause_starts_none_of_them[sqlite]",
    ),
    mutant(
        "pause without its end",
        "a pause lasts beyond its end until somebody removes it",
        Code(f"{_STATEMENTS}:LedgerStatements._unpaused", "z.until > {now}", "z.until > 0 * {now}"),
        tests=f"{_LEDGER}TestClaims::test_pause_is_over_at_its_end_though_nobody_removes_it[sqlite]",
    ),
    mutant(
        "end of a pause is not noticed",
        "a node that knows of a pause does not claim when it has ended",
        Code(
            "fencepost.engine.paused_queues:PausedQueues.read",
            "if not any(each.concerns(queue) for each in found)",
            "if queue in was_open and not any(each.concerns(queue) for each in found)",
        ),
        tests=f"{_ENGINE}TestPauses::test_node_that_knows_of_the_pause_makes_no_claim_and_notices_its_end[sqlite]",
    ),
    mutant(
        "a drained node claims",
        "a node that was asked to drain claims runs until it has noticed that",
        Text(f"{_STATEMENTS}:_NOT_ENDED", "coalesce(me.dead_at, me.left_at, me.drain_asked_at)", "me.dead_at"),
        tests=f"{_LEDGER}TestDraining::test_node_that_was_asked_claims_nothing_and_serves_nothing[sqlite-None]",
    ),
    mutant(
        "a draining node leaves its runs",
        "a node that was asked to drain does not wait for its runs",
        Code(
            "fencepost.engine.exchange:Exchange.step",
            "self._node.drain_is_asked and self.is_empty",
            "self._node.drain_is_asked",
        ),
        tests=f"{_ENGINE}TestDraining::test_node_finishes_what_it_has_takes_nothing_more_and_leaves[sqlite]",
    ),
    mutant(
        "request to drain is lost with the session",
        "a node that loses its session after it was asked to drain joins again, and goes on",
        Code("fencepost.engine.membership:Membership._enrol", "if self._former is not None:", "if False:"),
        tests=f"{_ENGINE}TestDraining::test_next_identity_of_its_process_drains_too[sqlite]",
    ),
)

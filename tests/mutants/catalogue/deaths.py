"""Nodes that are declared dead too soon, not at all, or that do not know that they are."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_REAPER = "fencepost.engine.reaper:Reaper"
_REAPING = "fencepost.ledger.reaping"
_MEMBERSHIP = "fencepost.engine.membership:Membership"
_STEPS = "tests/engine/test_clock_steps.py"
_ORDERS = "tests/ledger/test_interleavings.py::TestEndsThatMeet::"

DEATHS = (
    mutant(
        "crippled node stays",
        "a node one of whose loops has died lives on, and claims what it never ends",
        Code("fencepost.engine.node:Node._loop", "self._leave_if_a_loop_died()", "pass"),
        tests="tests/engine/test_stopping.py::test_node_one_of_whose_loops_died_leaves[exchange-sqlite]",
    ),
    mutant(
        "reap without contact",
        "a node that was away itself declares others dead",
        Code(f"{_REAPER}._watch_the_others", "self._clock.contact_s() >= self._ttl_s", "True"),
        tests="tests/engine/test_reaper.py::test_node_that_has_just_come_declares_nobody_dead_before_it_has_watched_for_a_ttl[sqlite]",
    ),
    mutant(
        "pause does not break contact",
        "a node that was paused believes that it watched meanwhile",
        Code("fencepost.core.contact:Contact.answered", "now - self._answered_at > self._longest_gap_s", "False"),
        Code("fencepost.core.contact:Contact.lasted_s", "now - self._answered_at > self._longest_gap_s", "False"),
        tests="tests/core/test_clock_gate.py::test_a_pause_breaks_contact_although_nothing_failed",
    ),
    mutant(
        "living node reaped",
        "a node is declared dead without taking its lease",
        Code(f"{_REAPER}._watch_the_others", "in watched.missing", "in grants"),
        Code(f"{_REAPER}._declare_dead", "if with_its_lease is None:", "if False:"),
        Code(f"{_REAPER}._declare_dead", "with_its_lease.release()", "with_its_lease and with_its_lease.release()"),
    ),
    mutant(
        "dead are left alone",
        "what a dead node ran is never given up",
        Code(f"{_REAPER}._watch_the_others", "self._declare_dead(grants[grant_id])", "pass"),
    ),
    mutant(
        "all nodes' runs reaped",
        "with a dead node's runs go those of the living",
        Text(f"{_REAPING}:_FIND", "AND r.node = %s", "AND %s <> ''"),
        Text(f"{_REAPING}:_LOCK", "{was:r.node} = %s", "%s <> ''"),
    ),
    mutant(
        "reap without comparing",
        "a reaper gives up what it found before it had the lock, whatever became of it",
        Text(f"{_REAPING}:_LOCK", "{was:r.state} = 'running' AND {was:r.node} = %s", "%s <> ''"),
        tests=f"{_ORDERS}test_of_finish_and_reap_exactly_one_ends_the_attempt[postgres-keys1]",
    ),
    mutant(
        "lost attempt leaves no trace",
        "a run that is given up is queued without its attempt being kept",
        Code(f"{_REAPING}:_fate", "fate.outcome,", "None,"),
    ),
    mutant(
        "identity kept after death",
        "a process whose session was lost joins again as the node it was",
        Code(
            f"{_MEMBERSHIP}.join",
            "node_id = self._node.runtime.new_id()",
            "node_id = self.__dict__.setdefault('_same', self._node.runtime.new_id())",
        ),
    ),
    mutant(
        "lost node never joins again",
        "a process whose session was lost stays outside for ever",
        Code(f"{_MEMBERSHIP}.step", "if node.joined is None:", "if False:"),
    ),
    mutant(
        "session lost, work goes on",
        "nobody tells the runners that the session was lost",
        Code("fencepost.engine.membership:Membership._stop_runs", "runner.lose()", "pass"),
        Code("fencepost.engine.membership:Membership._stop_runs", "suspended += runner.suspend()", "pass"),
        Code("fencepost.engine.trust:NodeTrust.is_trusted", "now < self.until", "True"),
        tests="tests/engine/test_suspension.py::"
        "test_session_that_the_store_says_is_gone_is_lost_at_once[thread-postgresql]",
    ),
    mutant(
        "suspended runs resumed unasked",
        "a suspended run goes on without the ledger having said that it is still ours",
        Code(
            "fencepost.engine.lost_identities:LostIdentities._adopt",
            "runner.resume(adopted)",
            "runner.resume(set(suspended))",
        ),
        Code("fencepost.engine.lost_identities:LostIdentities._adopt", "if key in adopted:", "if True:"),
        tests="tests/engine/test_lost_identities.py::test_what_a_reaper_took_is_stopped[sqlite]",
    ),
    mutant(
        "adopt what another took",
        "a run that somebody else runs by now is adopted back",
        Code("fencepost.ledger.adopting:_adopt", " and by in own_ids", ""),
        Code("fencepost.ledger.adopting:_adopt", "if (run_id, token) in runs", "if run_id in {key[0] for key in runs}"),
        tests="tests/ledger/test_adopting.py::test_what_a_reaper_took_is_not_adopted_and_not_touched[sqlite]",
    ),
    mutant(
        "outage ends fenced runs",
        "runs whose effects are fenced are stopped when the ledger is away, as if the session were gone",
        Code("fencepost.engine.membership:Membership._stop_runs", "if member.lease.ran_out:", "if False:"),
        tests="tests/engine/test_suspension.py::"
        "test_what_is_fenced_goes_on_when_the_ledger_is_back[after trust ran out-postgresql-thread]",
    ),
    mutant(
        "cancelled run rerun after death",
        "a run that was being cancelled is run again when its node dies",
        Code(f"{_REAPING}:_fate", "left.cancel_requested_at is not None", "False"),
        tests="tests/ledger/test_reaping.py::test_run_that_was_being_cancelled_is_cancelled[sqlite]",
    ),
    mutant(
        "death noted without its consequence",
        "a reaper that dies after the note leaves the runs to nobody",
        Code("fencepost.engine.giving_up:LostNodeRuns.unfinished", "statements.rows(cursor, _UNFINISHED)", "[]"),
        Code(
            "fencepost.engine.giving_up:LostNodeRuns.declare_dead",
            "self.give_up_runs(connection, node_id)",
            "is_first and self.give_up_runs(connection, node_id)",
        ),
    ),
    mutant(
        "promotion of what was cancelled",
        "a run that waits for its key is queued although somebody cancelled it meanwhile",
        Text(
            "fencepost.ledger.promoting:_PROMOTE",
            "WHERE {ints:id} AND {was:state} = 'waiting' AND {was:waits_for} = 'key'",
            "WHERE {ints:id}",
        ),
        tests="tests/ledger/test_interleavings.py::TestKeys::"
        "test_next_in_line_is_cancelled_while_the_holder_ends[postgres]",
    ),
    mutant(
        "bury by the server's clock",
        "a step of the server's clock ends a living node",
        Code(
            "fencepost.leases.stores.sql.sightings:Sightings.spared_s",
            "max(0.0, since + ttl_us / 1_000_000 - now)",
            "0.0",
        ),
        tests=f"{_STEPS}::test_no_step_of_the_servers_clock_ends_a_living_node_or_its_run[(60.0,)]",
    ),
    mutant(
        "the dead forget each other",
        "of more sessions than are remembered at least, none is ever seen unrenewed for a whole ttl",
        Code(
            "fencepost.leases.stores.sql.sightings:Sightings._forget_one", "now - seen_at > _WATCHED_WITHIN_S", "True"
        ),
        tests="tests/leases/test_sightings.py::test_dead_are_found_however_many_there_are",
    ),
    mutant(
        "refuse a renewal by the server's clock",
        "a holder that renewed in time is told that it is dead when the server's clock was stepped",
        Code(
            "fencepost.leases.stores.sql.store:SqlLeaseStore._lenience_us",
            "ALWAYS if self._is_ours(session.id) else 0",
            "0",
        ),
        tests=f"{_STEPS}::test_no_step_of_the_servers_clock_ends_a_living_node_or_its_run[(60.0,)]",
    ),
    mutant(
        "the dead claim",
        "a node whose end is noted goes on claiming",
        Text("fencepost.ledger.dialects.statements:_NOT_ENDED", "IS NOT NULL)", "IS NULL AND false)"),
        tests="tests/ledger/test_claiming.py::TestFreeRuns::test_node_whose_end_is_noted_claims_nothing[sqlite-None-dead_at]",
    ),
    mutant(
        "reap one's own",
        "a node whose end is noted gives up its own runs, and claims them again",
        Code(f"{_REAPER}._list_and_clean_up", "if node_id != me", "if node_id"),
        tests="tests/engine/test_reaper.py::test_node_whose_end_is_noted_does_not_reap_itself[sqlite]",
    ),
    mutant(
        "count every loss",
        "one event that ends several nodes uses up the crash limit",
        Code(f"{_REAPING}:_counted", "0 <= now_us - at_us < once_in_us", "False"),
        tests="tests/ledger/test_reaping.py::test_losses_of_one_event_count_once[sqlite]",
    ),
)

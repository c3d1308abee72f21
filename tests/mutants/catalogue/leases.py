"""Leases that are trusted too long, renewed too late, or given twice."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_MACHINE = "fencepost.core.lease:LeaseMachine"
_KEPT = "fencepost.leases.kept_session:KeptSession"
_MEMORY = "fencepost.leases.stores.memory:MemoryStore"
_SQL = "fencepost.leases.stores.sql.statements"
_LEASE_TEST = "tests/core/test_lease_machine.py"
_CONTRACT = "tests/leases/contract/test_memory.py::TestMemory"
_ON_FILE = "tests/leases/contract/test_sqlite.py::TestSqlite"

LEASES = (
    mutant(
        "trust from the reply",
        "a renewal is trusted from when it was answered, not from when it was sent",
        Code(f"{_KEPT}._renew", "renewed(sent_at=sent_at,", "renewed(sent_at=self._runtime.monotonic(),"),
        tests="tests/leases/test_trust.py::test_trust_in_a_session_counts_from_before_it_was_asked_for_and_renewed",
    ),
    mutant(
        "trust from the opening's reply",
        "a new session is trusted from when it was answered, not from when it was asked for",
        Code("fencepost.leases.keeper:Keeper._open", "opened_at=opened_at", "opened_at=self._runtime.monotonic()"),
        tests="tests/leases/test_trust.py::test_trust_in_a_session_counts_from_before_it_was_asked_for_and_renewed",
    ),
    mutant(
        "late renewal revives",
        "a renewal that is answered after trust has run out extends it all the same",
        Code(f"{_MACHINE}.renewed", "if self.is_trusted_at(now):", "if self.phase is Phase.HELD:"),
        tests=f"{_LEASE_TEST}::test_late_answer_does_not_revive",
    ),
    mutant(
        "no margin",
        "trust lasts for the whole ttl",
        Code("fencepost.core.timings:Timings.trust_s", "self.ttl_s - self.margin_s", "self.ttl_s"),
        tests=f"{_LEASE_TEST}::test_trust_counts_from_before_the_request_was_sent",
    ),
    mutant(
        "unanswered renewal counts",
        "a renewal that was not answered extends trust",
        Code(f"{_MACHINE}.unknown", "self._in_flight = False", "self._in_flight = False; self._extend(now)"),
        tests=f"{_LEASE_TEST}::test_unanswered_renewal_is_repeated_and_changes_no_trust",
    ),
    mutant(
        "refusal ignored",
        "the store says that the session is gone, and its holder goes on",
        Code(f"{_MACHINE}.refused", "self.phase is not Phase.HELD", "True"),
        tests=f"{_LEASE_TEST}::test_refusal_steps_down_at_once_and_once",
    ),
    mutant(
        "calls limited by statements only",
        "each statement of a call to the lease store gets the whole time anew",
        Code(
            "fencepost.sql.psycopg_link:BoundedPsycopg.limit_call",
            "self.deadline = deadline",
            "self.statement_s = deadline - self.clock()",
        ),
        tests="tests/sql/test_deadlines.py::"
        "test_a_server_that_falls_silent_late_in_a_call_does_not_prolong_it[postgres]",
    ),
    mutant(
        "trust ends with the hung call",
        "nobody is told that trust has run out before a hanging renewal returns",
        Code(f"{_KEPT}.run", 'self._runtime.spawn("fencepost-watcher", self._watcher)', "pass"),
        tests=f"{_ON_FILE}::test_hung_connection_ends_trust_on_time",
    ),
    mutant(
        "forgotten release stays forgotten",
        "a release that the store has answered, and then forgot in a failover, is not repeated",
        Code(f"{_KEPT}.release_again", "self._ended.get(grant_id)", "None"),
        tests="tests/leases/test_keeper.py::"
        "test_a_release_that_the_store_has_forgotten_is_repeated_by_whoever_meets_it",
    ),
    mutant(
        "dead session renewed",
        "a session that expired is renewed",
        Code(f"{_MEMORY}.renew", "if not self._is_alive(session.id):", "if session.id not in self._alive_until:"),
        tests="tests/leases/test_memory_store.py::test_a_session_that_expired_is_never_renewed",
    ),
    mutant(
        "dead session renewed in SQL",
        "a session row that expired is renewed",
        Code(f"{_SQL}:_renewal", "AND expires_at > {words.now} - %s", "AND (%s = 0 OR 1 = 1)"),
        tests="tests/leases/test_sqlite_store.py::TestDeath::test_expired_session_is_never_renewed",
    ),
    mutant(
        "lease hangs on a dead session",
        "a session that expired may still acquire",
        Code(f"{_MEMORY}.acquire", "if not self._is_alive(session.id):", "if session.id not in self._alive_until:"),
        tests="tests/leases/test_memory_store.py::test_a_session_that_expired_acquires_nothing",
    ),
    mutant(
        "release of another's lock",
        "a release frees the name, whoever has it by now",
        Code(f"{_MEMORY}._is_current", "and entry.grant.grant_id == grant.grant_id", ""),
        tests=f"{_CONTRACT}::test_lost_grant_can_neither_be_renewed_nor_released",
    ),
    mutant(
        "release of another's lock in SQL",
        "a release frees the name, whoever has it by now",
        Code(f"{_SQL}:statements", "WHERE name = %s AND grant_id = %s", "WHERE name = %s AND %s IS NOT NULL"),
        tests=f"{_ON_FILE}::test_lost_grant_can_neither_be_renewed_nor_released",
    ),
    mutant(
        "burial of the living",
        "a session is buried without looking whether it has expired",
        Code(f"{_SQL}:statements", "WHERE id = %s AND expires_at <= {now}", "WHERE id = %s"),
        tests="tests/leases/test_sql_interleavings.py::TestRenewalAndBurial::test_exactly_one_of_them_wins[postgres]",
    ),
    mutant(
        "token starts over",
        "tokens are counted, and begin anew where the store forgot them",
        Code("fencepost.core.grants:next_token", "max(previous + 1, floor, store_time_us)", "max(previous + 1, floor)"),
        tests=f"{_CONTRACT}::test_token_rises_over_deletion_of_the_record",
    ),
    mutant(
        "token from the clock alone",
        "a clock that stands still or goes back gives a token a second time",
        Code(
            "fencepost.core.grants:next_token", "max(previous + 1, floor, store_time_us)", "max(floor, store_time_us)"
        ),
    ),
    mutant(
        "floor ignored",
        "a store that knows less than a fence gives a token below it",
        Code("fencepost.core.grants:next_token", "previous + 1, floor, store", "previous + 1, store"),
        tests=f"{_CONTRACT}::test_floor_lifts_the_token",
    ),
    mutant(
        "leases expire by the wall clock",
        "a store's sessions expire when its wall clock says so, which somebody may set",
        Code(f"{_MEMORY}._is_alive", "self._runtime.monotonic()", "self._runtime.wall_us() / 1e6"),
        Code(f"{_MEMORY}.open", "self._runtime.monotonic()", "self._runtime.wall_us() / 1e6"),
        Code(f"{_MEMORY}.renew", "self._runtime.monotonic()", "self._runtime.wall_us() / 1e6"),
        Code(f"{_MEMORY}._held", "now = self._runtime.monotonic()", "now = self._runtime.wall_us() / 1e6"),
    ),
    mutant(
        "lost answer is a second grant",
        "who asks again with the same grant id is refused, or gets another token",
        Code(f"{_MEMORY}.acquire", "entry.grant.grant_id == grant_id", "entry.grant.grant_id is None"),
        tests=f"{_CONTRACT}::test_repeated_acquire_returns_the_same_grant",
    ),
    mutant(
        "unanswered acquisition forgotten",
        "what an acquisition without an answer may have got is not given back",
        Code("fencepost.leases.keeper:Keeper.acquire", "kept.unanswered(name, grant_id)", "kept.refused(grant_id)"),
        tests="tests/leases/test_keeper.py::test_an_interruption_at_any_call_leaves_no_lock_behind",
    ),
    mutant(
        "tick done twice",
        "a lock's last done tick is not compared",
        Code(f"{_MEMORY}.acquire", "tick.at_us <= entry.last_tick_us", "tick.at_us < entry.last_tick_us"),
        tests=f"{_CONTRACT}::test_tick_is_done_once",
    ),
    mutant(
        "due time of a call ignored",
        "a function under a lock runs without its due time: once for each scheduler that comes when the last one ended",
        Code("fencepost.leases.exclusive:Exclusive._lock_for", "if isinstance(tick, str):", "if tick := None:"),
        tests="tests/leases/test_exclusive.py::TestTicks::test_of_three_schedulers_one_runs_each_due_time",
    ),
)

"""Exclusive keys that two runs have, or that nobody gets."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_CLAIMING = "fencepost.ledger.claiming"
_FINISHING = "fencepost.ledger.finishing"
_ORDERS = "tests/ledger/test_interleavings.py::TestKeys::"

KEYS = (
    mutant(
        "taken key taken again",
        "a run starts although another has its exclusive key",
        Code(f"{_CLAIMING}:KeyedClaims._settle", "if holder is not None:\n", "if False:\n"),
    ),
    mutant(
        "key taken within a batch",
        "two runs of one batch get the same key",
        Code(f"{_CLAIMING}:KeyedClaims._settle", "held[key] = (found.run_id, token)", "pass"),
    ),
    mutant(
        "token below the key's",
        "a run's token is above those of the run, but not above those given under its key",
        Code(f"{_CLAIMING}:KeyedClaims._settle", "max(last_token, found.token)", "found.token"),
        tests="tests/ledger/test_claiming.py::TestKeyedRuns::test_token_is_above_every_one_given_under_the_key[sqlite]",
    ),
    mutant(
        "key not freed",
        "a run that ended keeps its exclusive key",
        Code(f"{_FINISHING}:free_keys", "statements.change(cursor, _FREE, statements.texts(freed))", "return 0"),
        tests="tests/ledger/test_finishing.py::TestKeys::test_ended_run_gives_its_key_up_and_the_next_in_line_is_queued[sqlite]",
    ),
    mutant(
        "nobody promoted",
        "the next in line for a key is not queued when the key is free",
        Code(f"{_FINISHING}:free_keys", "return promote(cursor, statements, free) if free else 0", "return 0"),
        Code("fencepost.ledger.promoting:promote_stranded", "if keys else 0", "if False else 0"),
    ),
    mutant(
        "late ending frees the heir's key",
        "a key is freed without comparing who has it",
        Code(
            f"{_FINISHING}:free_keys",
            "holders.get(ending.exclusive_key) == (ending.run_id, ending.token)",
            "ending.exclusive_key in holders",
        ),
        tests="tests/ledger/test_finishing.py::TestKeys::test_late_ending_does_not_free_the_heirs_key[sqlite]",
    ),
    mutant(
        "promoted without a lock",
        "the next in line is looked for before its key is locked: who finds it taken just then waits for nobody",
        Code(
            f"{_FINISHING}:free_keys",
            "    if freed:\n        statements.change(",
            "    count = promote(cursor, statements, freed) if freed else 0\n    if freed:\n        statements.change(",
        ),
        Code(f"{_FINISHING}:free_keys", "return promote(cursor, statements, free) if free else 0", "return count"),
        Text(f"{_FINISHING}:_LOCK_KEYS", "{for_update}", ""),
        tests=f"{_ORDERS}test_who_finds_a_key_taken_and_who_gives_it_up_do_not_miss_each_other[postgres]",
    ),
    mutant(
        "key looked at without a lock",
        "a run goes to wait for a key that is being given up",
        Text(f"{_CLAIMING}:_LOCK_KEYS", "{skip_locked}", ""),
        tests=f"{_ORDERS}test_who_finds_a_key_taken_and_who_gives_it_up_do_not_miss_each_other[postgres]",
    ),
    mutant(
        "late tick skipped with the rest",
        "a run that makes good for several ticks is skipped as one",
        Code(f"{_CLAIMING}:KeyedClaims._settle", " and found.ticks == 1", ""),
        tests="tests/ledger/test_claiming.py::TestKeyedRuns::"
        "test_what_makes_good_for_several_ticks_waits_where_a_tick_would_be_skipped[sqlite]",
    ),
    mutant(
        "retry skipped",
        "a run that has begun before is skipped because its key is taken",
        Code("fencepost.core.overlap:decide", "attempts == 0 and is_tick", "is_tick"),
        tests="tests/core/test_overlap.py::test_what_has_begun_is_never_skipped",
    ),
    mutant(
        "lost gate goes unnoticed",
        "a run whose lease at the gate is lost goes on",
        Code("fencepost.engine.gate:Gate._tie", "self._on_lost(run_id, token)", "None"),
        tests="tests/engine/test_gate.py::test_lease_that_is_lost_stops_its_run_which_is_run_again[sqlite]",
    ),
    mutant(
        "snapshot hides who waits",
        "a run that ends in a transaction with an older snapshot queues nobody who began to wait since",
        Code(f"{_FINISHING}:free_keys", "if holder is None", "if False"),
        tests="tests/app/test_waiting_for_a_final.py::"
        "test_the_next_in_line_is_queued_when_the_end_is_told[postgresql-repeatable read]",
    ),
    mutant(
        "stranded for a minute",
        "who waits for a key that nobody has is found by the reaper alone, once a minute",
        Code("fencepost.engine.exchange:Exchange._look", "if seen.keys_are_awaited:", "if False:"),
        tests="tests/app/test_waiting_for_a_final.py::"
        "test_whoever_is_killed_before_it_tells_keeps_nobody_waiting[postgresql-repeatable read]",
    ),
)

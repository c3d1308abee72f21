"""Ledgers that are taken for what they are not: restored, copied, or with the leases of another one."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_RESTORED = "fencepost.core.restored"
_TESTS = "tests/engine/test_restored.py"

LEDGERS = (
    mutant(
        "rights not asked for",
        "a node starts that may not call the checks which go along with COMMIT: each of its runs dies there",
        Code("fencepost.app.composing:compose", "check_rights(app.ledger)", "pass"),
        tests="tests/cli/test_migrate.py::"
        "test_a_node_that_may_not_call_the_checks_does_not_start_and_says_what_to_grant",
    ),
    mutant(
        "a file in every pod is one ledger",
        "a node in a container does not say that its SQLite file is seen by nobody else",
        Code("fencepost.app.one_machine:warn_of_one_machine", 'if url.kind != "sqlite" or', "if url or"),
        tests="tests/app/test_one_machine.py::test_a_node_on_sqlite_says_who_does_not_see_it[container]",
    ),
    mutant(
        "leases beside the link",
        "the file of leases is looked for beside a symbolic link to the database, so that there are two of them",
        Code(
            "fencepost.core.urls:sqlite_path", "os.path.realpath(_file_name(text))", "os.path.abspath(_file_name(text))"
        ),
        tests="tests/leases/test_sqlite_store.py::TestPlace::test_a_link_to_the_database_leads_to_the_same_leases",
    ),
    mutant(
        "any leases will do",
        "that the leases are kept in another file than noted is not seen",
        Code(
            "fencepost.engine.same_ledger:SameLedger._looked",
            "return seen._replace(present={**seen.present, LEASES: identity}), memory",
            "return seen, memory",
        ),
        tests=f"{_TESTS}::TestLeasesInAFileOfTheirOwn::"
        "test_with_other_leases_than_noted_nothing_is_claimed_until_somebody_accepts_them[sqlite]",
    ),
    mutant(
        "a restored dump is the ledger",
        "that the tables are others than noted is not seen, and what ran since the dump runs again",
        Code(f"{_RESTORED}:differences", "present[name] != noted[name]", "present[name] is None"),
        tests=f"{_TESTS}::TestADumpThatIsReadBack::"
        "test_nothing_is_claimed_until_somebody_accepts_it_and_no_id_is_given_again[sqlite]",
    ),
    mutant(
        "what a node remembers is not asked",
        "a ledger that lacks what a living node has planned is planned again",
        Code(f"{_RESTORED}:judge", "return Behind(gap_us) if", "return Same() if gap_us >= 0 else Behind(gap_us) if"),
        tests=f"{_TESTS}::TestANodeThatKnowsMore::test_a_few_minutes_are_made_good_on_record[sqlite]",
    ),
    mutant(
        "what is planned while one looks is missing",
        "a node compares what it remembers now with a look at the ledger from before",
        Code(
            "fencepost.engine.same_ledger:SameLedger.check",
            "self._settle(connection, *self._looked(connection))",
            "self._settle(connection, self._looked(connection)[0], self._remembered())",
        ),
        tests=f"{_TESTS}::TestANodeThatKnowsMore::test_what_is_planned_while_it_looks_is_not_missing[sqlite]",
    ),
    mutant(
        "a node that starts is the last to know",
        "a node that starts takes the ledger for restored when another one has gone on since it looked",
        Code(
            "fencepost.engine.same_ledger:SameLedger._looked",
            "seen = self._stands(connection)  # again",
            "pass  # again",
        ),
        tests=f"{_TESTS}::TestLeasesInAFileOfTheirOwn::"
        "test_what_another_node_does_while_one_starts_is_no_restore[sqlite]",
    ),
    mutant(
        "hours are made good like minutes",
        "a ledger that lacks more than five minutes is advanced without asking anybody",
        Code(f"{_RESTORED}:Behind.is_small", "self.by_us <= LONGEST_GAP_US", "True"),
        tests=f"{_TESTS}::TestANodeThatKnowsMore::test_more_is_held_for_every_node_until_a_person_accepts[sqlite]",
    ),
)

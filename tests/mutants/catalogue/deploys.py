"""Deploys that break what runs beside them, or what comes after."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_CONTRACTING = "tests/ledger/test_contracting.py"
_RULE = "tests/ledger/test_reading_rule.py"

_SCHEDULES = "tests/app/test_schedules.py"
_RENAMING = "tests/app/test_renaming.py"

DEPLOYS = (
    mutant(
        "unknown job taken again",
        "a node goes on claiming runs of a job that its workers lack",
        Code("fencepost.engine.exchange:Exchange._collect", "if outcome.error_code == UNKNOWN_JOB:", "if False:"),
        tests="tests/engine/test_unknown_job.py::"
        "test_run_of_a_job_that_the_workers_lack_goes_back_and_the_node_takes_no_more_of_them[sqlite]",
    ),
    mutant(
        "older deploy reverts",
        "declarations are applied although a node of a later deploy lives",
        Code("fencepost.ledger.declared:yields", "if tuple(of) > age", "if tuple(of) < age"),
        tests=(
            f"{_SCHEDULES}::test_a_restarted_node_of_an_older_deploy_reverts_nothing_while_a_newer_one_lives[sqlite]"
        ),
    ),
    mutant(
        "deploys of one number take turns",
        "programs with the same number write over each other's declarations whenever they look",
        Code("fencepost.ledger.declared:yields", "node.c.generation == declared.generation", "node.c.generation < 0"),
        tests=f"{_SCHEDULES}::test_deploys_of_one_number_do_not_take_turns_in_writing[sqlite]",
    ),
    mutant(
        "renamed under its nodes",
        "a job's schedules and runs get its new name although a living node has the old one",
        Code("fencepost.ledger.renaming:_carried", "is_begun or _has_node(database, cursor, rename.old)", "is_begun"),
        tests=f"{_RENAMING}::test_while_a_living_node_has_the_old_name_its_schedules_stay_there[sqlite]",
    ),
    mutant(
        "renamed for good under its nodes",
        "an operator renames a job for good although a living node has it",
        Code("fencepost.ledger.moving:refuse_living", ".intersection(node.jobs)", ".intersection(())"),
        tests=f"{_RENAMING}::TestForGood::test_refused_while_a_living_node_has_either_name[sqlite]",
    ),
    mutant(
        "former name of a third job",
        "an operator renames a job for good by the former name of another one, which loses its schedules and runs",
        Code("fencepost.ledger.moving:renaming_of", "refuse_heirs(database, recorded, found)", "pass"),
        tests=f"{_RENAMING}::TestForGood::test_former_name_of_a_job_that_lives_takes_nothing_from_it[sqlite]",
    ),
    mutant(
        "withdrawn name asked for",
        "after a roll-back, what is requested under the old name goes to the name that was withdrawn",
        Code("fencepost.ledger.renaming:name_now", "seen > newer[-1][0]", "False"),
        tests=f"{_RENAMING}::test_after_a_roll_back_it_is_a_run_of_the_old_name_again[sqlite]",
    ),
    mutant(
        "renamed job is a new one",
        "what a renamed job is remembered by goes by its new name",
        Code("fencepost.core.policy:Policy.known_as", "self.formerly[0] if self.formerly else name", "name"),
        tests=(
            f"{_RENAMING}::test_a_renamed_job_goes_on_with_its_schedules_how_far_they_are_planned_and_its_open_runs[sqlite]"
        ),
    ),
    mutant(
        "newer tables refused",
        "a version refuses every revision that it does not know, also one that it could work with",
        Code("fencepost.schema.revisions:is_readable", "or oldest_reader(revision) <= number(known[-1])", ""),
        tests=f"{_RULE}::test_an_older_version_works_on_newer_tables_that_it_can_read[sqlite]",
    ),
    mutant(
        "contracted under older nodes",
        "what an older node needs is taken away although it lives",
        Code(
            "fencepost.ledger.migrations.contracting:older_nodes",
            "knows((node := OlderNode(*row)).version) < oldest",
            "knows((node := OlderNode(*row)).version) < 0",
        ),
        tests=f"{_CONTRACTING}::test_contracting_is_refused_while_a_node_lives_that_needs_what_goes[sqlite]",
    ),
    mutant(
        "migrate contracts",
        "an ordinary migration also runs steps that take something away",
        Code("fencepost.schema.revisions:expanding_steps", "not contracts(each, known)", "True"),
        tests=f"{_CONTRACTING}::test_migrate_takes_nothing_away_and_the_new_version_works_before_it_was[sqlite]",
    ),
)

"""Rights that are not asked for, acts that are not on record, and changes of the record that nobody notices."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_ON_RECORD = "tests/web/test_refused_on_record.py::"
_BEGUN = "tests/app/test_begun_renames.py"
_CUT = "tests/audit/test_audit.py::test_act_that_is_cut_leaves_both_itself_and_its_entry_or_neither"

OPERATING = (
    mutant(
        "route without its right",
        "who has a right on no job gets through to the route that declares it",
        Code("fencepost.web.guard:Guard._check_right", "not await in_thread(entry.may_somewhere, act)", "False"),
        tests="tests/web/test_guard.py::test_right_that_the_caller_has_for_no_job_is_refused",
    ),
    mutant(
        "route without a right is built",
        "a route that declares no right, and is not open, can be built",
        Code("fencepost.web.routes:refuse_undeclared", "if wrong:", "if False:"),
        tests="tests/web/test_guard.py::test_route_without_a_right_cannot_be_built",
    ),
    mutant(
        "runs of all jobs",
        "a page of runs has those of jobs that the caller may not see",
        Code("fencepost.ledger.history:_of_jobs", "if wanted.jobs is None or wanted.job is not None:", "if True:"),
        Code("fencepost.ledger.history:_by_job", "len(wanted.jobs) > _FEW_JOBS", "len(wanted.jobs) > 0"),
        tests="tests/web/test_canary.py::"
        "test_no_route_shows_anything_of_other_jobs_and_they_look_as_if_they_did_not_exist[sqlite]",
    ),
    mutant(
        "act without its entry",
        "what a person does is not in the audit",
        Code("fencepost.ledger.auditing:record", "entries_.acts.append(act)", "pass"),
        tests=f"{_CUT}[trigger-sqlite]",
    ),
    mutant(
        "entry after the commit",
        "an act is committed before its entry is written, and a crash in between leaves it without one",
        Code(
            "fencepost.ledger.connection:LedgerConnection.transaction",
            "for act in self.last:",
            "self.last and (cursor.execute('COMMIT'), self.dialect.begin(self._connection, cursor))\n"
            "            for act in self.last:",
        ),
        tests=f"{_CUT}[trigger-sqlite]",
    ),
    mutant(
        "act of several transactions without its first entry",
        "a job is half renamed, and a crash leaves no entry of it",
        Code(
            "fencepost.ledger.journal:begin",
            "audit(database, cursor, what, told, outcome=BEGUN)",
            "pass",
        ),
        tests=f"{_CUT}[rename_job-sqlite]",
    ),
    mutant(
        "renamed to two names",
        "a job is renamed to another name while a rename of it is under way",
        Code(
            "fencepost.ledger.begun_renames:begin_rename", "refuse_begun(known, rename.names, but=(old, new))", "pass"
        ),
        tests=f"{_BEGUN}::test_of_two_that_begin_with_a_name_in_common_one_begins[sqlite]",
    ),
    mutant(
        "rename not compared",
        "a rename goes on though somebody else has completed it",
        Code("fencepost.ledger.begun_renames:end", "if begun is None:", "if True:"),
        tests=f"{_BEGUN}::test_same_rename_by_two_at_once_is_done_once[sqlite]",
    ),
    mutant(
        "bulk work in the middle of a rename",
        "a bulk run begins anew while its checkpoints have another name",
        Code("fencepost.bulk.refusing:refuse_while_renamed", "if not each.names.isdisjoint(names):", "if False:"),
        tests="tests/bulk/test_renamed_half_way.py::"
        "test_run_under_either_name_does_nothing_until_the_rename_is_completed[nightly-sqlite-own]",
    ),
    mutant(
        "head of the audit not locked",
        "two who act at once continue the same entry",
        Code("fencepost.ledger.auditing:_state", "query.with_for_update() if is_locked else query", "query"),
        tests="tests/ledger/test_auditing.py::test_writers_at_once_make_one_chain[postgresql]",
    ),
    mutant(
        "columns of the audit not compared",
        "who did something can be changed in the column that is searched by",
        Code("fencepost.core.audit:_changed_columns", "if not row.copied:", "if True:"),
        tests="tests/audit/test_audit.py::test_random_changes_of_the_rows_are_found[sqlite]",
    ),
    mutant(
        "anchors not compared",
        "a chain that was computed anew looks like the one that an anchor was taken of",
        Code("fencepost.core.audit:_against", "anchors.get(here.n, {here.hash}) != {here.hash}", "False"),
        tests="tests/audit/test_audit.py::test_random_changes_of_the_rows_are_found[sqlite]",
    ),
    mutant(
        "forms of other sites",
        "a form that another site sends is taken for one of ours",
        Code("fencepost.web.cross_site:is_from_our_pages", 'return site == "same-origin"', "return True"),
        tests="tests/web/test_guard.py::test_login_form_of_another_site_is_refused",
    ),
    mutant(
        "every Host",
        "a name that an attacker has bound to our address is answered",
        Code("fencepost.web.guard:Guard._check_host", "name is None or name not in self._hosts", "False"),
        tests=f"{_ON_RECORD}test_probe_that_names_another_host_is_refused_and_not_on_record",
    ),
    mutant(
        "streams that never end",
        "a page that is open goes on after its login was revoked",
        Code("fencepost.web.live:_stream", "if not await in_thread(_is_still_in, entry):", "if False:"),
        tests="tests/web/test_live.py::test_stream_ends_when_its_caller_may_look_no_longer[logins ended]",
    ),
    mutant(
        "expired API token",
        "an API token works after its end",
        Code("fencepost.ledger.logins:live_api_token", "table.c.expires_at > now", "table.c.expires_at > 0"),
        tests=f"{_ON_RECORD}test_forged_and_expired_api_tokens",
    ),
    mutant(
        "all locked out by one",
        "who guesses a password through a proxy locks out everyone who comes the same way",
        Code("fencepost.access.authentication:Authentication.log_in", "None if is_shared else address", "address"),
        tests=f"{_ON_RECORD}test_guesses_through_a_proxy_lock_the_guessed_account_and_nobody_else",
    ),
    mutant(
        "last admin without a password",
        "the password of the last admin can be taken away",
        Code(
            "fencepost.ledger.accounts:put_account",
            "_keep_an_admin(database, cursor, lambda: database.change(cursor, change))",
            "database.change(cursor, change)",
        ),
        tests="tests/ledger/test_accounts.py::test_password_of_the_last_admin_cannot_be_taken_away[sqlite]",
    ),
    mutant(
        "why of a ledger without nodes",
        "a due time that has passed while nobody lived is still to come",
        Code("fencepost.engine.why:_Question._to_come", "if since_us is not None:", "if False:"),
        tests="tests/why/test_why.py::test_why_of_each_past_due_time_is_what_the_oracle_says[sqlite]",
    ),
)

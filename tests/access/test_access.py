"""Accounts, permissions and API tokens as people change them: each change is in the audit, and no secret is."""

import json

import pytest

from fencepost.access import passwords
from fencepost.access.access import Access, scope_of
from fencepost.app.operations import Operations
from fencepost.core.rights import ALL_JOBS, Caller, HumanAct, Role, Scope
from fencepost.errors import InvalidName, InvalidParameters, LastAdmin, NoSuchAccount, NotAllowed
from fencepost.ledger import accounts, auditing, jobs, logins
from fencepost.ledger.jobs import NewJob

GOOD = "correct horse battery"


@pytest.fixture
def kind() -> str:
    return "sqlite"  # the statements are tested on every database in tests/ledger


@pytest.fixture
def access(ledger):
    return Access(ledger, Scope.direct("root"))


def entries(ledger):
    return [json.loads(row.entry) for row in reversed(auditing.entries(ledger))]


def test_password_is_right_only_where_it_is_and_outdated_hashes_are_known():
    hashed = passwords.hash_password(GOOD)
    assert hashed.startswith("$argon2id$")
    assert passwords.is_right(GOOD, hashed)
    assert not passwords.is_right(GOOD + "!", hashed)
    assert not passwords.is_right(GOOD, None)
    assert not passwords.is_right("no account has this password", None)
    assert not passwords.is_right(GOOD, "plain text")
    assert not passwords.is_outdated(hashed)


@pytest.mark.parametrize("password", ["", "short", "x" * 1025])
def test_password_that_is_too_short_or_too_long_is_refused(access, password):
    with pytest.raises(InvalidParameters, match="12 to 1024"):
        access.put_account("ann", password)


def test_every_change_is_in_the_audit_with_who_did_it_and_without_a_secret(ledger, access):
    access.put_account("ann", GOOD, reason="new colleague")
    access.give("user:ann", "operator", jobs=["settle"])
    token = access.add_api_token("ci", "viewer", expires_in="30d", jobs=["settle"])
    access.revoke_api_token(token.id)
    access.take("user:ann", jobs=["settle"])
    access.disable_account("ann")
    said = entries(ledger)
    assert [(each["detail"]["what"], each["detail"]["change"]) for each in said] == [
        ("account", "made"),
        ("permission", "given"),
        ("API token", "made"),
        ("API token", "revoked"),
        ("permission", "taken"),
        ("account", "disabled"),
    ]
    assert {(each["who"], each["how"], each["act"]) for each in said} == {("root", "direct", "change access")}
    assert said[0]["reason"] == "new colleague"
    assert said[1]["detail"]["jobs"] == ["settle"]
    texts = json.dumps(said)
    assert GOOD not in texts
    assert token.secret not in texts
    assert token.secret not in repr(token)


def test_change_that_is_refused_leaves_no_entry(ledger, access):
    access.put_account("ann", GOOD)
    access.give("user:ann", "admin")
    before = len(entries(ledger))
    with pytest.raises(LastAdmin):
        access.remove_account("ann")
    assert len(entries(ledger)) == before
    assert accounts.account(ledger, "ann") is not None


def test_only_an_admin_for_all_jobs_may_look_or_change(ledger):
    ann = Access(ledger, Scope(Caller("ann"), {"settle": Role.ADMIN, ALL_JOBS: Role.OPERATOR}))
    for call in (ann.accounts, ann.permissions, ann.api_tokens, ann.logins):
        with pytest.raises(NotAllowed, match="admin"):
            call()
    with pytest.raises(NotAllowed):
        ann.put_account("bob", GOOD)
    with pytest.raises(NotAllowed):
        ann.give("user:ann", "admin")
    assert accounts.accounts(ledger) == []
    assert entries(ledger) == []


def test_what_nobody_has_is_not_taken_and_not_on_record(ledger, access):
    access.put_account("bob", GOOD)
    access.give("user:bob", "operator", jobs=["settle"])
    before = len(entries(ledger))
    for jobs_ in (["setle"], [ALL_JOBS]):
        assert access.take("user:bob", jobs=jobs_) == 0
    for principal, error in (("bob", InvalidName), ("user:bobb", NoSuchAccount), ("proxy:", InvalidName)):
        with pytest.raises(error):
            access.take(principal)
        with pytest.raises(error):
            access.permissions(principal)
    assert len(entries(ledger)) == before
    assert access.permissions("proxy:eve") == []
    assert access.take("user:bob") == 1


def test_api_token_has_256_random_bits_and_ends(ledger, access):
    one = access.add_api_token("ci", "viewer", expires_in="1h")
    two = access.add_api_token("ci", "viewer", expires_in="1h")
    assert one.secret != two.secret
    assert len(bytes.fromhex(one.secret.removeprefix("fp_"))) == 32
    assert logins.live_api_token(ledger, one.secret).id == one.id
    assert access.revoke_api_token(one.id)
    assert logins.live_api_token(ledger, one.secret) is None
    assert accounts.permissions(ledger, principal=f"token:{one.id}") == []


@pytest.mark.parametrize("lasts", ["0s", "367d"])
def test_api_token_that_would_not_end_within_a_year_is_refused(access, lasts):
    with pytest.raises(InvalidParameters, match="366 days"):
        access.add_api_token("ci", "viewer", expires_in=lasts)


@pytest.mark.parametrize(
    "principal", ["ann", "user:", "group:ann", "", "proxy:ann bob", "proxy:", "host:a\x00b", "host:ann\n"]
)
def test_permission_for_what_is_not_a_principal_is_refused(access, principal):
    with pytest.raises(InvalidName):
        access.give(principal, "viewer")


def test_permission_for_an_account_that_is_not_there_is_refused(access):
    with pytest.raises(NoSuchAccount):
        access.give("user:ann", "viewer")
    access.give("proxy:ann", "viewer")


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 101, "<b>"])
def test_odd_names_are_refused(access, name):
    with pytest.raises(InvalidName):
        access.put_account(name, GOOD)


def test_scope_is_what_the_permissions_say_now(ledger, access):
    access.put_account("ann", GOOD)
    access.give("user:ann", "operator", jobs=["settle"])
    assert scope_of(ledger, "user:ann", Caller("ann")).may(HumanAct.RETRY, "settle")
    access.take("user:ann")
    assert not scope_of(ledger, "user:ann", Caller("ann")).may(HumanAct.LOOK, "settle")


def test_renaming_a_job_carries_its_permissions_along_and_forgetting_it_removes_them(ledger, access):
    jobs.register(ledger, [NewJob("old", "bulk", "{}", "{}")], generation=0)
    jobs.register(ledger, [NewJob("old/part", "bulk", "{}", "{}", None, "old")], generation=0)
    access.give("proxy:ann", "operator", jobs=["old"])
    access.give("proxy:bob", "viewer", jobs=["old/part", "older"])
    ops = Operations(ledger, Scope.direct())
    ops.rename_job("old", "new", by="root", effects=[])
    assert [(each.principal, each.job, each.role) for each in access.permissions()] == [
        ("proxy:ann", "new", "operator"),
        ("proxy:bob", "new/part", "viewer"),
        ("proxy:bob", "older", "viewer"),
    ]
    assert jobs.parents(ledger) == [("new/part", "new")]
    assert scope_of(ledger, "proxy:ann", Caller("ann")).may(HumanAct.CANCEL, "new/part")
    ops.forget_job("new", by="root")
    assert [each.job for each in access.permissions()] == ["new/part", "older"]
    done = [each for each in entries(ledger) if (each.get("job"), each["outcome"]) == ("new", "done")]
    said = [(each["act"], each["detail"]["permissions"]) for each in done]
    assert said == [("job renamed", 2), ("job forgotten", 1)]


@pytest.mark.parametrize("jobs_", [["settle "], ["a b"], [], "settle", ["x" * 200]])
def test_permission_on_what_cannot_be_a_job_is_refused(access, jobs_):
    with pytest.raises((InvalidName, InvalidParameters)):
        access.give("proxy:ann", "viewer", jobs=jobs_)
    with pytest.raises((InvalidName, InvalidParameters)):
        access.add_api_token("ci", "viewer", expires_in="1d", jobs=jobs_)


def test_account_is_added_once_and_a_password_needs_an_account(ledger, access):
    access.add_account("ann", GOOD, role="admin")
    assert [(each.job, each.role) for each in access.permissions("user:ann")] == [(ALL_JOBS, "admin")]
    before = accounts.account(ledger, "ann")
    with pytest.raises(InvalidName, match="already"):
        access.add_account("ann", GOOD + "!")
    with pytest.raises(NoSuchAccount):
        access.set_password("bob", GOOD)
    assert accounts.accounts(ledger) == [before]

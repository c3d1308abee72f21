"""Accounts, permissions, logins and API tokens: what was taken away is gone at once, and an admin always remains."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fencepost.core.rights import ALL_JOBS, Role
from fencepost.errors import LastAdmin, NoSuchAccount, NoSuchApiToken
from fencepost.ledger import accounts, logins

HOUR = 3600.0


def write(ledger, call, *values, **words):
    return ledger.write(lambda cursor: call(ledger, cursor, *values, **words))


@pytest.fixture
def put(ledger):
    return partial(write, ledger, accounts.put_account, by="setup")


@pytest.fixture
def give(ledger):
    return partial(write, ledger, accounts.give, by="setup")


def admin(put, give, name):
    put(name, "hash")
    give(f"user:{name}", ALL_JOBS, Role.ADMIN)


def test_account_is_made_once_and_then_gets_another_password(ledger, put):
    assert put("ann", "one") is True
    assert put("ann", "two") is False
    found = accounts.account(ledger, "ann")
    assert (found.password, found.created_by, found.disabled_at) == ("two", "setup", None)
    assert [each.name for each in accounts.accounts(ledger)] == ["ann"]
    assert accounts.account(ledger, "Ann") is None


def test_a_better_hash_does_not_undo_a_new_password(ledger, put):
    put("ann", "one")
    accounts.rehash(ledger, "ann", old="one", new="one, better")
    put("ann", "two")
    accounts.rehash(ledger, "ann", old="one, better", new="one, even better")
    assert accounts.account(ledger, "ann").password == "two"


def test_permission_replaces_the_one_on_the_same_job(ledger, give):
    give("user:ann", "settle", Role.VIEWER)
    give("user:ann", "settle", Role.OPERATOR)
    give("user:ann", "report", Role.VIEWER)
    found = accounts.permissions(ledger, principal="user:ann")
    assert [(each.job, each.role, each.given_by) for each in found] == [
        ("report", "viewer", "setup"),
        ("settle", "operator", "setup"),
    ]
    assert write(ledger, accounts.take, "user:ann", "settle") == 1
    assert write(ledger, accounts.take, "user:ann", "settle") == 0
    assert [each.job for each in accounts.permissions(ledger)] == ["report"]


@pytest.mark.parametrize("change", ["disable", "remove", "take", "lower"])
def test_the_last_admin_stays(ledger, put, give, change):
    admin(put, give, "ann")
    give("token:1", ALL_JOBS, Role.ADMIN)  # it expires, so it does not count
    give("user:ghost", ALL_JOBS, Role.ADMIN)  # no such account
    acts = {
        "disable": lambda: write(ledger, accounts.disable_account, "ann"),
        "remove": lambda: write(ledger, accounts.remove_account, "ann"),
        "take": lambda: write(ledger, accounts.take, "user:ann"),
        "lower": lambda: give("user:ann", ALL_JOBS, Role.OPERATOR),
    }
    with pytest.raises(LastAdmin, match="permissions give"):
        acts[change]()
    assert accounts.account(ledger, "ann").disabled_at is None
    assert [each.role for each in accounts.permissions(ledger, principal="user:ann")] == ["admin"]
    admin(put, give, "bob")
    acts[change]()


def test_of_two_admins_who_remove_each_other_at_once_one_stays(ledger, put, give):
    for _ in range(5):
        admin(put, give, "ann")
        admin(put, give, "bob")

        def remove(name):
            try:
                write(ledger, accounts.remove_account, name)
            except LastAdmin:
                return 0
            return 1

        with ThreadPoolExecutor(2) as pool:
            assert sum(pool.map(remove, ["ann", "bob"])) == 1


def test_removed_account_loses_permissions_and_logins(ledger, put, give):
    put("ann", "hash")
    give("user:ann", "settle", Role.VIEWER)
    write(ledger, logins.add_login, "secret", "user:ann", how="password", address=None, lasts_s=HOUR)
    write(ledger, accounts.remove_account, "ann")
    assert accounts.permissions(ledger) == []
    assert logins.live_login(ledger, "secret", idle_s=HOUR) is None
    with pytest.raises(NoSuchAccount):
        write(ledger, accounts.remove_account, "ann")


def test_renamed_job_carries_its_permissions_and_a_forgotten_one_loses_them(ledger, give):
    give("user:ann", "old", Role.OPERATOR)
    give("user:bob", "old", Role.OPERATOR)
    give("user:bob", "new", Role.VIEWER)
    write(ledger, accounts.move_permissions, "old", "new")
    assert [(p.principal, p.job, p.role) for p in accounts.permissions(ledger)] == [
        ("user:ann", "new", "operator"),
        ("user:bob", "new", "viewer"),
    ]
    assert write(ledger, accounts.forget_permissions, "new") == 2
    assert accounts.permissions(ledger) == []


def test_login_is_known_by_its_secret_until_it_is_revoked(ledger):
    write(ledger, logins.add_login, "s3cr3t", "user:ann", how="password", address="10.0.0.7", lasts_s=HOUR)
    found = logins.live_login(ledger, "s3cr3t", idle_s=HOUR)
    assert (found.principal, found.how, found.address) == ("user:ann", "password", "10.0.0.7")
    assert "s3cr3t" not in repr(found)
    assert logins.live_login(ledger, "S3cr3t", idle_s=HOUR) is None
    assert [each.principal for each in logins.logins(ledger)] == ["user:ann"]
    assert write(ledger, logins.revoke_login, found.secret_hash) == 1
    assert logins.live_login(ledger, "s3cr3t", idle_s=HOUR) is None
    assert logins.logins(ledger) == []


def test_login_ends_by_itself_after_its_time_and_after_being_idle(ledger):
    write(ledger, logins.add_login, "over", "user:ann", how="password", address=None, lasts_s=-1.0)
    write(ledger, logins.add_login, "idle", "user:ann", how="password", address=None, lasts_s=HOUR)
    assert logins.live_login(ledger, "over", idle_s=HOUR) is None
    assert logins.live_login(ledger, "idle", idle_s=0.0) is None
    assert logins.live_login(ledger, "idle", idle_s=HOUR) is not None
    assert logins.prune_logins(ledger, ended_for_s=0.0) == 1


def test_password_that_is_changed_ends_all_logins(ledger, put):
    put("ann", "one")
    write(ledger, logins.add_login, "secret", "user:ann", how="password", address=None, lasts_s=HOUR)
    put("ann", "two")
    assert logins.live_login(ledger, "secret", idle_s=HOUR) is None


def test_api_token_ends_when_it_expires_or_is_revoked(ledger):
    now = ledger.now_us()
    add = partial(write, ledger, logins.add_api_token, by="ann")
    add("t1", "secret", name="ci", expires_at=now + 10**12)
    add("t2", "old", name="ci", expires_at=now - 1)
    found = logins.live_api_token(ledger, "secret")
    assert (found.id, found.name, found.created_by) == ("t1", "ci", "ann")
    assert logins.live_api_token(ledger, "old") is None
    assert logins.live_api_token(ledger, "wrong") is None
    assert [each.id for each in logins.api_tokens(ledger)] == ["t1"]
    assert logins.api_tokens(ledger)[0].used_at is not None
    assert write(ledger, logins.revoke_api_token, "t1") is True
    assert write(ledger, logins.revoke_api_token, "t1") is False
    assert logins.live_api_token(ledger, "secret") is None
    assert {each.id for each in logins.api_tokens(ledger, ended=True)} == {"t1", "t2"}
    with pytest.raises(NoSuchApiToken):
        write(ledger, logins.revoke_api_token, "t3")


def test_password_of_the_last_admin_cannot_be_taken_away(ledger, put, give):
    admin(put, give, "ann")
    with pytest.raises(LastAdmin):
        put("ann", None)
    assert accounts.account(ledger, "ann").password == "hash"
    put("bob", None)
    give("user:bob", ALL_JOBS, Role.ADMIN)  # cannot log in
    with pytest.raises(LastAdmin):
        write(ledger, accounts.disable_account, "ann")
    put("bob", "another hash")
    assert put("ann", None) is False

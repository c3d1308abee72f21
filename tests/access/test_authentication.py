"""Who asks: forged, expired and revoked logins and API tokens, wrong passwords, and what of that is on record."""

from typing import Any

import pytest
from sqlalchemy import update

from fencepost.access import Access, Authentication, HostPrincipal, passwords
from fencepost.access.refusals import Unknown
from fencepost.access.tries import FREE_FOR_ACCOUNT, FREE_FOR_ADDRESS, FREE_FOR_PAIR, LONGEST_WAIT_S, Tries
from fencepost.app.operations import Operations
from fencepost.core.rights import Scope
from fencepost.errors import NoSuchJob, NotAllowed, NotAuthenticated, TooManyTries
from fencepost.ledger import accounts, jobs
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.restoring import accept, as_copy
from fencepost.threaded import ThreadedRuntime

GOOD = "correct horse battery"


class Shifted(ThreadedRuntime):
    """The real clocks, of which the monotonic one can be put ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def kind() -> str:
    return "sqlite"  # the statements are tested on every database in tests/ledger


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
def ledger(ledger_url: str, clock: Shifted) -> Any:
    made = open_ledger(ledger_url, clock)
    yield made
    made.close()


@pytest.fixture
def ops(ledger: Ledger) -> Operations:
    for name in ("settle", "other"):
        jobs.register(ledger, [NewJob(name, "manual", "{}", "{}")], generation=0)
    return Operations(ledger, Scope.direct())


@pytest.fixture
def door(ops: Operations) -> Authentication:
    return Authentication(ops)


@pytest.fixture
def access(ledger: Ledger) -> Access:
    return Access(ledger, Scope.direct("root"))


@pytest.fixture
def ann(access: Access, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account whose password is compared quickly, and in the open."""
    monkeypatch.setattr(passwords, "is_right", lambda password, hashed: hashed is not None and password == GOOD)
    monkeypatch.setattr(passwords, "is_outdated", lambda hashed: False)
    monkeypatch.setattr(passwords, "hash_password", lambda password: f"hash of {len(password)}")
    access.add_account("ann", GOOD, role="viewer", jobs=["settle"])
    return "ann"


def change(ledger: Ledger, table: str, **values: Any) -> None:
    rows = ledger.tables.operating[table]
    ledger.write(lambda cursor: ledger.change(cursor, update(rows).values(**values)))


def said(ops: Operations, n: int = 0) -> list[tuple[str, str, str, str]]:
    found = reversed(ops.audit.entries(limit=200))
    return [(each.who, each.how or "", each.act, each.outcome or "") for each in found if each.act != "change access"]


def test_login_with_the_right_password_leads_to_the_permissions_on_record(door, ops, access):
    access.add_account("ann", GOOD, role="viewer", jobs=["settle"])  # with Argon2id, once
    made = door.log_in("ann", GOOD, address="192.0.2.1", request_id="r1")
    assert made.secret not in repr(made)
    assert len(bytes.fromhex(made.secret)) == 32
    ann = door.by_login(made.secret, address="192.0.2.2")
    assert (ann.principal, ann.caller.how, ann.caller.address) == ("user:ann", "login", "192.0.2.2")
    assert [each.name for each in ann.jobs()] == ["settle"]
    assert door.log_out(made.secret)
    with pytest.raises(NotAuthenticated):
        door.by_login(made.secret)
    assert not door.log_out(made.secret)
    assert said(ops)[:2] == [("user:ann", "login", "log in", "done"), ("user:ann", "login", "log out", "done")]
    with pytest.raises(NotAuthenticated, match="wrong"):
        door.log_in("ann", GOOD + "!")


def test_every_login_that_is_not_alive_is_refused_alike(door, ledger, clock, ann):
    secret = door.log_in(ann, GOOD).secret
    forged = [secret[:-1] + ("0" if secret[-1] != "0" else "1"), secret.upper(), secret + " ", "", "x" * 5000]
    errors = set()
    for each in forged:
        with pytest.raises(NotAuthenticated) as error:
            door.by_login(each)
        errors.add(str(error.value))
    for values in ({"expires_at": 1}, {"seen_at": 1}, {"revoked_at": 1}):
        change(ledger, "login", **{"expires_at": 2**60, "seen_at": 2**60, "revoked_at": None, **values})
        clock.ahead_s += 1.1
        with pytest.raises(NotAuthenticated) as error:
            door.by_login(secret)
        errors.add(str(error.value))
    assert len(errors) == 1


def test_every_api_token_that_is_not_alive_is_refused_alike(door, ledger, access, clock):
    made = access.add_api_token("ci", "operator", expires_in="1h", jobs=["settle"])
    token = door.by_api_token(made.secret)
    assert (token.principal, token.caller.how) == (f"token:{made.id}", "api token")
    assert [each.name for each in token.jobs()] == ["settle"]
    for forged in (made.secret.removeprefix("fp_"), made.secret[:-1], made.secret.upper(), made.id, "fp_"):
        with pytest.raises(NotAuthenticated):
            door.by_api_token(forged)
    with pytest.raises(NotAuthenticated):
        door.by_login(made.secret)
    change(ledger, "api_token", expires_at=1)
    clock.ahead_s += 1.1
    with pytest.raises(NotAuthenticated):
        token.check()
    change(ledger, "api_token", expires_at=2**60)
    token.check()
    access.revoke_api_token(made.id)
    with pytest.raises(NotAuthenticated):
        token.trigger("settle")
    clock.ahead_s += 1.1
    with pytest.raises(NotAuthenticated):
        token.jobs()


def test_what_is_taken_away_is_gone_for_acts_at_once_and_for_looks_after_a_second(door, access, clock, ann):
    user = door.by_login(door.log_in(ann, GOOD).secret)
    access.give("user:ann", "operator", jobs=["settle"])
    assert user.trigger("settle").is_new
    access.take("user:ann")
    with pytest.raises(NoSuchJob):
        user.trigger("settle", again=True)
    assert user.jobs() == []
    access.give("user:ann", "viewer", jobs=["other"])
    clock.ahead_s += 1.1
    assert [each.name for each in user.jobs()] == ["other"]


@pytest.mark.parametrize("act", ["disable_account", "remove_account", "set_password"])
def test_login_ends_with_the_account_and_with_its_password(door, access, clock, ann, act):
    user = door.by_login(door.log_in(ann, GOOD).secret)
    getattr(access, act)(ann, *(["another password"] if act == "set_password" else []))
    with pytest.raises(NotAuthenticated):
        user.cancel(1)
    clock.ahead_s += 1.1
    with pytest.raises(NotAuthenticated):
        user.check()
    if act != "set_password":
        with pytest.raises(NotAuthenticated):
            door.log_in(ann, GOOD)


def test_password_that_is_changed_while_it_is_compared_lets_nobody_in(door, access, ledger, ann, monkeypatch):
    def compare(password: str, hashed: str | None) -> bool:
        accounts_before = accounts.account(ledger, ann)
        access.set_password(ann, "another password")
        return accounts_before is not None

    monkeypatch.setattr(passwords, "is_right", compare)
    with pytest.raises(NotAuthenticated):
        door.log_in(ann, GOOD)


def test_proxy_and_host_application_are_principals_of_their_own(door, access):
    access.give("proxy:ann", "viewer", jobs=["settle"])
    access.give("host:ann", "viewer", jobs=["other"])
    assert [each.name for each in door.by_proxy("ann").jobs()] == ["settle"]
    assert [each.name for each in door.by_host("ann").jobs()] == ["other"]
    assert [each.name for each in door.by_host(HostPrincipal("ann", {"": "viewer"})).jobs()] == ["other", "settle"]
    assert door.by_host(HostPrincipal("ann", {})).jobs() == []
    assert door.by_proxy("Ann").jobs() == door.by_proxy("bob").jobs() == []
    for name in ("", "ann ", "ann\n", "ann,bob", "x" * 200):
        with pytest.raises(NotAuthenticated):
            door.by_proxy(name)


def test_one_time_link_of_the_terminal_makes_an_admin(door, ops):
    user = door.by_login(door.log_in_by_link("root").secret)
    assert (user.principal, user.caller.how) == ("local:root", "link")
    assert user.audit.entries()[0].act == "log in"


def test_wrong_passwords_are_refused_without_hashing_for_a_growing_while(door, clock, ann, monkeypatch):
    hashed = []
    monkeypatch.setattr(passwords, "is_right", lambda password, _: hashed.append(password) or password == GOOD)
    for _ in range(FREE_FOR_PAIR):
        with pytest.raises(NotAuthenticated, match="wrong"):
            door.log_in(ann, "wrong")
    with pytest.raises(TooManyTries, match="30 s") as refused:
        door.log_in(ann, GOOD)  # the right one
    assert len(hashed) == FREE_FOR_PAIR
    clock.ahead_s += refused.value.retry_in_s
    with pytest.raises(NotAuthenticated, match="wrong"):
        door.log_in(ann, "wrong")
    with pytest.raises(TooManyTries, match="60 s"):
        door.log_in(ann, GOOD)
    clock.ahead_s += 61
    assert door.log_in(ann, GOOD)
    with pytest.raises(NotAuthenticated, match="wrong"):
        door.log_in(ann, "wrong")  # counted from the beginning


def test_password_that_waited_while_others_were_wrong_is_not_compared(door, ann, monkeypatch):
    hashed = []
    monkeypatch.setattr(passwords, "is_right", lambda password, _: hashed.append(password) or password == GOOD)
    real = door._hashing.turn

    def turn(wait_s: float) -> Any:
        for _ in range(FREE_FOR_PAIR):  # those that were sent at the same time, and had their turn before
            door._tries.failed(ann, None)
        return real(wait_s)

    monkeypatch.setattr(door._hashing, "turn", turn)
    with pytest.raises(TooManyTries):
        door.log_in(ann, GOOD)
    assert hashed == []


def test_an_address_is_locked_after_more_tries_than_an_account_and_the_wait_has_an_end():
    clock = Shifted()
    tries = Tries(clock)
    for number in range(FREE_FOR_ADDRESS):
        assert tries.wait_s(f"user{number}", "192.0.2.1") == 0
        tries.failed(f"user{number}", "192.0.2.1")
    assert 29 < tries.wait_s("ann", "192.0.2.1") <= 30
    assert tries.wait_s("ann", "192.0.2.2") == 0
    for _ in range(40):
        tries.failed("ann", "192.0.2.1")
    assert LONGEST_WAIT_S - 1 < tries.wait_s("ann", "192.0.2.1") <= LONGEST_WAIT_S
    clock.ahead_s += 2 * 3600
    tries.failed("ann", "192.0.2.1")
    assert tries.wait_s("ann", "192.0.2.1") == 0


def test_a_stranger_locks_out_neither_the_owner_of_an_account_nor_others_at_the_same_proxy():
    clock = Shifted()
    tries = Tries(clock)
    for _ in range(FREE_FOR_PAIR):
        tries.failed("ann", "192.0.2.1")
    assert tries.wait_s("ann", "192.0.2.1") > 0
    assert tries.wait_s("ann", "192.0.2.2") == 0
    for number in range(FREE_FOR_ACCOUNT):  # from many addresses
        tries.failed("ann", f"192.0.2.{number}")
    assert tries.wait_s("ann", "198.51.100.1") > 0
    for number in range(10 * FREE_FOR_ADDRESS):
        tries.failed(f"user{number % 20}", None)
    assert tries.wait_s("bob", None) == 0
    assert tries.wait_s("user7", None) > 0


def test_the_addresses_of_a_client_with_ipv6_are_one():
    tries = Tries(Shifted())
    for number in range(FREE_FOR_PAIR):
        tries.failed("ann", f"2001:db8:1:2::{number:x}")
    assert tries.wait_s("ann", "2001:db8:1:2:ffff::1") > 0
    assert tries.wait_s("ann", "2001:db8:1:3::1") == 0
    for _ in range(FREE_FOR_PAIR):
        tries.failed("bob", "::ffff:192.0.2.1")
    assert tries.wait_s("bob", "192.0.2.1") > 0


def test_refusals_before_it_is_known_who_asks_are_written_once_a_second_and_counted(door, ops, clock, ann):
    head = ops.audit.anchor().n
    for number in range(300):
        with pytest.raises(NotAuthenticated):
            door.by_api_token(f"fp_{number}", address="192.0.2.1")
    with pytest.raises(NotAuthenticated):
        door.log_in("a password typed here", "x", address="192.0.2.1")
    with pytest.raises(NotAuthenticated):
        door.log_in(ann, "x", address="192.0.2.1")
    assert ops.audit.anchor().n - head <= 3  # one a second, and this takes less than three
    door.close()
    found = ops.audit.entries(limit=10, act="log in")
    counts: dict[tuple[str, str | None], int] = {}
    for each in found:
        counts[each.who, each.how] = counts.get((each.who, each.how), 0) + each.detail["count"]
    assert counts == {("unknown", "api token"): 300, ("unknown", "login"): 1, ("user:ann", "login"): 1}
    assert "typed here" not in repr(ops.audit.entries(limit=100))


def test_many_addresses_are_one_number(door, ops):
    for number in range(500):
        door.refusals.count(Unknown("login", None, f"192.0.2.{number}"))
    door.close()
    found = ops.audit.entries(limit=1000, act="log in")
    assert sum(each.detail["count"] for each in found) == 500
    assert len(found) <= 103


def test_the_next_minute_has_entries_again_and_the_count_of_the_last(door, ops, clock, access):
    access.give("host:ann", "viewer", jobs=["settle"])
    ann = door.by_host("ann")
    for _ in range(2):
        for _ in range(12):
            with pytest.raises(NotAllowed):
                ann.trigger("settle")
        clock.ahead_s += 61
    door.close()
    acts = [act for _, _, act, _ in said(ops)]
    assert (acts.count("trigger"), acts.count("several acts")) == (20, 2)


@pytest.mark.parametrize("is_copy", [False, True])
def test_logins_of_a_dump_do_not_open_a_restored_ledger_nor_its_tokens_a_copy(
    ledger: Ledger, door: Authentication, access: Access, is_copy: bool
) -> None:
    access.put_account("ann", GOOD)
    access.give("user:ann", "viewer")
    cookie, token = door.log_in("ann", GOOD).secret, access.add_api_token("ci", "viewer", expires_in="1d").secret
    door.by_login(cookie).check()
    if is_copy:
        as_copy(ledger, by="ann", reason="staging")
    else:
        accept(ledger, by="ann", reason="the disk failed")
    anew = Authentication(Operations(ledger, Scope.direct()))
    with pytest.raises(NotAuthenticated):
        anew.by_login(cookie).check()
    if is_copy:
        with pytest.raises(NotAuthenticated):
            anew.by_api_token(token).check()
    else:
        anew.by_api_token(token).check()
    anew.by_login(anew.log_in("ann", GOOD).secret).check()

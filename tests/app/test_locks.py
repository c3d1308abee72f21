"""Locks, keys and leaders for operators: what is listed, what a release does, and that it is never without a record."""

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from fencepost import App, locks
from fencepost.app import lock_operations
from fencepost.app.composing import publish
from fencepost.app.lease_places import LeasesElsewhere, LeasesInLedger, leases_of
from fencepost.app.operations import Operations
from fencepost.app.records.concerns import ConcernRecord
from fencepost.core.names import LEADER_LEASE, NODE_LEASE
from fencepost.core.rights import Scope
from fencepost.errors import (
    InvalidName,
    InvalidParameters,
    LedgerUnavailable,
    NoSuchLock,
    StateChanged,
    StoreUnavailable,
)
from fencepost.leases.locks import Locks
from fencepost.leases.stores.sql.sightings import Sightings
from fencepost.ledger import nodes
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.urls import lease_url
from testbed.wait import until
from tests.access.scene import set_run
from tests.servers import RUNTIME


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    made = App(ledger_url)
    for name in ("settle", "other"):
        made.job(type="manual", name=name)(_nothing)
    publish(made)
    yield made
    made.close()


@pytest.fixture
def holder(ledger_url: str) -> Iterator[Locks]:
    """Another process, as far as the store knows."""
    with locks.connect(lease_url(ledger_url), holder="h1") as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"lock {RUNTIME.new_id()[:8]}/of <b>'\"%ü"


def _nothing(account: int = 0) -> None:
    """Do nothing."""


def said(app: App) -> list[tuple[str, str]]:
    return [(each.act, each.outcome) for each in app.operations.audit.entries()][::-1]


def test_release_ends_the_grant_of_the_token_that_was_shown_and_is_on_record(
    app: App, holder: Locks, name: str
) -> None:
    ops = app.operations.locks
    with pytest.raises(NoSuchLock):
        ops.release(name, by="ann", reason="why")
    lease = holder.lock(name, ttl="30s").acquire()
    shown = ops.show(name)
    assert (shown.held, shown.token, shown.store) == (True, lease.token, "ledger")
    assert shown.holder is not None
    assert shown.holder.startswith("h1:")
    assert shown.age_s is not None
    assert shown.ttl_s == 30
    assert 0 <= shown.age_s < 25
    with pytest.raises(StateChanged, match="another holder now"):
        ops.release(name, by="ann", reason="why", token=lease.token - 1)
    with pytest.raises(InvalidParameters, match="say why"):
        ops.release(name, by="ann", reason=" ")
    assert ops.show(name).held
    assert said(app) == []
    done = ops.release(name, by="ann", reason="its host is gone", token=lease.token)
    assert (done.released, done.token, done.holder) == (True, lease.token, shown.holder)
    with pytest.raises(locks.LeaseLost):
        lease.check()
    [entry] = app.operations.audit.entries(act="lock released")
    assert (entry.who, entry.reason, entry.outcome) == ("ann", "its host is gone", "done")
    assert entry.detail == {"lock": name, "store": "ledger", "holder": shown.holder, "token": lease.token}
    [line] = app.operations.journal(what="lock released")
    assert (line.by, line.token) == ("ann", lease.token)
    past = ops.history(name)
    assert past is not None
    assert [(each.token, each.why) for each in past] == [(lease.token, "revoked")]
    again = ops.release(name, by="ann", reason="again", token=lease.token)
    assert (again.released, len(app.operations.journal(what="lock released"))) == (False, 1)
    with suppress(locks.LeaseLost):
        lease.release()
    assert holder.lock(name).acquire().token > lease.token


def test_no_release_without_its_entry(app: App, holder: Locks, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = holder.lock(name).acquire()

    def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("the audit cannot be written")

    with monkeypatch.context() as patched, pytest.raises(LedgerUnavailable):
        patched.setattr("fencepost.ledger.auditing.append", away)
        app.operations.locks.release(name, by="ann", reason="why")
    assert app.operations.locks.show(name).token == lease.token
    lease.check()
    assert said(app) == []


def test_list_goes_from_page_to_page_and_tells_held_kept_and_free_apart(app: App, holder: Locks, name: str) -> None:
    ops = app.operations.locks
    names = [f"{name} {number}" for number in range(5)]
    leases = [holder.lock(each, at_least="1h" if each == names[4] else 0).acquire() for each in names]
    for lease in leases[2:]:
        lease.release()
    found, after = [], ""
    while page := ops.list(after=after, limit=2):
        assert len(page) <= 2
        found += [each for each in page if each.name in names]
        after = page[-1].name
    assert sorted(each.name for each in found) == names
    states = {each.name: (each.held, each.kept) for each in found}
    assert list(map(states.get, names)) == [(True, False), (True, False), (False, False), (False, False), (False, True)]
    session = holder.lock(f"{NODE_LEASE}abc").acquire()
    with pytest.raises(InvalidParameters, match="session of a node"):
        ops.release(session.name, by="ann", reason="why")
    with pytest.raises(InvalidName):
        ops.show("")
    session.check()
    held = [each.name for each in ops.list(held=True, limit=1000)]
    assert session.name not in held
    assert [each in held for each in names] == [True, True, False, False, False]


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_waiter_shows_where_the_store_knows_it(app: App, holder: Locks, name: str) -> None:
    lease = holder.lock(name).acquire()
    assert app.operations.locks.show(name).waited_for is False
    with locks.connect(app.ledger.url.lease_url()) as other:
        waiting = threading.Thread(target=lambda: other.try_lock(name, wait="30s"))
        waiting.start()
        until(lambda: app.operations.locks.show(name).waited_for is True, 20, what="the waiter shows")
        lease.release()
        waiting.join(30)


def test_leaders_are_those_that_led_with_their_tokens(app: App, holder: Locks) -> None:
    tokens = []
    for _ in range(2):
        lease = holder.lock(LEADER_LEASE).acquire()
        tokens.append(lease.token)
        lease.release()
    found = app.operations.locks.leaders(limit=2)
    assert [(each.token, each.why) for each in found] == [(token, "released") for token in tokens[::-1]]
    assert all(each.acquired_at <= each.ended_at for each in found)
    leader = app.operations.leader()
    assert leader is not None
    assert (leader.held, leader.token) == (False, tokens[-1])


def test_a_node_is_overdue_exactly_if_the_reaper_s_watch_would_miss_it(
    app: App, holder: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """quartznet#3418: the list and the sweep disagreed. Here both use one rule; the watch has seen enough."""
    offsets_s = {"renewed": 0, "late": -8, "just over": -10.5, "long over": -3600, "clock went back": 30}
    for number, (word, offset_s) in enumerate(offsets_s.items()):
        node_id = RUNTIME.new_id()
        lease = holder.lock(NODE_LEASE + node_id, ttl=10 + number / 1000).acquire()  # a session of its own for each ttl
        _join(app, node_id, word, lease.grant_id)
        _shift(app, node_id, offset_s)
    _join(app, RUNTIME.new_id(), "without a session", "no-such-grant")
    monkeypatch.setattr(Sightings, "spared_s", lambda *_, **__: 0.0)
    rows = nodes.living_nodes(app.ledger)
    missing = holder.watch([each.grant for each in rows]).missing
    shown = {each.name: each for each in app.operations.nodes(living=True)}
    overdue = {each.name for each in shown.values() if each.state == "overdue"}
    assert overdue == {each.name for each in rows if each.grant_id in missing}
    assert overdue == {"just over", "long over", "clock went back", "without a session"}
    late, over = shown["late"], shown["just over"]
    assert late.lease_age_s is not None
    assert 8 <= late.lease_age_s < 10
    assert late.trust_left_s == pytest.approx(max(9 - late.lease_age_s, 0), abs=0.01)
    assert (over.trust_left_s, late.lease_ttl_s) == (0, 10.001)
    assert shown["without a session"].lease_age_s is None
    assert shown["without a session"].lease_mark is None
    again = {each.name: each for each in app.operations.nodes(living=True)}
    assert {name: each.lease_mark for name, each in again.items()} == {
        name: each.lease_mark for name, each in shown.items()
    }  # an age is another one each time


def test_when_all_nodes_died_hard_it_is_said_at_once_and_no_run_waits_for_them(app: App, holder: Locks) -> None:
    ops = app.operations
    run = ops.trigger("settle", by="ann").run_id
    [gone] = needing_a_node(app)
    ops.concerns.acknowledge("no-node", gone.id, by="ann", note="it was stopped")
    leases = []
    for number, name in enumerate(("node-1", "node-2")):
        node_id = RUNTIME.new_id()
        leases.append((node_id, holder.lock(NODE_LEASE + node_id, ttl=30 + number).acquire()))
        _join(app, node_id, name, leases[-1][1].grant_id)
    assert needing_a_node(app) == []
    assert ops.waits(run) == "it is about to be claimed"
    _shift(app, leases[0][0], -900)
    assert needing_a_node(app) == []
    assert ops.waits(run) == "it is about to be claimed"
    _shift(app, leases[1][0], -191)
    [found] = needing_a_node(app)
    assert re.fullmatch(
        r"no node has renewed its lease \(the last one, node-2, 3m1\ds ago, ttl 31s\), so nothing runs: if its process "
        "is gone, start one: fencepost run APP",
        found.sentence,
    )
    assert (found.level, found.acknowledged) == ("bad", None)
    assert found.since_at is not None
    assert 191 <= (ops.now() - found.since_at).total_seconds() < 200
    assert re.fullmatch(
        r"only node-2 and 1 other have this job, and none of them has renewed its lease for 3m1\ds \(ttl 31s\): "
        "they are probably dead; start a node: fencepost run APP",
        ops.waits(run) or "",
    )
    nodes.leave(app.ledger, leases[0][0])
    said_of_run = ops.waits(run) or ""
    assert re.fullmatch(
        r"only node-2 has this job, and it has not renewed its lease for 3m1\ds \(ttl 31s\): it is probably dead; "
        "start a node: fencepost run APP",
        said_of_run,
    )
    set_run(app, run, available_at=app.ledger.now_us() - 120_000_000)
    assert said_of_run[:40] in next(each.sentence for each in ops.concerns.list() if each.what == "late")
    assert [each.id for each in needing_a_node(app)] == [found.id]  # it can be acknowledged by this id


def test_who_knows_of_a_late_renewal_does_not_know_of_the_next_one(app: App, holder: Locks) -> None:
    def late() -> list[ConcernRecord]:
        return [each for each in ops.concerns.list() if each.what == "node-late"]

    ops, node_id = app.operations, RUNTIME.new_id()
    lease = holder.lock(NODE_LEASE + node_id, ttl="10m").acquire()
    _join(app, node_id, "node-1", lease.grant_id)
    _shift(app, node_id, -500)
    [first] = late()
    assert first.since_at is not None
    assert 500 <= (ops.now() - first.since_at).total_seconds() < 510
    ops.concerns.acknowledge("node-late", first.id, by="ann", note="the network is slow")
    [known] = late()
    assert (known.id, known.acknowledged is not None) == (first.id, True)
    _shift(app, node_id, 500)
    assert late() == []
    _shift(app, node_id, -450)
    [anew] = late()
    assert anew.acknowledged is None
    assert anew.since_at is not None
    assert 450 <= (ops.now() - anew.since_at).total_seconds() < 460


def test_a_lease_store_that_does_not_answer_makes_no_node_seem_dead(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(LeasesElsewhere, "sessions", silent)
    monkeypatch.setattr(LeasesInLedger, "sessions", silent)
    _join(app, RUNTIME.new_id(), "node-1", "g1")
    run = app.operations.trigger("settle", by="ann").run_id
    assert app.operations.waits(run) == "it is about to be claimed"
    assert needing_a_node(app) == []


def needing_a_node(app: App) -> list[ConcernRecord]:
    found = app.operations.concerns.list()
    return [each for each in found if each.what == "no-node" and each.acknowledged is None]


def _join(app: App, node_id: str, name: str, grant_id: str) -> None:
    common = {"token": 1, "generation": 0, "version": "1", "slots": 4, "queues": ("default",), "jobs": ("settle",)}
    nodes.join(app.ledger, NewNode(id=node_id, name=name, grant_id=grant_id, **common))


def _shift(app: App, node_id: str, offset_s: float) -> None:
    """Move the end of a node's session, as if its last renewal were that much older."""
    url, offset_us = app.ledger.url, round(offset_s * 1_000_000)
    session, lease = f"{url.prefix}session", f"{url.prefix}lease"
    one = f"(SELECT session_id FROM {lease} WHERE name = '{NODE_LEASE}{node_id}')"
    sql = f"UPDATE {session} SET expires_at = expires_at + {offset_us} WHERE id = {one}"
    if url.is_file:
        with sqlite3.connect(url.path.with_name("app.leases.db")) as file:
            file.execute(sql)
        file.close()
    else:
        app.ledger.write(lambda cursor: cursor.execute(sql))


def test_keys_name_their_holder_and_the_waiting_in_their_order(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_operations, "MOST_WAITING", 4)

    def run(job: str, key: str, state: str, **more: object) -> int:
        run_id = app.operations.trigger(job, by="x", again=True).run_id
        set_run(app, run_id, state=state, exclusive_key=key, **more)
        return run_id

    waits = {"waits_for": "key"}
    holds = run("settle", "a", "running", started_at=1_000_000, token=7, node="n1")
    low, high = run("settle", "a", "waiting", **waits), run("other", "a", "waiting", **waits, priority=5)
    for _ in range(3):
        run("settle", "b", "waiting", **waits)
    c = run("other", "c", "running", started_at=1, token=9)
    first = app.operations.locks.keys()
    assert [(each.key, each.run_id, each.token, each.held) for each in first] == [
        ("a", holds, 7, True),
        ("b", None, None, False),
    ]
    assert [each.run_id for each in first[0].waiting] == [high, low]
    assert [(each.more_waiting, len(each.waiting)) for each in first] == [(False, 2), (True, 2)]
    assert [each.key for each in app.operations.locks.keys(after="b")] == ["c"]
    assert [each.run_id for each in app.operations.locks.keys(after="b", limit=1)] == [c]
    assert [each.key for each in app.operations.locks.keys(limit=1)] == ["a"]


# -- a store that is not the ledger's database -----------------------------------------------------------------------


@pytest.fixture
def two_stores(ledger_url: str, tmp_path: object) -> Iterator[App]:
    made = App(ledger_url, leases=f"sqlite:///{tmp_path}/elsewhere.db")
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["postgresql"])
class TestAnotherStore:
    """On one database: what differs is the store."""

    def test_release_there_is_said_before_and_after(self, two_stores: App) -> None:
        ops = two_stores.operations.locks
        lease = two_stores.lock("month-end").acquire()
        assert [each.name for each in ops.list(store="leases", held=True)] == ["month-end"]
        with pytest.raises(StateChanged):
            ops.release("month-end", by="ann", reason="why", token=1, store="leases")
        assert ops.release("month-end", by="ann", reason="why", token=lease.token, store="leases").released
        assert said(two_stores) == [("release lock", "begun"), ("lock released", "done")]
        with pytest.raises(locks.LeaseLost):
            lease.check()

    def test_what_became_of_it_is_said_if_it_failed(self, two_stores: App, monkeypatch: pytest.MonkeyPatch) -> None:
        ops = two_stores.operations.locks
        two_stores.lock("month-end").acquire()

        def away(*_: object) -> bool:
            raise StoreUnavailable("no answer")

        monkeypatch.setattr(LeasesElsewhere, "release", away)
        with pytest.raises(StoreUnavailable):
            ops.release("month-end", by="ann", reason="why", store="leases")
        monkeypatch.setattr(LeasesElsewhere, "release", lambda *_: False)
        with pytest.raises(StateChanged, match="meanwhile"):
            ops.release("month-end", by="ann", reason="why", store="leases")
        outcomes = ["begun", "unknown", "begun", "not done"]
        assert said(two_stores) == [("release lock", each) for each in outcomes]

    def test_a_store_that_the_application_does_not_name_is_refused(self, app: App) -> None:
        assert app.operations.locks.stores() == ("ledger",)
        with pytest.raises(InvalidParameters, match="there is no store 'leases'"):
            app.operations.locks.list(store="leases")

    def test_nothing_was_taken_and_nothing_made_by_looking(self, app: App) -> None:
        assert app.operations.locks.list(held=True) is not None
        assert app.operations.locks.history("never") == []
        count = f"SELECT count(*) FROM {app.ledger.url.prefix}session"
        before = app.ledger.read(lambda cursor: cursor.execute(count).fetchone())
        app.operations.nodes()
        app.operations.leader()
        assert app.ledger.read(lambda cursor: cursor.execute(count).fetchone()) == before


def test_before_there_are_leases_there_is_nothing_and_nothing_is_made(
    bare_url: str, opened: Callable[[str], Ledger]
) -> None:
    ledger = opened(bare_url)
    place = leases_of(ledger, None)
    assert place.page(after="", limit=10, is_held=False) == []
    assert place.history(None, limit=10) == []
    assert place.read("nightly") is None
    assert place.sessions([]) == {}
    with pytest.raises(NoSuchLock):
        Operations(ledger, Scope.direct()).locks.release("nightly", by="ann", reason="why")
    if ledger.url.is_file:
        assert not ledger.url.path.with_name("app.leases.db").exists()

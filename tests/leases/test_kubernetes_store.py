"""What is Kubernetes' own: refusals, what stands in it, how expiry is judged, how it fails. The rest: contract."""

import json
import os
import re
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.kubernetes import KubernetesStore, config, objects
from fencepost.leases.stores.kubernetes.clock import ServerClock
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from testbed.kubernetes import Kubernetes
from testbed.proxy import Proxy
from testbed.server import free_port
from tests.leases.preparing import prepared

RUNTIME = ThreadedRuntime()
TTL_S = 60.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Leap(ThreadedRuntime):
    """A runtime whose monotonic clock can be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


def store_at(url: str, runtime: ThreadedRuntime = RUNTIME) -> KubernetesStore:
    store = store_from_url(url, runtime)
    assert isinstance(store, KubernetesStore)
    return store


def session_of(store: KubernetesStore, holder: str = "somebody", ttl_s: float = TTL_S) -> Session:
    return store.open(holder, ttl_s=ttl_s, call_timeout_s=20.0)


def ask(store: KubernetesStore, session: Session, name: str, **wishes) -> Grant | Held | AlreadyDone:
    return store.acquire(session, name, grant_id=RUNTIME.new_id(), **wishes)


def take(store: KubernetesStore, session: Session, name: str, **wishes) -> Grant:
    outcome = ask(store, session, name, **wishes)
    assert isinstance(outcome, Grant), outcome
    return outcome


@pytest.fixture(scope="module")
def server() -> Iterator[Kubernetes]:
    with Kubernetes() as kubernetes:
        yield kubernetes


@pytest.fixture
def store(server: Kubernetes) -> Iterator[KubernetesStore]:
    store = store_at(server.url)
    assert store.start() == ()
    yield store
    store.shutdown()


@pytest.fixture
def other(server: Kubernetes) -> Iterator[KubernetesStore]:
    """Another node."""
    store = store_at(server.url)
    yield store
    store.shutdown()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


def api(server: Kubernetes, method: str, path: str, body: object = None) -> dict:
    """What an operator does with kubectl."""
    request = urllib.request.Request(
        f"https://{server.address}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=server.ca_file)
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return json.load(answer)


def lease_path(name: str) -> str:
    return f"{LEASES}/{objects.lock_object_name('fencepost', name)}"


def session_path(session: Session) -> str:
    return f"{LEASES}/{objects.session_object_name('fencepost', session.id)}"


def exists(server: Kubernetes, path: str) -> bool:
    try:
        api(server, "GET", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


class TestRoundTrips:
    def test_free_lock_costs_one_request_each_way(self, store: KubernetesStore, name: str) -> None:
        session = session_of(store)
        store.release(take(store, session, name))
        before = store.requests
        grant = take(store, session, name)
        assert store.requests == before + 1
        assert store.release(grant)
        assert store.requests == before + 2

    def test_thousand_grants_are_renewed_by_one_request(self, store: KubernetesStore, name: str) -> None:
        session = session_of(store)
        with ThreadPoolExecutor(6) as threads:
            grants = list(threads.map(lambda number: take(store, session, f"{name}/{number}"), range(1000)))
        before = store.requests
        assert store.renew(session, grants) == Renewed()
        assert store.requests == before + 1
        assert store.missing([*grants[1:], replace(grants[0], grant_id="other")]) == {"other"}
        assert store.requests == before + 1 + 1 + 2, "one look at the session, two pages of 500"
        store.close(session)
        assert store.missing(grants) == {grant.grant_id for grant in grants}

    def test_waiting_costs_a_list_and_a_watch(self, store: KubernetesStore, other: KubernetesStore, name: str) -> None:
        take(store, session_of(store), name)
        held = ask(other, session_of(other), name)
        assert isinstance(held, Held)
        before = other.requests
        other.wait_change(held, 1.0)
        assert other.requests == before + 2

    def test_renewals_have_a_connection_of_their_own(self, server: Kubernetes) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(proxy.through(server.url))
            session = session_of(store)
            assert proxy.connections == 1
            for _ in range(3):
                store.renew(session, [])
            assert proxy.connections == 2
            store.shutdown()


def test_an_answer_that_comes_after_the_end_leaves_no_connection(
    store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of(store)
    give_back = store._api._give_back

    def ended_meanwhile(*given: Any) -> None:
        store.shutdown()
        give_back(*given)

    monkeypatch.setattr(store._api, "_give_back", ended_meanwhile)
    store.read("nobody")
    assert store._api._idle == []


class TestWhatStandsThere:
    def test_lease_can_be_read_by_people(self, server: Kubernetes, store: KubernetesStore) -> None:
        session = session_of(store, "host-7:12:abcd")
        grant = take(store, session, "Orders/daily export")
        lease = api(server, "GET", lease_path(grant.name))
        assert lease["metadata"]["name"].startswith("fencepost-orders-daily-export-")
        assert lease["spec"]["holderIdentity"] == "host-7:12:abcd"
        assert lease["spec"]["leaseDurationSeconds"] == 60
        assert lease["metadata"]["annotations"][objects.NAME] == grant.name
        assert lease["metadata"]["annotations"][objects.TOKEN] == str(grant.token)
        assert lease["metadata"]["labels"][objects.SESSION] == session.id
        assert store.release(grant)
        freed = api(server, "GET", lease_path(grant.name))
        assert "holderIdentity" not in freed["spec"]
        assert freed["metadata"]["annotations"][objects.TOKEN] == str(grant.token)

    def test_prefixes_are_kept_apart(self, server: Kubernetes, store: KubernetesStore, name: str) -> None:
        cousin = store_at(f"{server.url}&prefix=cousin")
        take(store, session_of(store), name)
        take(cousin, session_of(cousin), name)
        assert name in {record.name for record in cousin.records()}
        assert len([record for record in store.records() if record.name == name]) == 1
        cousin.shutdown()

    def test_records_come_in_the_order_of_names(self, store: KubernetesStore, name: str) -> None:
        session = session_of(store)
        grants = {each: take(store, session, f"{name}/{each}") for each in ("b", "a", "é", "c")}
        store.release(grants["b"])
        found = [record for record in store.records() if record.name.startswith(name)]
        assert [record.name for record in found] == sorted(record.name for record in found)
        assert [record.is_held for record in found] == [True, False, True, True]
        assert found[0] == replace(store.read(f"{name}/a"), free_in_s=found[0].free_in_s)
        assert found[0].acquired_at_us == pytest.approx(RUNTIME.wall_us(), abs=30_000_000)

    def test_tick_only_rises(self, store: KubernetesStore, name: str) -> None:
        session = session_of(store)
        late, early = Tick(2_000_000), Tick(1_000_000)
        grant = take(store, session, name, tick=late)
        assert store.release(replace(grant, tick=late))
        assert store.release(replace(take(store, session, name), tick=early))
        assert ask(store, session, name, tick=late) == AlreadyDone(name, late, late.at_us)


class TestExpiry:
    def test_one_shot_caller_cannot_take_over_but_one_who_asks_again_can(self, server: Kubernetes, name: str) -> None:
        dead, contender, late = store_at(server.url), store_at(server.url, Leap()), store_at(server.url, Leap())
        take(dead, session_of(dead, "dead", ttl_s=30), name)
        session = session_of(contender)
        held = ask(contender, session, name)
        assert isinstance(held, Held)
        assert held.holder == "dead"
        assert held.free_in_s == pytest.approx(30, abs=5)
        contender._runtime.ahead_s = 20.0
        held = ask(contender, session, name)
        assert isinstance(held, Held)
        assert held.free_in_s == pytest.approx(10, abs=5)
        contender._runtime.ahead_s = 31.0
        assert isinstance(ask(late, session_of(late), name), Held), "this one has only just seen it"
        assert isinstance(ask(contender, session, name), Grant)
        for store in (dead, contender, late):
            store.shutdown()

    def test_renewal_wins_against_a_contender_about_to_kill(
        self, server: Kubernetes, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        holder, contender = store_at(server.url), store_at(server.url, Leap())
        session = session_of(holder, "holder", ttl_s=30)
        take(holder, session, name)
        rival = session_of(contender)
        assert isinstance(ask(contender, rival, name), Held)
        contender._runtime.ahead_s = 31.0
        kill = contender._sessions._kill

        def renewed_just_before(*arguments):
            assert holder.renew(session, []) == Renewed()
            return kill(*arguments)

        monkeypatch.setattr(contender._sessions, "_kill", renewed_just_before)
        held = ask(contender, rival, name)
        assert isinstance(held, Held)
        assert held.free_in_s == pytest.approx(30, abs=5), "it counts from the renewal"
        assert holder.renew(session, []) == Renewed()
        holder.shutdown()
        contender.shutdown()

    def test_waiter_takes_over_not_before_the_ttl_and_not_a_second_later(
        self, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        session = session_of(store, ttl_s=3.0)
        take(store, session, name)
        rival = session_of(other)
        taken_at: list[float] = []

        def wait_for_it() -> None:
            while isinstance(held := ask(other, rival, name), Held):
                other.wait_change(held, held.free_in_s or 0.1)
            taken_at.append(time.monotonic())

        waiter = threading.Thread(target=wait_for_it)
        waiter.start()
        renewed_at = 0.0
        for _ in range(4):
            waiter.join(0.8)
            renewed_at = time.monotonic()
            assert store.renew(session, []) == Renewed()
        with Stopwatch() as took:
            waiter.join(30)
        assert taken_at[0] - renewed_at >= 3.0
        assert took.awake_s <= 4.0

    def test_reading_kills_nobody(self, server: Kubernetes, store: KubernetesStore, name: str) -> None:
        reader = store_at(server.url, Leap())
        session = session_of(store, ttl_s=5)
        take(store, session, name)
        assert reader.read(name).is_held
        reader._runtime.ahead_s = 6.0
        assert reader.read(name).is_held
        assert reader.read(name).free_in_s == 0
        assert store.renew(session, []) == Renewed()
        reader.shutdown()

    def test_holder_that_lapsed_ends_itself(self, server: Kubernetes, name: str) -> None:
        store = store_at(server.url, Leap())
        session = session_of(store, ttl_s=5)
        grant = take(store, session, name)
        store._runtime.ahead_s = 5.0
        assert store.missing([grant]) == {grant.grant_id}
        assert store.release(grant) is False
        assert isinstance(store.renew(session, [grant]), Lost)
        assert not exists(server, session_path(session))
        store.shutdown()

    def test_sessions_left_behind_are_swept_away(self, server: Kubernetes, store: KubernetesStore) -> None:
        orphan, alive = session_of(store, ttl_s=5), session_of(store, ttl_s=5)
        sweeper = store_at(server.url, Leap())
        own = session_of(sweeper)  # sees both
        sweeper._runtime.ahead_s = 6.0
        assert store.renew(alive, []) == Renewed()
        sweeper.close(own)
        assert not exists(server, session_path(orphan))
        assert exists(server, session_path(alive))
        sweeper.shutdown()


class TestByHand:
    def test_tokens_rise_when_the_lease_is_deleted_again_and_again(
        self, server: Kubernetes, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        sessions = {store: session_of(store), other: session_of(other)}
        last = 0
        for turn in range(60):
            node = (store, other)[turn % 2]
            grant = take(node, sessions[node], name)
            assert grant.token > last
            last = grant.token
            api(server, "DELETE", lease_path(name))
            assert node.missing([grant]) == {grant.grant_id}
            assert node.release(grant) is False

    def test_new_name_waits_where_the_version_tells_nothing(
        self, store: KubernetesStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = session_of(store)
        monkeypatch.setattr("fencepost.leases.stores.kubernetes.store.may_have_begun_again", lambda version: True)
        before_s = store._clock.date_s
        grant = take(store, session, name)
        assert grant.token >= (before_s + 1) * 1_000_000
        assert store.release(grant)
        before = store.requests
        assert take(store, session, name).token > grant.token
        assert store.requests == before + 1, "only a record without a token has to wait"

    def test_deleted_session_frees_its_locks_at_once(
        self, server: Kubernetes, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        session = session_of(store)
        old = take(store, session, name)
        api(server, "DELETE", session_path(session))
        assert not other.read(name).is_held
        new = take(other, session_of(other), name)
        assert new.token > old.token
        assert isinstance(store.renew(session, [old]), Lost)
        assert store.release(old) is False
        assert store.missing([old]) == {old.grant_id}

    def test_session_put_back_from_a_backup_is_not_ours(self, server: Kubernetes, store: KubernetesStore) -> None:
        session = session_of(store)
        saved = api(server, "GET", session_path(session))
        api(server, "DELETE", session_path(session))
        saved["metadata"] = {key: saved["metadata"][key] for key in ("name", "labels", "annotations")}
        api(server, "POST", LEASES, saved)
        assert isinstance(store.renew(session, []), Lost)

    def test_revoked_lock_is_lost_to_its_holder(
        self, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        grant = take(store, session_of(store), name)
        record = other.read(name)
        assert isinstance(record, LeaseRecord)
        assert other.revoke(replace(record, grant_id="another")) is False
        assert other.revoke(record) is True
        assert other.revoke(record) is False
        assert store.missing([grant]) == {grant.grant_id}
        assert store.release(grant) is False

    def test_kept_closed_by_the_servers_clock(self, store: KubernetesStore, other: KubernetesStore, name: str) -> None:
        session, rival = session_of(store), session_of(other)
        grant = take(store, session, name)
        released_at = time.monotonic()
        assert store.release(grant, keep_for_s=1.0)
        held = ask(other, rival, name)
        assert isinstance(held, Held)
        assert (held.holder, held.grant_id, held.token) == (None, None, grant.token)
        assert 0 < held.free_in_s <= 3.0
        wait.until(lambda: isinstance(ask(other, rival, name), Grant), 30)
        assert time.monotonic() - released_at >= 1.0

    def test_stale_copy_is_refused_by_the_server(
        self, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        mine, theirs = session_of(store), session_of(other)
        store.release(take(store, mine, name))  # now `store` believes it free
        current = take(other, theirs, name)
        held = ask(store, mine, name)
        assert isinstance(held, Held)
        assert held.grant_id == current.grant_id
        with ThreadPoolExecutor(8) as threads:
            assert other.release(current)
            outcomes = list(threads.map(lambda node: ask(node, mine, name), [store, other] * 4))
        assert len([outcome for outcome in outcomes if isinstance(outcome, Grant)]) == 1


class TestHandOver:
    @pytest.mark.parametrize("way", ["release", "close", "revoke"])
    def test_waiter_hears_within_half_a_second(
        self, store: KubernetesStore, other: KubernetesStore, name: str, way: str
    ) -> None:
        session, rival = session_of(store), session_of(other)
        grant = take(store, session, name)
        held = ask(other, rival, name)
        assert isinstance(held, Held)
        before = other.requests
        waiter = threading.Thread(target=other.wait_change, args=(held, 20))
        waiter.start()
        wait.until(lambda: other.requests == before + 2)
        if way == "release":
            assert store.release(grant)
        elif way == "close":
            store.close(session)
        else:
            assert store.revoke(store.read(name))
        with Stopwatch() as took:
            waiter.join(30)
        assert took.awake_s <= 0.5
        assert isinstance(ask(other, rival, name), Grant)

    def test_change_before_the_wait_is_not_slept_through(
        self, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        grant = take(store, session_of(store), name)
        held = ask(other, session_of(other), name)
        assert isinstance(held, Held)
        store.release(grant)
        began_at = time.monotonic()
        other.wait_change(held, 20)
        assert time.monotonic() - began_at < 10


class TestRefusals:
    def refusal(self, url: str) -> str:
        store = store_at(url)
        with pytest.raises(StoreRefused) as refused:
            store.start()
        store.shutdown()
        assert "\n" not in str(refused.value)
        return str(refused.value)

    def test_missing_rights_are_named(self, server: Kubernetes) -> None:
        message = self.refusal(server.powerless_url)
        assert "may not get, list, watch, create, update, patch, delete leases" in message
        assert "'default'" in message

    def test_wrong_token(self, server: Kubernetes, tmp_path: Path) -> None:
        wrong = server.write_kubeconfig(tmp_path / "wrong", token="stolen-and-revoked")
        message = self.refusal(f"kubernetes://default?kubeconfig={wrong}")
        assert "401" in message
        assert "stolen" not in message

    def test_missing_namespace(self, server: Kubernetes) -> None:
        message = self.refusal(server.url.replace("//default", "//nowhere"))
        assert 'namespaces "nowhere" not found' in message

    def test_missing_kubeconfig(self, tmp_path: Path) -> None:
        assert "not found" in self.refusal(f"kubernetes://default?kubeconfig={tmp_path}/none")

    @pytest.mark.parametrize("content", ["{", "clusters: 1", "", "token: s3cret\n\t:", "[]"])
    def test_kubeconfig_that_is_none(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "bad").write_text(content)
        message = self.refusal(f"kubernetes://default?kubeconfig={tmp_path}/bad")
        assert f"{tmp_path}/bad" in message
        assert "s3cret" not in message

    def test_missing_context_and_those_there_are(self, server: Kubernetes) -> None:
        assert "no context 'prod'; its contexts: testbed" in self.refusal(f"{server.url}&context=prod")

    def test_no_configuration_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
        assert f"{tmp_path}/a, {tmp_path}/b" in self.refusal("kubernetes://")

    def test_certificate_of_nobody(self, server: Kubernetes, tmp_path: Path) -> None:
        written = json.loads(server.kubeconfig.read_text())
        written["clusters"][0]["cluster"].pop("certificate-authority-data")
        (tmp_path / "untrusting").write_text(json.dumps(written))
        store = store_at(f"kubernetes://default?kubeconfig={tmp_path}/untrusting")
        with pytest.raises(StoreUnavailable, match="certificate is not trusted"):
            store.start()

    def test_unreachable(self, server: Kubernetes, tmp_path: Path) -> None:
        moved = server.kubeconfig.read_text().replace(str(server.port), str(free_port()))
        (tmp_path / "moved").write_text(moved)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store_at(f"kubernetes://default?kubeconfig={tmp_path}/moved").start()

    def test_server_that_shows_no_clock_is_refused(self, server: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tokens would begin at the version, and a name kept closed would stay so for ever."""
        note = ServerClock.note
        monkeypatch.setattr(ServerClock, "note", lambda self, header, **readings: note(self, "", **readings))
        store = store_from_url(server.url, RUNTIME)
        with pytest.raises(StoreRefused, match="Date"):
            store.start()
        store.shutdown()


class TestExecPlugin:
    def url(self, server: Kubernetes, folder: Path, script: str) -> str:
        """A kubeconfig whose token comes from a program."""
        program = folder / "plugin"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        written = json.loads(server.kubeconfig.read_text())
        plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(program)}
        written["users"][0]["user"] = {"exec": plugin}
        (folder / "kubeconfig").write_text(json.dumps(written))
        return f"kubernetes://default?kubeconfig={folder}/kubeconfig&call_timeout=1s"

    def test_its_token_is_used_and_kept(self, server: Kubernetes, tmp_path: Path, name: str) -> None:
        answer = json.dumps({"status": {"token": server.token}})
        store = store_at(self.url(server, tmp_path, f"echo once >> {tmp_path}/runs; echo '{answer}'"))
        assert store.start() == ()
        assert store.release(take(store, session_of(store), name))
        assert (tmp_path / "runs").read_text() == "once\n"
        store.shutdown()

    def test_one_that_fails_is_a_refusal(self, server: Kubernetes, tmp_path: Path) -> None:
        with pytest.raises(StoreRefused, match="credentials"):
            store_at(self.url(server, tmp_path, "exit 3")).start()

    def test_one_that_hangs_does_not_hang_the_call(self, server: Kubernetes, tmp_path: Path) -> None:
        store = store_at(self.url(server, tmp_path, "exec sleep 4"))
        with Stopwatch() as took, pytest.raises(StoreUnavailable, match="did not end in time"):
            store.start()
        assert took.awake_s <= 1.5


class TestInAPod:
    @pytest.fixture
    def account(self, server: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The folder and the variables a pod would have."""
        for variable, value in server.in_cluster(tmp_path / "account").items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path / "account")
        return tmp_path / "account"

    def test_service_account_is_found(self, account: Path, name: str) -> None:
        store = store_at("kubernetes://")
        assert store.start() == ()
        assert store._api.address.namespace == "default"
        assert store.release(take(store, session_of(store), name))
        store.shutdown()

    def test_rotated_token_is_read_again(self, account: Path, name: str, server: Kubernetes) -> None:
        (account / "token").write_text("expired")
        store = store_at("kubernetes://")
        with pytest.raises(StoreRefused, match="401"):
            store.start()
        (account / "token").write_text(f"{server.token}\n")
        assert store.start() == ()
        session = session_of(store)
        store._api.address.credentials._header = "Bearer expired-meanwhile"
        assert store.renew(session, []) == Renewed()
        store.shutdown()

    def test_token_that_has_gone_is_unavailable_and_no_crash(self, account: Path, server: Kubernetes) -> None:
        store = store_at("kubernetes://")
        session = session_of(store)
        shutil.rmtree(account)
        store._api.address.credentials._header = "Bearer expired-meanwhile"
        with pytest.raises(StoreUnavailable):
            store.renew(session, [])
        store.shutdown()

    def test_documented_role_is_enough(self, server: Kubernetes, account: Path, name: str) -> None:
        page = Path(__file__).parents[2] / "docs/stores/kubernetes.md"
        role = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page.read_text(), re.S)[1])
        api(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "locks"}})
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/locks"
        api(server, "POST", f"{rbac}/roles", role)
        subject = {"kind": "User", "name": "powerless", "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "fencepost"}, "subjects": [subject], "roleRef": reference}
        api(server, "POST", f"{rbac}/rolebindings", binding)
        server.in_cluster(account, token=server.powerless_token, namespace="locks")
        store, other = store_at("kubernetes://"), store_at("kubernetes://", Leap())
        wait.until(lambda: store.start() == (), 10, ignoring=(StoreRefused,))
        session, rival = session_of(store, ttl_s=5), session_of(other)
        grant = take(store, session, name)
        held = ask(other, rival, name)
        assert isinstance(held, Held)
        other.wait_change(held, 0.2)
        assert store.renew(session, [grant]) == Renewed()
        assert store.missing([grant]) == frozenset()
        assert [record.name for record in store.records()] == [name]
        assert isinstance(ask(other, rival, name), Held)
        other._runtime.ahead_s = 6.0
        assert isinstance(ask(other, rival, name), Grant), "it may kill a session as well"
        other.shutdown()
        store.shutdown()


class TestFaults:
    def test_calls_end_in_time_when_everything_is_swallowed(self, server: Kubernetes, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(f"{proxy.through(server.url)}&call_timeout=0.5s")
            session, grant = prepared(store, name, ttl_s=10, call_timeout_s=0.3)
            held = Held(name, "x", grant.token, grant.grant_id)
            proxy.swallow()
            calls = {
                "renew": (lambda: store.renew(session, [grant]), 0.3),
                "acquire": (lambda: ask(store, session, f"{name}/2"), 0.5),
                "release": (lambda: store.release(grant), 0.5),
                "read": (lambda: store.read(name), 0.5),
                "wait": (lambda: store.wait_change(held, 0.2), 1.2),
                "close": (lambda: store.close(session), 0.5),
                "start": (store.start, 0.5),
            }
            for what, (call, limit_s) in calls.items():
                with Stopwatch() as took, pytest.raises(StoreUnavailable):
                    call()
                assert took.awake_s <= limit_s + 0.4, what
            proxy.flow()
            store.shutdown()

    def test_reply_byte_by_byte_does_not_prolong_a_call(self, server: Kubernetes) -> None:
        """A plain HTTP server that answers a byte every 50 ms, for ever."""
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:

            def drip() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    try:
                        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                        while True:
                            connection.sendall(b"x")
                            time.sleep(0.05)
                    except OSError:
                        return

            threading.Thread(target=drip, daemon=True).start()
            find = config.ApiAddress("127.0.0.1", listener.getsockname()[1], "", "ns", None, config.Credentials(None))
            store = KubernetesStore(lambda: find, RUNTIME, prefix="fencepost", call_timeout_s=0.5)
            with Stopwatch() as took, pytest.raises(StoreUnavailable, match="in time"):
                store.read("x")
            assert took.awake_s <= 1.0

    def test_slow_resolver_does_not_prolong_a_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import socket

        resolver = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolver.wait(5))
        find = config.ApiAddress("slow.example", 443, "", "ns", None, config.Credentials(None))
        store = KubernetesStore(lambda: find, RUNTIME, prefix="fencepost", call_timeout_s=0.3)
        with Stopwatch() as took, pytest.raises(StoreUnavailable, match="in time"):
            store.read("x")
        assert took.awake_s < 1
        resolver.set()

    def test_watch_that_is_cut_off_at_once_is_unavailable(self) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:

            def hang_up() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)

            threading.Thread(target=hang_up, daemon=True).start()
            find = config.ApiAddress("127.0.0.1", listener.getsockname()[1], "", "ns", None, config.Credentials(None))
            store = KubernetesStore(lambda: find, RUNTIME, prefix="fencepost", call_timeout_s=5)
            with pytest.raises(StoreUnavailable, match="broke the connection"):
                store._leases.watch("1", id="x", for_s=1, until=RUNTIME.monotonic() + 5)

    def test_broken_idle_connections_are_not_noticed(self, server: Kubernetes, name: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(proxy.through(server.url))
            session = session_of(store)
            store.renew(session, [])
            proxy.cut()
            grant = take(store, session, name)
            assert store.renew(session, [grant]) == Renewed()
            proxy.cut()
            assert store.release(grant)
            proxy.cut()
            assert store.renew(session, []) == Renewed()
            store.shutdown()

    @pytest.mark.parametrize("what", ["acquire", "release"])
    def test_lost_reply_is_looked_up(self, server: Kubernetes, name: str, what: str) -> None:
        with Proxy(server.host, server.port) as proxy:
            store = store_at(f"{proxy.through(server.url)}&call_timeout=2s")
            session = session_of(store)
            store.release(take(store, session, name))
            grant_id = RUNTIME.new_id()
            if what == "acquire":
                proxy.swallow_replies()
                with pytest.raises(StoreUnavailable):
                    store.acquire(session, name, grant_id=grant_id)
                proxy.flow()
                again = store.acquire(session, name, grant_id=grant_id)
                assert isinstance(again, Grant)
                assert store.read(name).token == again.token
            else:
                grant = take(store, session, name)
                proxy.swallow_replies()
                with pytest.raises(StoreUnavailable):
                    store.release(grant)
                proxy.flow()
                assert not store.read(name).is_held
            store.shutdown()

    def test_release_whose_reply_broke_off_is_recognised(
        self, store: KubernetesStore, other: KubernetesStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The request was carried out, its connection broke, the repetition meets its own work."""
        grant = take(store, session_of(store), name)
        replace_lease = store._leases.api.call

        def twice(method, path, body=None, **limits):
            if method == "PUT":
                replace_lease(method, path, body, **limits)
            return replace_lease(method, path, body, **limits)

        monkeypatch.setattr(store._leases.api, "call", twice)
        assert store.release(grant) is True
        assert store.release(grant) is False

    def test_release_whose_reply_broke_off_is_recognised_although_another_came(
        self, store: KubernetesStore, other: KubernetesStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, rival = take(store, session_of(store), name), session_of(other)
        call = store._leases.api.call

        def twice(method, path, body=None, **limits):
            if method == "PUT":
                call(method, path, body, **limits)
                take(other, rival, name)
            return call(method, path, body, **limits)

        monkeypatch.setattr(store._leases.api, "call", twice)
        assert store.release(grant) is True
        assert store.read(name).holder == rival.holder

    def test_api_server_crash_leaves_sessions_and_tokens(
        self, server: Kubernetes, store: KubernetesStore, other: KubernetesStore, name: str
    ) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.renew(session, [grant])
        with pytest.raises(StoreUnavailable):
            store.read(name)
        server.start()
        assert store.renew(session, [grant]) == Renewed()
        assert store.missing([grant]) == frozenset()
        rival = session_of(other)
        assert isinstance(ask(other, rival, name), Held)
        assert store.release(grant)
        assert take(other, rival, name).token > grant.token

    def test_paused_api_server_is_unavailable_and_then_as_before(self, server: Kubernetes, name: str) -> None:
        store = store_at(f"{server.url}&call_timeout=0.5s")
        session, grant = prepared(store, name, ttl_s=TTL_S, call_timeout_s=1.0)
        server.pause()
        try:
            with pytest.raises(StoreUnavailable):
                store.renew(session, [grant])
        finally:
            server.resume()
        assert wait.until(lambda: store.renew(session, [grant]), 30, ignoring=(StoreUnavailable,)) == Renewed()
        assert wait.until(lambda: store.release(grant), 30, ignoring=(StoreUnavailable,))
        store.shutdown()

    def test_forked_child_speaks_on_connections_of_its_own(self, store: KubernetesStore, name: str) -> None:
        session = session_of(store)
        grant = take(store, session, name)
        store.renew(session, [])
        child = os.fork()
        if child == 0:
            try:
                store.forget_connections()
                record = store.read(name)
                os._exit(0 if record is not None and record.grant_id == grant.grant_id else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = store.requests
        assert store.renew(session, [grant]) == Renewed()
        assert store.release(grant)
        assert store.requests == before + 2, "the parent's connections were still good"

"""How a Redis or Valkey store starts: URLs, rights, and what is refused because locks would not hold there."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from fencepost.core.grants import Grant, Renewed
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable, UnsafeStore
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LeaseStore
from fencepost.leases.stores.redis.checks import _refuse_unfit
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import certificates
from testbed.server import free_port
from testbed.valkey import Sentinels, Valkey

RUNTIME = ThreadedRuntime()
SECRET = "not-to-be-seen"
# The rights that docs/stores/redis.md asks for.
RIGHTS = (
    "~fencepost:* resetchannels &fencepost:* -@all +eval +evalsha +hmget +hset +hdel +pexpire +persist +publish "
    "+time +scan +subscribe +unsubscribe +ping +info +select +client|setname +role"
)

Connect = Callable[[str], LeaseStore]


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with Valkey() as running:
        yield running


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as open_stores:

        def make(url: str) -> LeaseStore:
            store = store_from_url(url, RUNTIME)
            open_stores.callback(store.shutdown)
            return store

        yield make


def use(store: LeaseStore) -> None:
    """Do everything once that a lock needs."""
    session = store.open("host:1:abc", ttl_s=60, call_timeout_s=20)
    grant = store.acquire(session, "a", grant_id=RUNTIME.new_id())
    assert isinstance(grant, Grant)
    held = store.acquire(session, "a", grant_id=RUNTIME.new_id())
    store.wait_change(held, 0.01)  # type: ignore[arg-type]
    assert store.renew(session, [grant]) == Renewed()
    assert [record.name for record in store.records()] == ["a"]
    assert store.release(grant, keep_for_s=0.001)
    store.close(session)


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("redis:///0", "names no server"),
            ("redis://one:1,two:2/0", "redis\\+sentinel://"),
            ("redis://host/zero", "not a number"),
            ("redis://host/0?ca=/x", "needs rediss://"),
            ("redis://host/0?sentinel_password=x", "needs redis\\+sentinel://"),
            ("redis://host/0?prefx=x", "prefx"),
            ("redis://host/0?prefix=a%7Bb", "braces"),
            ("redis://host/0?prefix=", "prefix"),
            ("rediss://host/0?cert=/x", "go together"),
            ("rediss://host/0?ca=/no/such/file", "cannot be used"),
            ("redis+sentinel://host:1/", "primary's name"),
            ("redis+sentinel://host:1/main/x", "not a number"),
        ],
    )
    def test_mistakes_are_named(self, url: str, says: str) -> None:
        with pytest.raises(InvalidUrl, match=says):
            store_from_url(url, RUNTIME)

    def test_valkey_scheme_and_databases(self, connect: Connect, server: Valkey) -> None:
        address = f"valkey://{server.host}:{server.port}"
        one, other = connect(f"{address}/1"), connect(f"{address}/2")
        use(one)
        assert other.read("a") is None
        with pytest.raises(StoreRefused, match="out of range"):
            connect(f"{address}/99").start()


class TestCredentials:
    @pytest.fixture(scope="module")
    @staticmethod
    def guarded() -> Iterator[Valkey]:
        with Valkey(password=SECRET) as running:
            yield running

    def test_right_password(self, connect: Connect, guarded: Valkey) -> None:
        store = connect(guarded.url)
        store.start()
        use(store)

    @pytest.mark.parametrize("account", ["", ":wrong-secret@", "nobody:wrong-secret@"])
    def test_wrong_ones_are_refused_without_showing_them(self, connect: Connect, guarded: Valkey, account: str) -> None:
        store = connect(f"redis://{account}{guarded.host}:{guarded.port}/0")
        with pytest.raises(StoreRefused, match="user or password") as refusal:
            store.start()
        assert "wrong-secret" not in str(refusal.value)

    def test_documented_rights_are_enough(self, connect: Connect, guarded: Valkey) -> None:
        with guarded.client() as client:
            client.execute_command("ACL", "SETUSER", "locks", "reset", "on", f">{SECRET}", *RIGHTS.split())
        store = connect(f"redis://locks:{SECRET}@{guarded.host}:{guarded.port}/0")
        store.start()
        use(store)

    @pytest.mark.parametrize(
        "missing", ["-hset", "-evalsha -eval", "-publish", "-subscribe", "resetchannels", "resetkeys"]
    )
    def test_missing_right_is_found_at_start(self, connect: Connect, guarded: Valkey, missing: str) -> None:
        rights = [*RIGHTS.split(), *missing.split()]
        with guarded.client() as client:
            client.execute_command("ACL", "SETUSER", "poor", "reset", "on", f">{SECRET}", *rights)
        with pytest.raises(StoreRefused, match="rights"):
            connect(f"redis://poor:{SECRET}@{guarded.host}:{guarded.port}/0").start()

    def test_without_info_nothing_can_be_checked(self, connect: Connect, guarded: Valkey) -> None:
        with guarded.client() as client:
            client.execute_command("ACL", "SETUSER", "blind", "reset", "on", f">{SECRET}", *RIGHTS.split(), "-info")
        url = f"redis://blind:{SECRET}@{guarded.host}:{guarded.port}/0"
        with pytest.raises(UnsafeStore, match="INFO") as refusal:
            connect(url).start()
        assert refusal.value.risk == "unchecked"
        store = connect(f"{url}?accept_risk=unchecked")
        assert any("accepted risk" in warning for warning in store.start())
        use(store)


class TestRefusals:
    def test_nobody_listens(self, connect: Connect) -> None:
        port = free_port()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port} cannot be reached"):
            connect(f"redis://127.0.0.1:{port}/0").start()

    @pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
    def test_eviction(self, connect: Connect, policy: str) -> None:
        with Valkey(settings={"maxmemory-policy": policy}) as server:
            with pytest.raises(UnsafeStore, match=policy) as refusal:
                connect(server.url).start()
            assert refusal.value.risk == "eviction"
            warnings = connect(f"{server.url}?accept_risk=eviction").start()
            assert any("accepted risk" in warning and policy in warning for warning in warnings)

    def test_cluster(self, connect: Connect) -> None:
        port = str(free_port())
        with (
            Valkey(settings={"cluster-enabled": "yes", "cluster-port": port}) as server,
            pytest.raises(StoreRefused, match="Cluster"),
        ):
            connect(f"{server.url}?accept_risk=eviction").start()

    def test_replica(self, connect: Connect, server: Valkey) -> None:
        with (
            Valkey(settings={"replicaof": f"{server.host} {server.port}"}) as replica,
            pytest.raises(StoreRefused, match=f"primary, 127.0.0.1:{server.port}"),
        ):
            connect(replica.url).start()

    def test_old_version(self) -> None:
        with pytest.raises(StoreRefused, match=r"4\.0\.9"):
            _refuse_unfit({"redis_version": "4.0.9"})

    def test_ticks_are_said_to_be_best_effort(self, connect: Connect, server: Valkey) -> None:
        assert any("best effort" in warning for warning in connect(server.url).start())

    def test_start_leaves_nothing_behind(self, connect: Connect, server: Valkey) -> None:
        with server.client() as client:
            client.flushall()
            connect(server.url).start()
            assert client.dbsize() == 0


class TestTls:
    def test_certificate_is_verified(self, connect: Connect, server: Valkey, tmp_path: Path) -> None:
        files = certificates.issue(tmp_path)
        with server.client() as client:
            client.flushall()
        with TlsRelay(files, server) as relay:
            address = f"rediss://127.0.0.1:{relay.port}/0"
            store = connect(f"{address}?ca={files.ca_file}&cert={files.cert_file}&key={files.key_file}")
            store.start()
            use(store)
            with pytest.raises(StoreRefused, match="certificate is not trusted"):
                connect(address).start()
            with pytest.raises(StoreUnavailable):
                connect(f"redis://127.0.0.1:{relay.port}/0?call_timeout=500ms").start()

    def test_mute_handshake_ends_in_time(self, connect: Connect) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            store = connect(f"rediss://127.0.0.1:{mute.getsockname()[1]}/0?call_timeout=400ms")
            with Stopwatch() as took, pytest.raises(StoreUnavailable):
                store.read("a")
            assert took.awake_s < 0.4 + 0.5


class TlsRelay:
    """Takes TLS off, and asks clients for their certificates: the server in the wheel has none of its own."""

    def __init__(self, files: certificates.Certificates, server: Valkey) -> None:
        self._server = (server.host, server.port)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca_file))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(files.cert_file, files.key_file)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        """Requests and answers take turns, so one thread is enough for both directions."""
        with (
            contextlib.suppress(OSError),
            plain,
            socket.create_connection(self._server) as server,
            self._context.wrap_socket(plain, server_side=True) as client,
        ):
            while request := client.recv(65536):
                server.sendall(request)
                client.sendall(server.recv(65536))


class TestSentinel:
    @pytest.fixture(scope="module")
    @staticmethod
    def sentinels() -> Iterator[Sentinels]:
        with Sentinels() as running:
            yield running

    def test_primary_is_found_and_replication_warned_of(self, connect: Connect, sentinels: Sentinels) -> None:
        store = connect(sentinels.url)
        assert any("asynchronous" in warning for warning in store.start())
        use(store)

    def test_unknown_name(self, connect: Connect, sentinels: Sentinels) -> None:
        with pytest.raises(StoreRefused, match="mistyped"):
            connect(sentinels.url.replace("mymaster", "mistyped")).start()

    def test_sentinels_may_want_a_password_of_their_own(self, connect: Connect, sentinels: Sentinels) -> None:
        for sentinel in sentinels.sentinels:
            with sentinel.client() as client:
                client.execute_command("ACL", "SETUSER", "asker", "on", f">{SECRET}", "+@all")
        account = f"{sentinels.url}?sentinel_user=asker&sentinel_password="
        connect(account + SECRET).start()
        with pytest.raises(StoreRefused, match="wrong user or password"):
            connect(account + "wrong-secret").start()

    def test_no_sentinel_answers(self, connect: Connect) -> None:
        with pytest.raises(StoreUnavailable, match="sentinels"):
            connect(f"redis+sentinel://127.0.0.1:{free_port()}/mymaster/0").start()

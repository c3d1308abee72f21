"""The testbed does what its users rely on: servers answer, die when told, come back, and leave nothing behind."""

import contextlib
import gc
import importlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis.sentinel

from testbed import keeper, provision, wait
from testbed.etcd import Etcd, EtcdCluster
from testbed.kubernetes import Kubernetes
from testbed.mariadb import MariaDB
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from testbed.proxy import Proxy
from testbed.server import ServerFailed, free_port
from testbed.valkey import Sentinels, Valkey, ValkeyCluster
from testbed.zookeeper import ZooKeeper
from tests.dialling import dialled

LEFT_OUT = provision.available()


def needs(name: str) -> pytest.MarkDecorator:
    """Leave a test out where its server is not there; with FENCEPOST_TEST_ALL it runs, and fails for want of it."""
    may_be_left_out = LEFT_OUT[name] is not None and os.environ.get("FENCEPOST_TEST_ALL") != "1"
    return pytest.mark.skipif(may_be_left_out, reason=f"{name}: {LEFT_OUT[name]}")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@needs("postgres")
class TestPostgres:
    def test_keeps_committed_rows_when_killed(self, postgres: Postgres) -> None:
        with psycopg.connect(postgres.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        port = postgres.port
        postgres.kill()
        postgres.restart()
        assert postgres.port == port
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)

    def test_kill_ends_busy_backends_that_left_the_process_group(self, postgres: Postgres) -> None:
        with contextlib.closing(psycopg.connect(postgres.url)) as connection:
            backend_pid = connection.info.backend_pid
            # Busy, because an idle backend notices by itself that the postmaster is gone.
            connection.pgconn.send_query(b"SELECT count(*) FROM (SELECT generate_series(1, 1000000000)) AS numbers")
            wait.until(lambda: is_active(postgres, backend_pid))
            postgres.kill()
            assert not keeper.is_alive(backend_pid)
        postgres.restart()

    def test_paused_server_is_silent_and_resumed_one_answers(self, postgres: Postgres) -> None:
        postgres.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres.url, connect_timeout=1)
        postgres.resume()
        assert postgres.answers()

    def test_settings_reach_the_server(self) -> None:
        with Postgres(settings={"fsync": "off"}) as server, psycopg.connect(server.url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)

    def test_failure_to_start_shows_the_log(self) -> None:
        server = Postgres(settings={"no_such_setting": "1"})
        with pytest.raises(ServerFailed, match="unrecognized configuration parameter"):
            server.start()
        server.close()


def is_active(server: Postgres, backend_pid: int) -> bool:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [backend_pid]).fetchone()
    return bool(row == ("active",))


@needs("valkey")
class TestValkey:
    def test_forgets_when_killed(self) -> None:
        with Valkey() as server:
            with server.client() as client:
                client.set("key", "value")
            server.kill()
            server.restart()
            with server.client() as client:
                assert client.get("key") is None

    def test_keeps_answered_writes_when_told_to_persist(self) -> None:
        with Valkey(persist=True) as server:
            with server.client() as client:
                client.set("key", "value")
            server.kill()
            server.restart()
            with server.client() as client:
                assert client.get("key") == "value"

    @needs("redis")
    def test_redis_stands_in_for_valkey(self) -> None:
        with Valkey(redis=True, persist=True, password="secret") as server:
            with server.client() as client:
                client.set("key", "value")
                assert client.info("server")["redis_version"].startswith("7.")
            server.kill()
            server.restart()
            with server.client() as client:
                assert client.get("key") == "value"

    def test_demands_the_password(self) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        with Valkey(password="secret", settings={"maxmemory": "100mb"}) as server:
            with server.client() as client:
                assert client.config_get("maxmemory") == {"maxmemory": str(100 * 2**20)}
            stranger = redis.Redis(host=server.host, port=server.port, retry=Retry(NoBackoff(), 0))
            with stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()


@needs("valkey")
class TestSentinels:
    def test_promote_the_replica_and_take_the_old_primary_back(self) -> None:

        with Sentinels() as servers:
            with servers.primary.client() as client:
                client.set("key", "value")
                client.wait(1, 5000)
            killed = servers.primary
            servers.fail_over()
            asked = redis.sentinel.Sentinel(
                [(server.host, server.port) for server in servers.sentinels], socket_timeout=2
            )
            assert asked.discover_master("mymaster") == (servers.primary.host, servers.primary.port)
            for connection in asked.sentinels:
                connection.close()
            with servers.primary.client() as client:
                assert client.get("key") == "value"
                client.set("key", "new")
            assert servers.replica is killed
            killed.restart()
            wait.until(lambda: follows_with(killed, "new"), 20, ignoring=(redis.ConnectionError,))


def follows_with(server: Valkey, value: str) -> bool:
    with server.client() as client:
        return bool(client.role()[0] == "slave" and client.get("key") == value)


@needs("valkey")
class TestValkeyCluster:
    def test_serves_all_slots_and_comes_back_when_killed(self) -> None:
        from redis.cluster import RedisCluster

        with ValkeyCluster() as servers:
            with RedisCluster.from_url(servers.url) as client:
                client.mset_nonatomic({f"key{number}": number for number in range(30)})
            servers.kill()
            servers.start()
            with RedisCluster.from_url(servers.url) as client:
                assert client.get("key29") == b"29"


@needs("etcd")
class TestEtcdCluster:
    def test_answers_while_one_member_is_down(self) -> None:
        with EtcdCluster(settings={"heartbeat-interval": "20", "election-timeout": "200"}) as servers:
            one, two, three = servers.nodes
            one.call("kv/put", {"key": "a2V5", "value": "dmFsdWU="})
            one.kill()
            wait.until(two.answers, ignoring=(OSError,))
            assert two.call("kv/range", {"key": "a2V5"})["kvs"][0]["value"] == "dmFsdWU="
            assert three.address in servers.url
            one.restart()


@needs("etcd")
class TestEtcd:
    def test_keeps_keys_when_killed(self) -> None:
        with Etcd(settings={"heartbeat-interval": "20", "election-timeout": "200"}) as server:
            server.call("kv/put", {"key": "a2V5", "value": "dmFsdWU="})
            server.kill()
            server.restart()
            assert server.call("kv/range", {"key": "a2V5"})["kvs"][0]["value"] == "dmFsdWU="

    def test_speaks_tls_and_demands_a_certificate(self) -> None:
        with Etcd(mutual=True) as server:
            assert server.endpoint.startswith("https:")
            server.call("kv/put", {"key": "a2V5", "value": "dmFsdWU="})
            stranger = ssl.create_default_context(cafile=server.ca_file)
            with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
                urllib.request.urlopen(f"{server.endpoint}/health", context=stranger, timeout=5)

    def test_lets_only_users_in(self) -> None:
        with Etcd(users={"fencepost": "secret"}) as server:
            assert server.url == f"etcd://fencepost:secret@127.0.0.1:{server.port}"
            with pytest.raises(urllib.error.HTTPError):
                server.call("kv/range", {"key": "a2V5"})
            token = server.call("auth/authenticate", {"name": "fencepost", "password": "secret"})["token"]
            assert "kvs" not in server.call("kv/range", {"key": "a2V5"}, token=token)


@needs("mariadb")
class TestMariaDB:
    def test_keeps_committed_rows_when_killed(self) -> None:
        with MariaDB() as server:
            with server.client() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            server.kill()
            server.restart()
            with server.client() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT answer FROM kept")
                assert cursor.fetchone() == (42,)

    @needs("galera")
    def test_shows_itself_as_a_galera_node(self) -> None:
        with MariaDB(galera=True) as server:
            server.kill()
            server.restart()
            with server.client() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@wsrep_on, @@wsrep_cluster_address")
                assert cursor.fetchone() == (1, "gcomm://")
                cursor.execute("SHOW STATUS LIKE 'wsrep_cluster_size'")
                assert cursor.fetchone() == ("wsrep_cluster_size", "1")


@needs("pgbouncer")
class TestPgBouncer:
    def test_shares_a_server_connection_between_transactions_of_clients(self, postgres: Postgres) -> None:
        with PgBouncer(postgres, settings={"default_pool_size": "1"}) as server:
            with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as idle:
                pid = idle.execute("SELECT pg_backend_pid()").fetchone()
                assert backend_pid(server) == pid
            server.kill()
            server.restart()
            assert backend_pid(server) != pid

    def test_finds_its_upstream_again(self, postgres: Postgres) -> None:
        with PgBouncer(postgres, settings={"query_wait_timeout": "1"}) as server:
            postgres.kill()
            with pytest.raises(psycopg.OperationalError):
                backend_pid(server)
            postgres.restart()
            wait.until(lambda: backend_pid(server), ignoring=(psycopg.OperationalError,))


def backend_pid(server: PgBouncer) -> object:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT pg_backend_pid()").fetchone()


@needs("zookeeper")
class TestZooKeeper:
    def test_keeps_nodes_when_killed_and_grants_short_sessions(self) -> None:
        client = importlib.import_module("kazoo.client")
        with ZooKeeper() as server:
            with session(client.KazooClient(server.address, timeout=1.0)) as zookeeper:
                zookeeper.create("/kept", b"value")
                assert zookeeper._session_timeout == 1000
            server.kill()
            server.restart()
            with session(client.KazooClient(server.address, timeout=60.0)) as zookeeper:
                assert zookeeper.get("/kept")[0] == b"value"
                assert zookeeper._session_timeout == 60_000


@contextlib.contextmanager
def session(client: Any) -> Iterator[Any]:
    client.start(timeout=10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with Kubernetes() as server:
        yield server


@needs("kubernetes")
class TestKubernetes:
    @pytest.fixture
    def client(self, kubernetes: Kubernetes) -> Iterator[Any]:
        lightkube = importlib.import_module("lightkube")
        with contextlib.closing(client_of(lightkube.KubeConfig.from_file(kubernetes.kubeconfig))) as client:
            yield client

    def test_keeps_leases_when_killed_and_refuses_stale_writes(self, kubernetes: Kubernetes, client: Any) -> None:
        lightkube = importlib.import_module("lightkube")
        made = client.create(lease_named("kept"))
        kubernetes.kill()
        kubernetes.restart()
        found = client.get(type(made), "kept")
        assert found.metadata.resourceVersion == made.metadata.resourceVersion
        found.spec.holderIdentity = "me"
        client.replace(found)
        with pytest.raises(lightkube.ApiError) as error:
            client.replace(found)
        assert error.value.status.code == 409

    def test_forbids_the_powerless_and_knows_no_strangers(self, kubernetes: Kubernetes) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        kubernetes.get(path)
        for token, status in ((kubernetes.powerless_token, 403), ("made-up", 401)):
            with pytest.raises(urllib.error.HTTPError) as error:
                kubernetes.get(path, token=token)
            assert error.value.code == status
            error.value.close()

    def test_looks_like_a_cluster_to_a_pod(
        self, kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lightkube = importlib.import_module("lightkube")
        for name, value in kubernetes.in_cluster(tmp_path).items():
            monkeypatch.setenv(name, value)
        config = lightkube.KubeConfig.from_service_account(service_account=str(tmp_path))
        with contextlib.closing(client_of(config)) as client:
            assert client.create(lease_named("from-a-pod")).metadata.namespace == "default"

    def test_can_be_had_through_a_proxy(self, kubernetes: Kubernetes) -> None:
        lightkube = importlib.import_module("lightkube")
        with Proxy(kubernetes.host, kubernetes.port) as proxy:
            kubeconfig = proxy.through(kubernetes.url).partition("?kubeconfig=")[2]
            with contextlib.closing(client_of(lightkube.KubeConfig.from_file(kubeconfig))) as client:
                client.create(lease_named("through-a-proxy"))
                assert proxy.connections == 1


def client_of(config: Any) -> Any:
    from lightkube import Client

    return Client(config=config)


def lease_named(name: str) -> Any:
    from lightkube.models.coordination_v1 import LeaseSpec
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.coordination_v1 import Lease

    return Lease(metadata=ObjectMeta(name=name, namespace="default"), spec=LeaseSpec(leaseDurationSeconds=1))


class Echo:
    """A server that remembers what it was sent and sends it back."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.received = b""
        self.closes = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=self.listener.accept()[:1], daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.received += data
                connection.sendall(data)
        self.closes += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=5)


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(65536)


def is_mute(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return not connection.recv(1) and False
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)


class TestProxy:
    def test_whoever_is_accepted_while_it_begins_to_refuse_is_not_left_open(self, echo: Echo) -> None:
        gc.collect()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with Proxy("127.0.0.1", echo.port) as proxy, dialled((proxy.host, proxy.port)):
                for _ in range(100):
                    proxy.refuse()
                    proxy.flow()
            gc.collect()
        assert [str(each.message) for each in seen if "unclosed" in str(each.message)] == []

    def test_passes_bytes_of_many_connections(self, proxy: Proxy) -> None:
        with connect(proxy) as one, connect(proxy) as two:
            assert ask(one, b"1") == b"1"
            assert ask(two, b"2") == b"2"
            assert proxy.connections == 2

    def test_passes_more_than_the_buffers_hold(self, proxy: Proxy) -> None:
        data = os.urandom(8 * 2**20)
        with connect(proxy) as connection:
            threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
            received = b""
            while len(received) < len(data):
                received += connection.recv(2**20)
        assert received == data

    def test_swallows_without_closing(self, proxy: Proxy, echo: Echo) -> None:
        with connect(proxy) as old:
            assert ask(old, b"1") == b"1"
            proxy.swallow()
            with connect(proxy) as new:
                old.sendall(b"lost")
                new.sendall(b"lost")
                wait.until(lambda: proxy.bytes_swallowed == 8)
                assert is_mute(old)
                assert is_mute(new)
            assert echo.received == b"1"

    def test_swallows_the_close_and_passes_it_on_when_flowing_again(self, proxy: Proxy, echo: Echo) -> None:
        with connect(proxy) as connection:
            assert ask(connection, b"1") == b"1"
            proxy.swallow()
        with connect(proxy) as mute:
            assert is_mute(mute)
            assert echo.closes == 0
            proxy.flow()
            wait.until(lambda: echo.closes == 1)
            assert ask(mute, b"2") == b"2"  # it had lost nothing, so it goes on

    def test_connection_that_lost_bytes_stays_mute(self, proxy: Proxy, echo: Echo) -> None:
        with connect(proxy) as connection:
            proxy.swallow()
            connection.sendall(b"lost")
            wait.until(lambda: proxy.bytes_swallowed == 4)
            proxy.flow()
            connection.sendall(b"after the gap")
            assert is_mute(connection)
        assert echo.received == b""

    def test_loses_replies_alone(self, proxy: Proxy, echo: Echo) -> None:
        with connect(proxy) as connection:
            proxy.swallow_replies()
            connection.sendall(b"request")
            wait.until(lambda: echo.received == b"request" and proxy.bytes_swallowed == 7)
            assert is_mute(connection)
        wait.until(lambda: echo.closes == 1)

    def test_holds_and_delivers_late(self, proxy: Proxy, echo: Echo) -> None:
        with connect(proxy) as connection:
            assert ask(connection, b"1") == b"1"
            proxy.hold()
            connection.sendall(b"late")
            assert is_mute(connection)
            assert echo.received == b"1"
        proxy.flow()
        wait.until(lambda: echo.received == b"1late" and echo.closes == 1)

    def test_cuts_by_reset_and_serves_new_connections(self, proxy: Proxy) -> None:
        with connect(proxy) as connection:
            assert ask(connection, b"1") == b"1"
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        with connect(proxy) as connection:
            assert ask(connection, b"2") == b"2"

    def test_refuses_new_connections_alone(self, proxy: Proxy) -> None:
        with connect(proxy) as connection:
            assert ask(connection, b"1") == b"1"
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                connect(proxy)
            assert ask(connection, b"2") == b"2"
        proxy.flow()
        with connect(proxy) as connection:
            assert ask(connection, b"3") == b"3"

    def test_delays_each_way(self, proxy: Proxy) -> None:
        proxy.delay(0.1)
        with connect(proxy) as connection:
            started_at = time.monotonic()
            assert ask(connection, b"1") == b"1"
            assert time.monotonic() - started_at >= 0.2

    def test_resets_when_the_server_is_down(self) -> None:
        with (
            Proxy("127.0.0.1", free_port()) as proxy,
            pytest.raises(ConnectionResetError),
            connect(proxy) as connection,
        ):
            connection.recv(1)

    @needs("postgres")
    def test_stands_between_a_real_client_and_server(self, postgres: Postgres) -> None:
        with Proxy(postgres.host, postgres.port) as proxy:
            url = proxy.through(postgres.url)
            with contextlib.closing(psycopg.connect(url)) as connection:
                proxy.cut()
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://postgres@127.0.0.1:1000/postgres",
            "redis://:secret@127.0.0.1:1000/0",
            "redis+sentinel://127.0.0.1:999,127.0.0.1:1000,127.0.0.1:1001/mymaster/0",
            "zookeeper://127.0.0.1:1000",
        ],
    )
    def test_replaces_the_address_in_any_url(self, url: str) -> None:
        proxy = Proxy("127.0.0.1", 1000)
        assert proxy.through(url) == url.replace(":1000", f":{proxy.port}")
        proxy.close()

    def test_refuses_to_stand_before_another_server(self) -> None:
        proxy = Proxy("127.0.0.1", 1000)
        with pytest.raises(ValueError, match=r"127\.0\.0\.1:1000"):
            proxy.through("redis://127.0.0.1:1001/0")
        proxy.close()


class TestKeeper:
    @needs("postgres")
    def test_ends_servers_and_removes_folders_when_their_owner_is_killed(self) -> None:
        program = "from testbed.postgres import Postgres; s = Postgres().start(); print(s.pid, s.directory, flush=True)"
        owner = subprocess.Popen(
            [sys.executable, "-c", f"{program}; input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        try:
            assert owner.stdout is not None
            pid, directory = owner.stdout.readline().split()
            assert keeper.is_alive(int(pid))
        finally:
            owner.kill()
            owner.communicate()
        wait.until(lambda: not keeper.is_alive(int(pid)) and not Path(directory).exists())

    def test_folders_of_the_killed_are_removed_by_whoever_comes_next(self, tmp_path: Path) -> None:
        mine, gone, older, used, foreign, nameless = (tmp_path / f"fencepost-x-{number}" for number in range(6))
        with subprocess.Popen(["true"]) as ended:
            was = f"{ended.pid} {keeper.identity_of(os.getpid())}"
        boot, namespace, started = keeper.identity_of(os.getpid()).split()
        owners = {
            mine: f"{os.getpid()} {boot} {namespace} {started}",
            gone: was,
            older: f"{os.getpid()} {boot} {namespace} {int(started) - 1}",
            used: was,
            foreign: f"{ended.pid} {boot} pid:[1] {started}",
        }
        for path in (mine, gone, older, used, foreign, nameless):
            path.mkdir()
            (path / "data").touch()
        for path, owner in owners.items():
            (path / keeper.OWNER).write_text(owner)
        with subprocess.Popen(["sleep", "60"], cwd=used) as server:
            keeper.sweep(str(tmp_path))
            server.kill()
        assert set(tmp_path.iterdir()) == {mine, used, foreign, nameless}

    def test_close_removes_the_folder(self) -> None:
        server = Postgres()
        assert server.directory.exists()
        server.close()
        assert not server.directory.exists()


class TestProvision:
    def test_says_why_a_server_is_left_out(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FENCEPOST_TEST_CACHE", str(tmp_path))
        reason = provision.available()["kubernetes"]
        assert reason is not None
        assert "not built" in reason

    def test_fails_for_what_is_left_out_only_when_all_is_demanded(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("FENCEPOST_TEST_CACHE", str(tmp_path))
        monkeypatch.setattr(sys, "argv", ["provision", "--check"])
        monkeypatch.setenv("FENCEPOST_TEST_ALL", "0")
        assert provision.main() == 0
        monkeypatch.setenv("FENCEPOST_TEST_ALL", "1")
        assert provision.main() == 1
        assert "kubernetes   left out: " in capsys.readouterr().out


def test_free_ports_are_distinct() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)


def test_waiting_gives_up_with_the_reason() -> None:
    with pytest.raises(TimeoutError) as error:
        wait.until(lambda: os.kill(0, signal.Signals(99)), 0.05, ignoring=(ValueError,))
    assert isinstance(error.value.__cause__, ValueError)

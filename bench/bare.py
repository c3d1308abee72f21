"""The barest hand-written lock on each server: no token, no renewal, no history; what a blog post would show.

`try_acquire` and `release` are one request each, through the same driver that Fencepost uses.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
import threading
import uuid
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs, urlsplit

TTL_S = 30


class Bare(Protocol):
    def try_acquire(self) -> bool: ...
    def release(self) -> None: ...


class Memory:
    _locks: ClassVar[dict[str, threading.Lock]] = {}

    def __init__(self, url: str, name: str) -> None:
        self._lock = self._locks.setdefault(name, threading.Lock())

    def try_acquire(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()


class Sqlite:
    def __init__(self, url: str, name: str) -> None:
        self._name, self._me = name, uuid.uuid4().hex
        self._db = sqlite3.connect(urlsplit(url).path[1:] + ".bare", isolation_level=None, timeout=10)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, by TEXT, until REAL)")

    def try_acquire(self) -> bool:
        got = self._db.execute(
            "INSERT INTO bare VALUES (?, ?, julianday('now') + ?) ON CONFLICT (name) DO UPDATE "
            "SET by = excluded.by, until = excluded.until WHERE until < julianday('now') RETURNING 1",
            (self._name, self._me, TTL_S / 86400),
        )
        return got.fetchone() is not None

    def release(self) -> None:
        self._db.execute("UPDATE bare SET until = 0 WHERE name = ? AND by = ?", (self._name, self._me))


class Postgres:
    def __init__(self, url: str, name: str) -> None:
        import psycopg

        self._name, self._me = name, uuid.uuid4().hex
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute("CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, by text, until timestamptz)")

    def try_acquire(self) -> bool:
        got = self._db.execute(
            "INSERT INTO bare VALUES (%s, %s, now() + interval '30 s') ON CONFLICT (name) DO UPDATE "
            "SET by = excluded.by, until = excluded.until WHERE bare.until < now() RETURNING 1",
            (self._name, self._me),
        )
        return got.fetchone() is not None

    def release(self) -> None:
        self._db.execute("UPDATE bare SET until = 'epoch' WHERE name = %s AND by = %s", (self._name, self._me))


class Advisory:
    def __init__(self, url: str, name: str) -> None:
        import psycopg

        self._db = psycopg.connect(url.replace("+advisory", ""), autocommit=True)
        self._key = int.from_bytes(name.encode()[:7], "big")

    def try_acquire(self) -> bool:
        row = self._db.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()
        return bool(row and row[0])

    def release(self) -> None:
        self._db.execute("SELECT pg_advisory_unlock(%s)", (self._key,))


class Mysql:
    def __init__(self, url: str, name: str) -> None:
        import pymysql

        parts = urlsplit(url)
        self._name, self._me = name, uuid.uuid4().hex
        self._db = pymysql.connect(
            host=parts.hostname or "", port=parts.port or 3306, user=parts.username, password=parts.password or "",
            database=parts.path[1:], autocommit=True,
        )  # fmt: skip
        self._cursor = self._db.cursor()
        self._cursor.execute(
            "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(200) PRIMARY KEY, owner VARBINARY(40), until DATETIME(6))"
        )

    def try_acquire(self) -> bool:
        changed = self._cursor.execute(
            "INSERT INTO bare VALUES (%s, %s, NOW(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE "
            "owner = IF(until < NOW(6), VALUES(owner), owner), until = IF(until < NOW(6), VALUES(until), until)",
            (self._name, self._me),
        )
        return changed == 2 or (changed == 1 and self._cursor.lastrowid == 0)

    def release(self) -> None:
        self._cursor.execute(
            "UPDATE bare SET until = '2000-01-01' WHERE name = %s AND owner = %s", (self._name, self._me)
        )


class Redis:
    RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

    def __init__(self, url: str, name: str) -> None:
        import redis

        self._client = redis.Redis.from_url(url)
        self._release = self._client.register_script(self.RELEASE)
        self._name, self._me = f"bare:{name}", uuid.uuid4().hex

    def try_acquire(self) -> bool:
        return bool(self._client.set(self._name, self._me, nx=True, px=TTL_S * 1000))

    def release(self) -> None:
        self._release(keys=[self._name], args=[self._me])


class RedisPyLock:
    """redis-py's own `Lock`, which has no token."""

    def __init__(self, url: str, name: str) -> None:
        import redis

        self._lock = redis.Redis.from_url(url).lock(f"redis-py:{name}", timeout=TTL_S)

    def try_acquire(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def release(self) -> None:
        self._lock.release()


class Etcd:
    def __init__(self, url: str, name: str) -> None:
        import urllib3

        parts = urlsplit(url)
        self._pool = urllib3.HTTPConnectionPool(parts.hostname or "", parts.port)
        lease = self._post("/v3/lease/grant", {"TTL": TTL_S * 100})["ID"]
        key, me = _b64(f"bare/{name}"), _b64(uuid.uuid4().hex)
        self._acquire = json.dumps({
            "compare": [{"key": key, "target": "CREATE", "createRevision": "0"}],
            "success": [{"requestPut": {"key": key, "value": me, "lease": lease}}],
        }).encode()  # fmt: skip
        self._release = json.dumps({
            "compare": [{"key": key, "target": "VALUE", "value": me}],
            "success": [{"requestDeleteRange": {"key": key}}],
        }).encode()  # fmt: skip

    def try_acquire(self) -> bool:
        return bool(self._send("/v3/kv/txn", self._acquire).get("succeeded"))

    def release(self) -> None:
        self._send("/v3/kv/txn", self._release)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._send(path, json.dumps(body).encode())

    def _send(self, path: str, body: bytes) -> Any:
        return json.loads(self._pool.urlopen("POST", path, body=body).data)


class ZooKeeper:
    def __init__(self, url: str, name: str) -> None:
        from kazoo.client import KazooClient
        from kazoo.exceptions import NodeExistsError

        self._taken = NodeExistsError
        self._client = KazooClient(urlsplit(url).netloc, timeout=TTL_S)
        self._client.start()
        self._client.ensure_path("/bare")
        self._path = f"/bare/{name.replace('/', '-')}"

    def try_acquire(self) -> bool:
        try:
            self._client.create(self._path, b"", ephemeral=True)
        except self._taken:
            return False
        return True

    def release(self) -> None:
        self._client.delete(self._path)


class KazooLock:
    """kazoo's own `Lock`."""

    def __init__(self, url: str, name: str) -> None:
        from kazoo.client import KazooClient

        client = KazooClient(urlsplit(url).netloc, timeout=TTL_S)
        client.start()
        self._lock = client.Lock(f"/kazoo/{name.replace('/', '-')}")

    def try_acquire(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def release(self) -> None:
        self._lock.release()


class Kubernetes:
    """A Lease object replaced under its resourceVersion."""

    def __init__(self, url: str, name: str) -> None:
        from lightkube import Client, KubeConfig
        from lightkube.core.exceptions import ApiError
        from lightkube.models.coordination_v1 import LeaseSpec
        from lightkube.models.meta_v1 import ObjectMeta
        from lightkube.resources.coordination_v1 import Lease

        self._conflict = ApiError
        config = KubeConfig.from_file(parse_qs(urlsplit(url).query)["kubeconfig"][0])
        self._client = Client(config=config)
        self._kind, self._me = Lease, uuid.uuid4().hex
        self._name = "bare-" + "".join(c if c.isalnum() else "-" for c in name.lower())
        metadata = ObjectMeta(name=self._name, namespace="default")
        with contextlib.suppress(ApiError):  # it is there already
            self._client.create(Lease(metadata=metadata, spec=LeaseSpec(holderIdentity="")))
        self._seen = self._client.get(Lease, self._name)

    def try_acquire(self) -> bool:
        return self._put(self._me)

    def release(self) -> None:
        self._put("")

    def _put(self, holder: str) -> bool:
        if holder and self._seen.spec and self._seen.spec.holderIdentity:
            self._seen = self._client.get(self._kind, self._name)
            if self._seen.spec and self._seen.spec.holderIdentity:
                return False
        assert self._seen.spec is not None
        self._seen.spec.holderIdentity = holder
        try:
            self._seen = self._client.replace(self._seen)
        except self._conflict:
            self._seen = self._client.get(self._kind, self._name)
            return False
        return True


BARE: dict[str, Any] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "postgresql": Postgres,
    "pg advisory": Advisory,
    "mysql": Mysql,
    "redis": Redis,
    "etcd": Etcd,
    "zookeeper": ZooKeeper,
    "kubernetes": Kubernetes,
}
DRIVERS_OWN: dict[str, Any] = {"redis": RedisPyLock, "zookeeper": KazooLock}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

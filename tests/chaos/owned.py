"""Servers that chaos may harm: killed and started again, and replaced by a standby that is promoted.

Nothing waits for the disk: processes are killed here, not machines. PostgreSQL replicates synchronously, so a promoted
standby has all that was acknowledged. Valkey does not, and may have lost the last moments: that is its grade, and
fences have to make up for it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from testbed import wait
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres, program
from testbed.server import Server, not_as_root
from testbed.valkey import Valkey

Address = tuple[str, int]
_WITHIN_S = 30.0
_AT_ONCE = {"wal_retrieve_retry_interval": "200ms", "wal_receiver_timeout": "3s", "wal_sender_timeout": "3s"}
_QUICK = {"fsync": "off"}  # processes are killed here, not machines: what was written is in the kernel
_REPLICATED = {**_QUICK, "wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on", **_AT_ONCE}


class Standby(Postgres):
    """A copy of a running PostgreSQL that follows it."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__(settings=_REPLICATED)
        self._primary = primary

    def prepare(self) -> None:
        self.directory.chmod(0o755)
        source = ["-h", self._primary.host, "-p", str(self._primary.port), "-U", "postgres"]
        self.run(
            [*not_as_root(), program("pg_basebackup"), *source, "-D", self.data, "-R", "-X", "stream", "-c", "fast"]
        )
        with suppress(FileNotFoundError):  # whom the primary waits for is no business of ours
            Path(self.data / "postgresql.auto.conf.old").unlink()


class Owned:
    """A server of one kind, with somebody who could take its place."""

    line = "ledger"

    def __init__(self, server: Server) -> None:
        self.server = server

    @property
    def url(self) -> str:
        return self.server.url

    def start(self) -> Self:
        self.server.start()
        return self

    def is_ready(self) -> bool:
        return True

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def can_promote(self) -> bool:
        return False

    def promote(self) -> Address:
        raise NotImplementedError

    def close(self) -> None:
        self.server.close()


class OwnedMariaDB(Owned):
    def __init__(self) -> None:
        super().__init__(MariaDB(settings={"innodb-flush-log-at-trx-commit": "2"}))


class _WithFollower(Owned):
    """Somebody follows; when it has been promoted, another is made in the background."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._follower: Server | None = None
        self._making: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> Self:
        super().start()
        self._make_follower()
        return self

    def can_promote(self) -> bool:
        return self._making is None and self._follower is not None and self._has_caught_up()

    def promote(self) -> Address:
        old, new = self.server, self._follower
        assert new is not None
        old.kill()
        self._lead(new)
        self.server, self._follower = new, None
        self._making = threading.Thread(target=self._replace, args=(old,), daemon=True)
        self._making.start()
        return new.host, new.port

    def is_ready(self) -> bool:
        return self._making is None

    def close(self) -> None:
        self._is_closed = True
        if self._making is not None:
            self._making.join(_WITHIN_S)
        for server in (self._follower, self.server):
            if server is not None:
                server.close()

    def _replace(self, old: Server) -> None:
        old.close()
        if not self._is_closed:
            self._make_follower()
        self._making = None

    def _make_follower(self) -> None:
        raise NotImplementedError

    def _has_caught_up(self) -> bool:
        raise NotImplementedError

    def _lead(self, new: Server) -> None:
        raise NotImplementedError


class OwnedPostgres(_WithFollower):
    """PostgreSQL and a standby that has all that was acknowledged."""

    def __init__(self) -> None:
        super().__init__(Postgres(settings=_REPLICATED))

    def _make_follower(self) -> None:
        assert isinstance(self.server, Postgres)
        standby = Standby(self.server)
        standby.start()
        self._follower = standby
        wait.until(self._is_streaming, _WITHIN_S, what="the standby follows")
        _do(self.server.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait.until(self._has_caught_up, _WITHIN_S, what="the primary waits for the standby")

    def _is_streaming(self) -> bool:
        return _one(self.server.url, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == 1

    def _has_caught_up(self) -> bool:
        try:
            caught_up = _one(
                self.server.url,
                "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming' "
                "AND pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn) < 1000000",
            )
        except psycopg.Error:
            return False
        return caught_up == 1

    def _lead(self, new: Server) -> None:
        _do(new.url, "SELECT pg_promote(true, 20)")
        _do(new.url, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")


class OwnedValkey(_WithFollower):
    """Valkey and a replica that may lack the last moments."""

    line = "store"

    def __init__(self) -> None:
        super().__init__(Valkey(persist=True, settings={"repl-diskless-sync-delay": "0"}))

    def _make_follower(self) -> None:
        follow = {"repl-diskless-sync-delay": "0", "replicaof": f"{self.server.host} {self.server.port}"}
        self._follower = Valkey(persist=True, settings=follow).start()
        wait.until(self._has_caught_up, _WITHIN_S, what="the replica follows")

    def _has_caught_up(self) -> bool:
        assert isinstance(self._follower, Valkey)
        with self._follower.client() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _lead(self, new: Server) -> None:
        assert isinstance(new, Valkey)
        with new.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
            client.execute_command("CONFIG", "REWRITE")  # or a restart would make a replica of it again


def _do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        for statement in statements:
            connection.execute(statement)


def _one(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        row = connection.execute(query).fetchone()
    return row and row[0]

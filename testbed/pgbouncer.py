"""PgBouncer from Debian's ``pgbouncer``, in front of a PostgreSQL of the testbed.

Ready in about 0.05 s. In the pool mode ``transaction`` nothing of a session lasts beyond a transaction: advisory locks,
``SET``, ``LISTEN`` and temporary tables go to any free server connection. While the upstream is down
clients may still connect, and their queries wait: for 120 s as shipped, ``query_wait_timeout``.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from testbed.postgres import Postgres
from testbed.server import Server, not_as_root, require_program


class PgBouncer(Server):
    name: ClassVar[str] = "pgbouncer"
    stop_deadline_s: ClassVar[float] = 2.0  # newer versions wait for clients to leave, for ever

    def __init__(
        self, upstream: Postgres, *, pool_mode: str = "transaction", settings: Mapping[str, str] | None = None
    ) -> None:
        """``upstream`` is started and closed by its owner; ``settings`` are those of the section ``[pgbouncer]``."""
        super().__init__()
        self.program = program()
        self.upstream = upstream
        self.settings = {"pool_mode": pool_mode, **(settings or {})}

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def prepare(self) -> None:
        (self.directory / "users.txt").write_text('"postgres" ""\n')
        settings = {
            "listen_addr": self.host,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.directory / "users.txt",
            "admin_users": "postgres",
            "server_login_retry": "0.2",  # as shipped, 15 s pass before an upstream that was down is tried again
            **self.settings,
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        upstream = f"* = host={self.upstream.host} port={self.upstream.port}"
        text = "\n".join(["[databases]", upstream, "[pgbouncer]", *lines, ""])
        (self.directory / "pgbouncer.ini").write_text(text)

    def command(self) -> list[str]:
        return [*not_as_root(), str(self.program), str(self.directory / "pgbouncer.ini")]

    def answers(self) -> bool:
        import psycopg

        # Its own console, because a query to a database would wait for an upstream that is down.
        console = f"postgresql://postgres@{self.address}/pgbouncer"
        with contextlib.closing(psycopg.connect(console, autocommit=True, connect_timeout=2)) as connection:
            return connection.execute("SHOW VERSION").fetchone() is not None


def program() -> Path:
    return require_program("pgbouncer")

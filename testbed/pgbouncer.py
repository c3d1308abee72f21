"""PgBouncer from Debian's ``pgbouncer``, in front of a PostgreSQL of the testbed.

Ready in about 0.05 s. In the pool mode ``transaction`` nothing of a session lasts beyond a transaction: advisory locks,
``SET``, ``LISTEN`` and temporary tables go to whichever server connection was at hand.
"""

from typing import ClassVar

from testbed.postgres import Postgres
from testbed.server import Server, not_as_root, require_program


class PgBouncer(Server):
    name: ClassVar[str] = "pgbouncer"
    stop_deadline_s: ClassVar[float] = 2.0  # newer versions wait for clients to leave, for ever

    def __init__(self, upstream: Postgres, *, pool_mode: str = "transaction", pool_size: int = 20) -> None:
        """``upstream`` is started and closed by its owner, not by this."""
        super().__init__()
        self.program = require_program("pgbouncer")
        self.upstream = upstream
        self.pool_mode = pool_mode
        self.pool_size = pool_size

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def prepare(self) -> None:
        (self.directory / "users.txt").write_text('"postgres" ""\n')
        lines = [
            "[databases]",
            f"* = host={self.upstream.host} port={self.upstream.port}",
            "[pgbouncer]",
            f"listen_addr = {self.host}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = trust",
            f"auth_file = {self.directory}/users.txt",
            f"pool_mode = {self.pool_mode}",
            f"default_pool_size = {self.pool_size}",
            "server_login_retry = 0.2",  # after the upstream was down, 15 s by default
            "ignore_startup_parameters = extra_float_digits",
        ]
        (self.directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [*not_as_root(), str(self.program), str(self.directory / "pgbouncer.ini")]

    def answers(self) -> bool:
        import psycopg

        with psycopg.connect(self.url, connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)

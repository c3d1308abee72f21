"""MariaDB from Debian's ``mariadb-server`` (10.11 in Debian 12).

Durable as shipped. Ready in about 0.3 s; the first time, when a data folder to copy must be filled, in about 1 s. A
restart takes 0.2 s. The user ``root`` has no password and may come by TCP; there is a database ``fencepost``.

``MariaDB(galera=True)`` is a single bootstrapped node of a Galera cluster: enough to be recognised as one and refused.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from testbed import template
from testbed.server import Missing, Server, free_port, require_program

if TYPE_CHECKING:
    import pymysql

DATABASE = "fencepost"
GALERA_LIBRARIES = (Path("/usr/lib/galera/libgalera_smm.so"), Path("/usr/lib64/galera-4/libgalera_smm.so"))


class MariaDB(Server):
    name: ClassVar[str] = "mariadb"

    def __init__(self, *, galera: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """``settings`` are those of the server's command line, such as ``{"sync-binlog": "1"}``."""
        super().__init__()
        self.program = program()
        self.settings = (_galera_settings(self.host) if galera else {}) | dict(settings or {})
        self.is_galera = galera
        self.data = self.directory / "data"

    @property
    def url(self) -> str:
        return f"mysql://root@{self.host}:{self.port}/{DATABASE}"

    def prepare(self) -> None:
        install = require_program("mariadb-install-db")
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", *_as_root()]
        # The kernel has few places for native asynchronous I/O, and many servers at once take them all.
        places = [f"--datadir={self.data}", f"--tmpdir={self.directory}"]
        command = [install, "--no-defaults", *places, "--innodb-use-native-aio=0", *options]
        template.fill(self.data, lambda: self.run(command), program=self.program, options=options)

    def command(self) -> list[str]:
        options = {
            "datadir": str(self.data),
            "tmpdir": str(self.directory),  # a server that starts removes what others left in it
            "innodb-use-native-aio": "0",
            "port": str(self.port),
            "bind-address": self.host,
            "socket": str(self.directory / "mariadb.sock"),
            "pid-file": str(self.directory / "mariadb.pid"),
            **self.settings,
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [str(self.program), "--no-defaults", "--skip-name-resolve", *_as_root(), *given]

    def answers(self) -> bool:
        with self.client(database=None) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'wsrep_ready'" if self.is_galera else "SELECT 'ready', 'ON'")
            row = cursor.fetchone()
        return bool(row and row[1] == "ON")

    def started(self) -> None:
        with self.client(database=None) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")

    def client(self, *, database: str | None = DATABASE) -> "pymysql.Connection[Any]":
        import pymysql

        return pymysql.connect(
            host=self.host, port=self.port, user="root", database=database, connect_timeout=10, read_timeout=20
        )


def program() -> Path:
    return require_program("mariadbd")


def _as_root() -> list[str]:
    """Let the server run as root, which it refuses by default: its files are then ours, as with all other servers."""
    return ["--user=root"] if os.geteuid() == 0 else []


@cache
def galera_library() -> Path:
    for path in GALERA_LIBRARIES:
        if path.exists():
            return path
    raise Missing("the Galera library is not installed; try: python -m testbed.provision")


def _galera_settings(host: str) -> dict[str, str]:
    return {
        "wsrep-on": "ON",
        "wsrep-provider": str(galera_library()),
        "wsrep-cluster-address": "gcomm://",
        "wsrep-node-address": host,
        "wsrep-provider-options": f"gmcast.listen_addr=tcp://{host}:{free_port()};ist.recv_addr={host}:{free_port()}",
        "binlog-format": "ROW",
        "innodb-autoinc-lock-mode": "2",
    }

"""Leases in a SQLite file, for the processes of one machine.

URL: ``sqlite:///relative.db`` or ``sqlite:////absolute/path.db``, the application's own database. The leases are in a
second file next to it (``app.db`` → ``app.leases.db``), so that no transaction of the application delays a renewal.
Options: ``prefix=fencepost_`` for the tables, ``history=90d`` for how long ended grants are remembered,
``call_timeout=3s`` for how long a call waits for other writers.

Grade: *durable*, on one machine. Expiry uses the clock that also counts while the machine is suspended, together with
the id of the boot: after a reboot all locks are free. Tokens follow the wall clock, and always increase.

Survives: the death of any process at any moment; loss of power (WAL, synchronous=FULL); deletion of the file (a holder
notices at its next renewal, and tokens still increase).

Does not survive: a network file system, which is refused at the start (``accept_risk=network-filesystem``); two kernels
that share the file, such as virtual machines with a shared folder; a disk that ignores flushes. A process that is
stopped in the few microseconds of a write transaction blocks all others until it continues.

Required settings: none. All processes must see the file in the same folder, on the same kernel (containers with a
shared volume of one host are fine), and be allowed to write to the folder. Symbolic links are followed.
"""

from __future__ import annotations

from pathlib import Path

from fencepost.core.runtime import Runtime
from fencepost.errors import InvalidUrl
from fencepost.leases.store import Capabilities, Grade, LedgerMark
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.options import SHARED_OPTIONS, LeaseTables
from fencepost.leases.stores.sql.sqlite_backend import RISK, SqliteBackend
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.leases.stores.sql.waiting import Polling
from fencepost.leases.urls import StoreUrl, sqlite_path
from fencepost.sql.forked_sqlite import FORKED_SQLITE

CAPABILITIES = Capabilities(
    grade=Grade.DURABLE,
    watch=False,
    keeps_history=True,
    renewal_round_trips="none",
    scope="machine",
    loses="everything, with the file",
)
_POLL_S = 0.025  # how late a waiter may notice a release; a read of a local file is cheap


class SqliteStore(SqlLeaseStore):
    """Leases in one file."""

    backend: SqliteBackend

    def start(self) -> tuple[str, ...]:
        """Refuse an unsuitable location first; then open the file and create the tables."""
        return self.backend.check_place() + super().start()

    def noted(self, ledger: LedgerMark) -> tuple[str, LedgerMark]:
        """Record the progress of the ledger of these leases; return the store's identity and the previous record."""
        return self._calls.run(self._timeout_s, lambda connection: self.backend.noted(connection, ledger))


def from_url(url: StoreUrl, runtime: Runtime) -> SqliteStore:
    """Create the store, without opening the file yet."""
    url.only_options(SHARED_OPTIONS)
    tables = LeaseTables.of(url)
    backend = SqliteBackend(lease_file(url), tables, runtime, accepts_network=RISK in url.accepted_risks())
    store = SqliteStore(
        runtime,
        backend,
        capabilities=CAPABILITIES,
        call_timeout_s=url.call_timeout_s,
        history_us=tables.history_us,
        watch=lambda read, _: Polling(runtime, read, interval_s=_POLL_S),
    )
    store.backend = backend
    FORKED_SQLITE.join(store.open_now)
    return store


def lease_file(url: StoreUrl) -> Path:
    """Return the absolute path of the second file: ``app.leases.db`` next to ``app.db``, not next to a link to it."""
    text = url.path.removeprefix("/")
    if url.hosts:
        raise InvalidUrl(
            f"sqlite://{url.hosts[0][0]}… names a host; a file is written with three slashes: sqlite:///app.db"
        )
    if not text or text == ":memory:":
        raise InvalidUrl("sqlite:// needs a file: sqlite:///app.db; for locks within one process there is memory://")
    if text.endswith("/"):
        raise InvalidUrl(f"sqlite:///{text} names a folder; add the name of a file")
    given = sqlite_path(text)
    return given.with_name(f"{given.stem}.leases{given.suffix}")


def schema_sql(url: StoreUrl) -> str:
    """Return the script that creates the tables. SQLite does not need it: they are created with the file."""
    tables = LeaseTables.of(url)
    return schema.text(schema.sqlite(tables, f"{tables.index}_boot"))

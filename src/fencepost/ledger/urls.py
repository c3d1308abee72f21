"""The ledger's URL: ``sqlite:///app.db``, ``postgresql://user@host/database``, ``mysql://…`` or ``mariadb://…``.

It is also the URL of the lease store in the same database, with the same options and meanings (``prefix=``, ``schema=``
on PostgreSQL, ``call_timeout=``, those of the driver). ``history=`` is for the lease store only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy

from fencepost.core.urls import StoreUrl, absolute_url, identifier, sqlite_path
from fencepost.errors import InvalidUrl
from fencepost.sql import mysql, postgres

DEFAULT_TIMEOUT_S = 10.0  # per statement: longer than every statement takes, shorter than a session lasts
_SHARED = frozenset({"prefix", "history"})
_KINDS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "mysql": "mysql",
    "mysql+pymysql": "mysql",
    "mariadb": "mysql",
    "mariadb+pymysql": "mysql",
}
_KNOWN = {
    "sqlite": _SHARED,
    "postgresql": _SHARED | postgres.URL_OPTIONS | {"schema"},
    "mysql": _SHARED | mysql.URL_OPTIONS,
}
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


@dataclass(frozen=True, slots=True)
class LedgerUrl:
    """A parsed URL. `kind` is ``sqlite``, ``postgresql`` or ``mysql``. Its text shows no password."""

    kind: str
    store: StoreUrl
    prefix: str
    schema: str | None
    timeout_s: float
    text: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> LedgerUrl:
        """Parse the URL, or raise `InvalidUrl`. A relative path is resolved now, and never again."""
        text = absolute_url(text)
        store = StoreUrl.parse(text)
        kind = _KINDS.get(store.scheme)
        if kind is None:
            message = f"a ledger cannot be stored in {store.scheme}://; supported: sqlite, postgresql, mysql, mariadb"
            known, plus, _ = store.scheme.partition("+")
            raise InvalidUrl(f"{message}. Leave out the driver: {known}://…" if plus and known in _KINDS else message)
        store.only_options(_KNOWN[kind])
        schema = store.options.get("schema")
        url = LedgerUrl(
            kind=kind,
            store=store,
            prefix=identifier(store.options.get("prefix", "fencepost_"), what="prefix"),
            schema=identifier(schema, what="schema") if schema else None,
            timeout_s=store.call_timeout_s if "call_timeout" in store.options else DEFAULT_TIMEOUT_S,
            text=text,
        )
        url._check_place()
        return url

    def __str__(self) -> str:
        given = "&".join(
            f"{name}={self.store.options[name]}" for name in ("prefix", "schema") if name in self.store.options
        )
        return f"{self.store}?{given}" if given else str(self.store)

    @property
    def is_file(self) -> bool:
        """Whether the ledger is a SQLite file, and not a database on a server."""
        return self.kind == "sqlite"

    @property
    def path(self) -> Path:
        """The absolute path of the SQLite file, with symbolic links resolved."""
        return sqlite_path(self.store.path.removeprefix("/"))

    @property
    def database(self) -> str:
        """The name of the database on a server."""
        return self.store.path.strip("/")

    def sqlalchemy(self) -> sqlalchemy.URL:
        """Return the URL for an engine of SQLAlchemy, with the options of the driver only."""
        if self.is_file:
            return sqlalchemy.URL.create("sqlite", database=str(self.path))
        passed = postgres.URL_OPTIONS | mysql.URL_OPTIONS
        query: dict[str, str | tuple[str, ...]] = {
            name: value for name, value in self.store.options.items() if name in passed
        }
        host, port = self.store.hosts[0] if len(self.store.hosts) == 1 else (None, None)
        if len(self.store.hosts) > 1:
            query["host"] = tuple(f"{each}:{number or 5432}" for each, number in self.store.hosts)
        return sqlalchemy.URL.create(
            _DRIVERS[self.kind],
            username=self.store.user,
            password=self.store.password,
            host=host,
            port=port,
            database=self.database or None,
            query=query,
        )

    def lease_url(self) -> str:
        """Return the URL of the lease store in the same database (on SQLite, in a file beside it)."""
        scheme, rest = self.text.split("://", 1)
        return f"{scheme.partition('+')[0]}://{rest}"

    def _check_place(self) -> None:
        if self.is_file:
            self._check_file()
        elif self.kind == "mysql" and len(self.store.hosts) > 1:
            raise InvalidUrl(f"{self.store.scheme}:// takes one host; use a proxy that leads to the primary")
        elif self.kind == "mysql" and not self.database:
            raise InvalidUrl(f"{self.store.scheme}:// needs a database: {self.store.scheme}://user@host/database")

    def _check_file(self) -> None:
        text = self.store.path.removeprefix("/")
        if self.store.hosts:
            host = self.store.hosts[0][0]
            raise InvalidUrl(f"sqlite://{host}… names a host; a file is written with three slashes: sqlite:///app.db")
        if not text or text == ":memory:" or text.endswith("/"):
            raise InvalidUrl("sqlite:// needs a file: sqlite:///app.db")


def lease_url(ledger_url: str) -> str:
    """Return the URL of the lease store in the ledger's own database."""
    return LedgerUrl.parse(ledger_url).lease_url()

"""The namespace of chaos in a store: a random prefix, so that nothing else is changed, and all of it can be removed.

**Promises.** All that is made has the prefix: tables, procedures and keys. `remove` removes what has it, and nothing
else. A URL under which that cannot be done is refused.

**Not promised.** That a run which is killed with -9 removes anything: then ``fencepost chaos --remove PREFIX`` does.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.errors import InvalidName, InvalidUrl, StoreUnavailable
from fencepost.leases.schemes import try_store
from fencepost.ledger.database import Database
from fencepost.ledger.urls import LedgerUrl

_BEGINNING = "fencepost_chaos_"
_PREFIX = re.compile(rf"{_BEGINNING}[0-9a-f]{{6,16}}_")
_SQL = ("sqlite", "postgresql", "postgres", "postgresql+psycopg", "postgresql+advisory", "mysql", "mariadb")
_SQL_DRIVERS = ("mysql+pymysql", "mariadb+pymysql")
_REDIS = ("redis", "rediss", "redis+sentinel", "valkey")
_REMOVE_WITHIN_S = 10.0  # for a lock on the file, or for Redis; what is left then is removed with --remove
_SQLITE_ENDINGS = ("", "-wal", "-shm", "-journal")


def new_prefix(runtime: Runtime) -> str:
    """Return a new random prefix."""
    return f"{_BEGINNING}{runtime.new_id()[:8]}_"


def checked_prefix(text: str) -> str:
    """Return `text` if it is a prefix that chaos makes: nothing else is ever removed."""
    if not _PREFIX.fullmatch(text):
        raise InvalidName(f"{text!r} is no prefix of chaos; they look like {_BEGINNING}0f1e2d3c_")
    return text


@dataclass(frozen=True, slots=True)
class Namespace:
    """A prefix in a ledger's database and in a lease store, with the URLs that lead there."""

    prefix: str
    ledger_url: str
    store_url: str | None  # None: leases are kept beside the ledger

    @property
    def locks_url(self) -> str:
        """The URL of the lease store that locks are taken in."""
        return self.store_url or LedgerUrl.parse(self.ledger_url).lease_url()

    def reach(self, runtime: Runtime) -> None:
        """Check that the servers answer, before anything is made."""
        _answers(self.ledger_url, runtime)
        if self.store_url is None:
            return
        if StoreUrl.parse(self.store_url).scheme in _REDIS:
            try_store(self.store_url, runtime)  # on Redis that makes nothing
        else:
            _answers(self.store_url, runtime)

    def remove(self, runtime: Runtime) -> None:
        """Remove all that has the prefix."""
        _remove_from_sql(self.ledger_url, self.prefix, runtime)
        if self.store_url is None:
            return
        if StoreUrl.parse(self.store_url).scheme in _REDIS:
            _remove_from_redis(self.store_url, self.prefix, runtime)
        else:
            _remove_from_sql(self.store_url, self.prefix, runtime)


def namespace(*, ledger: str, store: str | None, prefix: str) -> Namespace:
    """Return the namespace; raise `InvalidUrl` for a URL that does not support one."""
    LedgerUrl.parse(ledger)  # says better what is wrong with it
    return Namespace(prefix, isolated(ledger, prefix), isolated(store, prefix) if store and store != ledger else None)


def isolated(url: str, prefix: str) -> str:
    """Return the URL with the prefix in it."""
    scheme = StoreUrl.parse(url).scheme
    if scheme not in (*_SQL, *_SQL_DRIVERS, *_REDIS):
        known = ", ".join((*_SQL, *_REDIS))
        raise InvalidUrl(f"chaos cannot be kept apart from what else is in {scheme}://; it can in: {known}")
    place, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    return f"{place}?{urlencode({**options, 'prefix': prefix}, safe='/,:')}"


def _answers(url: str, runtime: Runtime) -> None:
    place = _parsed(url)
    if place.kind != "sqlite":  # opening it would create the file
        with closing(Database(place, runtime)) as database:
            database.now_us()


def _parsed(url: str) -> LedgerUrl:
    return LedgerUrl.parse(url.replace("postgresql+advisory://", "postgresql://", 1))


def _remove_from_sql(url: str, prefix: str, runtime: Runtime) -> None:
    parsed = _parsed(url)
    if parsed.is_file:
        _remove_from_files(parsed, prefix)
        return
    with closing(Database(parsed, runtime)) as database:
        database.write(lambda cursor: _drop(cursor, parsed, prefix))


def _drop(cursor: Any, url: LedgerUrl, prefix: str) -> None:
    here = "current_schema()" if url.kind == "postgresql" else "database()"
    place = "%s" if url.schema else here
    known = (url.schema,) if url.schema else ()
    cursor.execute(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = {place} "  # noqa: S608
        "AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND substr(table_name, 1, %s) = %s",
        (*known, len(prefix), prefix),
    )
    within = f"{url.schema}." if url.schema else ""
    for (name,) in cursor.fetchall():
        cursor.execute(f"DROP TABLE IF EXISTS {within}{name}")
    if url.kind == "postgresql":
        _drop_routines(cursor, place, known, prefix)


def _drop_routines(cursor: Any, place: str, known: tuple[str, ...], prefix: str) -> None:
    cursor.execute(
        "SELECT p.oid::regprocedure::text, p.prokind::text FROM pg_proc p "  # noqa: S608 - `place` is ours
        "JOIN pg_namespace n ON n.oid = p.pronamespace "
        f"WHERE n.nspname = {place} AND substr(p.proname, 1, %s) = %s",
        (*known, len(prefix), prefix),
    )
    for signature, kind in cursor.fetchall():
        cursor.execute(f"DROP {'PROCEDURE' if kind == 'p' else 'FUNCTION'} IF EXISTS {signature}")


def _remove_from_files(url: LedgerUrl, prefix: str) -> None:
    """Drop the tables; a file that has nothing else in it was made by us, and goes."""
    for path in (url.path, url.path.with_name(f"{url.path.stem}.leases{url.path.suffix}")):
        if path.exists() and _is_empty_without(path, prefix):
            for ending in _SQLITE_ENDINGS:
                with suppress(FileNotFoundError):
                    path.with_name(path.name + ending).unlink()


def _is_empty_without(path: Path, prefix: str) -> bool:
    import sqlite3  # noqa: PLC0415 - where the ledger is a file

    with closing(sqlite3.connect(path, timeout=_REMOVE_WITHIN_S, isolation_level=None)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            if name.startswith(prefix):
                connection.execute(f"DROP TABLE IF EXISTS {name}")
        left = connection.execute("SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
        return bool(left.fetchone()[0] == 0)


def _remove_from_redis(url: str, prefix: str, runtime: Runtime) -> None:
    from redis.exceptions import RedisError  # noqa: PLC0415 - an optional driver

    from fencepost.leases.stores.redis.route import route_from_url  # noqa: PLC0415

    try:
        wire = route_from_url(StoreUrl.parse(url), runtime).connect(runtime.monotonic() + _REMOVE_WITHIN_S)
        try:
            _delete(wire, f"{prefix}*")
        finally:
            wire.hang_up()
    except RedisError as error:
        raise StoreUnavailable(f"{StoreUrl.parse(url)}: {error}") from error


def _delete(wire: Any, pattern: str) -> None:
    position = b"0"
    while True:
        position, keys = wire.ask(("SCAN", position, "MATCH", pattern, "COUNT", 1000))
        if keys:
            wire.ask(("DEL", *keys))
        if position == b"0":
            return

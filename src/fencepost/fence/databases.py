"""How each database begins, bounds and checks a fenced transaction.

Each marks the transaction when it begins, in a way that does not outlive it (a setting, or a savepoint), and looks for
the mark when it checks: so a transaction that was ended inside the block is noticed, whoever ended it and how.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from fencepost.fence.certifying import compares_writes
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.final_update import FinalUpdate
from fencepost.fence.run_row import Fence
from fencepost.fence.sources.source import Source
from fencepost.fence.sources.sqlite_limit import SqliteLimit
from fencepost.schema.checks import BEGUN, MARK
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, trouble_of

_SAVEPOINT = "fencepost_begun"
_SILENCE = "idle_in_transaction_session_timeout"


class TargetDatabase(Protocol):
    """What differs between databases. One for each transaction."""

    @property
    def path(self) -> str:
        """What decides, besides the connection, which tables are meant by names: known once it has begun."""
        ...

    def looks_before(self, terms: FenceOptions) -> bool:
        """Whether `begin` cannot look without a lock, so that somebody has to look in a transaction before."""
        ...

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Bound the silence, mark the transaction, and look without a lock whether the fence is ours."""
        ...

    def reads(self, source: Source, fence: Fence) -> bool:
        """Look without a lock whether the fence is ours."""
        ...

    def check(self, source: Source, fence: Fence) -> bool:
        """Look again, and keep the fence as it is until the transaction ends."""
        ...

    def is_unbroken(self, source: Source) -> bool:
        """Whether this is still the transaction that was begun. Asked once, after the check."""
        ...

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """Make a change, check and commit in one; False if the fence is not ours or it is not what was begun.

        An error, if it was ours and COMMIT itself failed. None, and nothing was done, where it takes one after the
        other.
        """
        ...

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """In a transaction that is to write to `table`, wait for no lock for longer than this."""
        ...

    def locking(self, *, shared: bool) -> str:
        """Return the words that lock what a SELECT finds."""
        ...

    def ends_in_time(self) -> bool:
        """Note that the transaction ends by itself; False if it is too late for that."""
        ...

    def end(self, source: Source) -> None:
        """Leave the connection as it was."""
        ...


class ServerDatabase:
    """What PostgreSQL and MySQL have in common: others write at the same time."""

    path = ""
    sharing = SPELLING["postgresql"].share.strip()
    mark = "1"  # what the check finds in the row's stead

    def __init__(self) -> None:
        self._found: Any = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """A look takes no lock."""
        return False

    def reads(self, source: Source, fence: Fence) -> bool:
        """Look without a lock."""
        return _finds(source, fence)

    def check(self, source: Source, fence: Fence) -> bool:
        """Look with a share lock, which stays to the end of the transaction."""
        where = fence.query(source.target.kind).removeprefix("SELECT 1 ")
        row = self._first(source, f"SELECT {self.mark} {where} {self.sharing}", fence.values)
        self._found = None if row is None else row[0]
        return row is not None

    def _first(self, source: Source, sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the first row."""
        rows = source.target.execute(sql, parameters).rows
        return rows[0] if rows else None

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """One after the other."""
        return None

    def locking(self, *, shared: bool) -> str:
        """In its own words."""
        return self.sharing if shared else "FOR UPDATE"

    def ends_in_time(self) -> bool:
        """The server sees to it."""
        return True


class Postgres(ServerDatabase):
    """PostgreSQL: what is set for the transaction ends with it."""

    mark = f"coalesce(current_setting('{MARK}', true), '')"

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Bound the silence, mark and look in one round trip; on psycopg together with BEGIN."""
        idle_ms = max(round(terms.ttl_s * 1000), 1)
        if not looks and _quick(source) is not None:
            set_both = f"SET LOCAL {_SILENCE} = {idle_ms}; SET LOCAL {MARK} = '{BEGUN}'"
            row = self._first(source, f"{set_both}; SHOW search_path", ())
            self.path = "" if row is None else str(row[0])
            return True
        set_both = f"set_config('{_SILENCE}', %s, true), set_config('{MARK}', '{BEGUN}', true)"
        questions = f"{set_both}, current_setting('search_path'), EXISTS ({fence.query('postgresql')})"
        row = self._first(source, f"SELECT {questions}", (str(idle_ms), *fence.values))
        self.path = "" if row is None else str(row[2])
        return row is not None and row[3] in ("t", True)

    def is_unbroken(self, source: Source) -> bool:
        """The check has seen the mark, if it found the row."""
        mark = self._found if self._found is not None else source.target.execute(f"SELECT {self.mark}").rows[0][0]
        return bool(mark == BEGUN)

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """On psycopg, look with a share lock and commit if the row and the mark are there."""
        # Serializable: COMMIT itself may find a conflict then, which is not the fence's.
        if terms.isolation == "serializable" or not fence.checks_with_commit:
            return None
        quick = _quick(source)
        if quick is None or not source.ends_with_commit or not quick.has_begun(source.raw):
            return None
        is_ours: bool | Exception = quick.commits_after(
            source.raw, fence.check, fence.values, retold=source.retold, change=change
        )
        return is_ours

    def _first(self, source: Source, sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the first row, by the shortest way; texts where that is taken."""
        quick = _quick(source)
        if quick is not None:
            row: tuple[Any, ...] | None = quick.asked(source.raw, sql, parameters, retold=source.retold)
            return row
        return super()._first(source, sql, parameters)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """For this transaction alone."""
        source.target.execute("SELECT set_config('lock_timeout', %s, true)", (str(round(wait_s * 1000)),))

    def end(self, source: Source) -> None:
        """Nothing is left."""


class Mysql(ServerDatabase):
    """MySQL and MariaDB: what is set for the connection is kept in a variable of the session, and put back."""

    sharing = SPELLING["mysql"].share.strip()

    def __init__(self) -> None:
        super().__init__()
        self._set: list[str] = []
        self._has_mark: bool | None = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """Where every look takes a lock, a look would make a successor wait for the whole transaction."""
        return terms.isolation == "serializable"

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Bound the silence, mark, look."""
        self._bound(source, _silence(source), max(math.ceil(terms.ttl_s), 1))
        source.target.execute(f"SAVEPOINT {_SAVEPOINT}")
        return not looks or self.looks_before(terms) or self.reads(source, fence)

    def check(self, source: Source, fence: Fence) -> bool:
        """Look for the mark before that, so that the lock lasts for no round trip more."""
        self._has_mark = _has_savepoint(source)
        if fence.touch is not None and compares_writes(source):
            return source.target.execute(fence.touch, fence.values).count > 0
        return super().check(source, fence)

    def is_unbroken(self, source: Source) -> bool:
        """Whether the mark is there, or was."""
        return self._has_mark if self._has_mark is not None else _has_savepoint(source)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """In whole seconds, which is all it knows."""
        self._bound(source, "innodb_lock_wait_timeout", max(round(wait_s), 1))

    def end(self, source: Source) -> None:
        """Put back what was set."""
        if self._set:
            names, self._set = self._set, []
            source.execute_outside("SET " + ", ".join(f"SESSION {name} = @fencepost_{name}" for name in names))

    def _bound(self, source: Source, name: str, value: int) -> None:
        kept = "" if name in self._set else f"@fencepost_{name} = @@SESSION.{name}, "
        source.target.execute(f"SET {kept}SESSION {name} = {value}")
        if name not in self._set:
            self._set.append(name)


class Sqlite:
    """SQLite: whoever writes is the only one, and not for longer than the limit."""

    path = ""

    def __init__(self) -> None:
        self._limit: SqliteLimit | None = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """The whole file is locked in any case."""
        return False

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Become the writer at once: then nobody can raise the fence until we end."""
        self._become_writer(source, fence.table)
        source.target.execute(f"SAVEPOINT {_SAVEPOINT}")
        self._limit = SqliteLimit(terms.runtime, source.raw, limit_s=terms.sqlite_limit_s)
        return not looks or self.reads(source, fence)

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """There is no round trip to be saved."""
        return None

    def reads(self, source: Source, fence: Fence) -> bool:
        """Look."""
        return _finds(source, fence)

    check = reads  # for we are the one writer

    def is_unbroken(self, source: Source) -> bool:
        """Whether the mark is there."""
        return _has_savepoint(source)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """It waits for as long as the connection was told to."""
        self._become_writer(source, table)

    def locking(self, *, shared: bool) -> str:
        """The whole file is locked."""
        return ""

    def ends_in_time(self) -> bool:
        """Unless the limit was reached."""
        return self._limit is None or self._limit.end()

    def end(self, source: Source) -> None:
        """The limit may have closed the connection for writing."""
        if self._limit is not None:
            self._limit.lift()

    def _become_writer(self, source: Source, table: str) -> None:
        if source.raw.in_transaction:
            source.target.execute(f"UPDATE {table} SET token = token WHERE 1 = 0")  # noqa: S608 - checked identifiers
        else:
            source.target.execute("BEGIN IMMEDIATE")


_DATABASES: dict[str, Any] = {"postgresql": Postgres, "mysql": Mysql, "sqlite": Sqlite}


def database_for(kind: str) -> TargetDatabase:
    """Return the ways of a kind of database, for one transaction."""
    database: TargetDatabase = _DATABASES[kind]()
    return database


def _quick(source: Source) -> Any:
    """Return the short way to psycopg, if the source is on it and can take it now."""
    raw = source.raw
    if type(raw).__module__.partition(".")[0] != "psycopg":
        return None
    from fencepost.fence.sources import quick  # noqa: PLC0415 - the driver is there: it is the user's

    return quick if quick.can_be_asked(raw) else None


def _finds(source: Source, fence: Fence) -> bool:
    return bool(source.target.execute(fence.query(source.target.kind), fence.values).rows)


def _has_savepoint(source: Source) -> bool:
    try:
        source.target.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except Exception as error:
        if trouble_of(error) is not Trouble.NO_SAVEPOINT:
            raise
        return False
    return True


def _silence(source: Source) -> str:
    return "idle_transaction_timeout" if source.is_mariadb else "wait_timeout"

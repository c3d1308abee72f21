"""How each database begins, limits and checks a fenced transaction.

Each marks the transaction when it begins, with a setting or a savepoint that ends with the transaction. The check looks
for this mark, so it notices if the transaction was ended inside the block in any way.
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
    """What differs between databases. Each transaction has its own instance."""

    @property
    def path(self) -> str:
        """The search path, which decides together with the connection which tables names mean. Known after `begin`."""
        ...

    def looks_before(self, terms: FenceOptions) -> bool:
        """Whether `begin` cannot read the fence without a lock, so that it has to be read in a transaction before."""
        ...

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Set the idle timeout, mark the transaction, and read without a lock whether the fence is ours."""
        ...

    def reads(self, source: Source, fence: Fence) -> bool:
        """Read without a lock whether the fence is ours."""
        ...

    def check(self, source: Source, fence: Fence) -> bool:
        """Read whether the fence is ours, and lock it until the transaction ends."""
        ...

    def is_unbroken(self, source: Source) -> bool:
        """Whether this is still the transaction that was begun. Called once, after the check."""
        ...

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """Make a change, check the fence and commit in one step.

        False if the fence is not ours or the transaction is not the one that was begun. An error if the fence was ours
        and COMMIT itself failed. None, and nothing was done, if the database needs separate steps.
        """
        ...

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """Limit the wait for a lock, in a transaction that will write to `table`."""
        ...

    def locking(self, *, shared: bool) -> str:
        """Return the SQL clause that locks the rows of a SELECT."""
        ...

    def ends_in_time(self) -> bool:
        """Stop the time limit of the transaction; False if the limit was already reached."""
        ...

    def end(self, source: Source) -> None:
        """Restore the settings of the connection."""
        ...


class ServerDatabase:
    """What PostgreSQL and MySQL have in common: other transactions write at the same time."""

    path = ""
    sharing = SPELLING["postgresql"].share.strip()
    mark = "1"  # the column that the check selects

    def __init__(self) -> None:
        self._found: Any = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """False: reading takes no lock."""
        return False

    def reads(self, source: Source, fence: Fence) -> bool:
        return _finds(source, fence)

    def check(self, source: Source, fence: Fence) -> bool:
        """Read with a share lock, which lasts until the transaction ends."""
        where = fence.query(source.target.kind).removeprefix("SELECT 1 ")
        row = self._first(source, f"SELECT {self.mark} {where} {self.sharing}", fence.values)
        self._found = None if row is None else row[0]
        return row is not None

    def _first(self, source: Source, sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...] | None:
        rows = source.target.execute(sql, parameters).rows
        return rows[0] if rows else None

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """None: check and commit are separate steps."""
        return None

    def locking(self, *, shared: bool) -> str:
        return self.sharing if shared else "FOR UPDATE"

    def ends_in_time(self) -> bool:
        """True: the server enforces the limit."""
        return True


class Postgres(ServerDatabase):
    """PostgreSQL: settings made for a transaction end with it."""

    mark = f"coalesce(current_setting('{MARK}', true), '')"

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Set the timeout, mark and read in one round trip; with psycopg in the same one as BEGIN."""
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
        """Whether the mark is there. If the check found the row, it has read the mark as well."""
        mark = self._found if self._found is not None else source.target.execute(f"SELECT {self.mark}").rows[0][0]
        return bool(mark == BEGUN)

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """With psycopg, read with a share lock and commit if the row and the mark are there."""
        # Under serializable, COMMIT itself may fail with a conflict that has nothing to do with the fence.
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
        """Return the first row, through libpq where possible; then all values are strings."""
        quick = _quick(source)
        if quick is not None:
            row: tuple[Any, ...] | None = quick.asked(source.raw, sql, parameters, retold=source.retold)
            return row
        return super()._first(source, sql, parameters)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """Set the lock timeout for this transaction only."""
        source.target.execute("SELECT set_config('lock_timeout', %s, true)", (str(round(wait_s * 1000)),))

    def end(self, source: Source) -> None:
        """Do nothing: all settings ended with the transaction."""


class Mysql(ServerDatabase):
    """MySQL and MariaDB: settings of the connection are saved in session variables, and restored at the end."""

    sharing = SPELLING["mysql"].share.strip()

    def __init__(self) -> None:
        super().__init__()
        self._set: list[str] = []
        self._has_mark: bool | None = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """Under serializable, every read takes a lock, which would make a successor wait for the whole transaction."""
        return terms.isolation == "serializable"

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Set the timeout, mark the transaction and read the fence."""
        self._bound(source, _silence(source), max(math.ceil(terms.ttl_s), 1))
        source.target.execute(f"SAVEPOINT {_SAVEPOINT}")
        return not looks or self.looks_before(terms) or self.reads(source, fence)

    def check(self, source: Source, fence: Fence) -> bool:
        """Look for the mark first, so that the lock is not held for another round trip."""
        self._has_mark = _has_savepoint(source)
        if fence.touch is not None and compares_writes(source):
            return source.target.execute(fence.touch, fence.values).count > 0
        return super().check(source, fence)

    def is_unbroken(self, source: Source) -> bool:
        """Whether the mark is there, or was there at the check."""
        return self._has_mark if self._has_mark is not None else _has_savepoint(source)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """Set the lock timeout, which MySQL takes in whole seconds."""
        self._bound(source, "innodb_lock_wait_timeout", max(round(wait_s), 1))

    def end(self, source: Source) -> None:
        """Restore the saved settings."""
        if self._set:
            names, self._set = self._set, []
            source.execute_outside("SET " + ", ".join(f"SESSION {name} = @fencepost_{name}" for name in names))

    def _bound(self, source: Source, name: str, value: int) -> None:
        kept = "" if name in self._set else f"@fencepost_{name} = @@SESSION.{name}, "
        source.target.execute(f"SET {kept}SESSION {name} = {value}")
        if name not in self._set:
            self._set.append(name)


class Sqlite:
    """SQLite: one writer at a time, and not for longer than the limit."""

    path = ""

    def __init__(self) -> None:
        self._limit: SqliteLimit | None = None

    def looks_before(self, terms: FenceOptions) -> bool:
        """False: the whole file is locked in any case."""
        return False

    def begin(self, source: Source, fence: Fence, terms: FenceOptions, *, looks: bool) -> bool:
        """Become the writer immediately, so that the fence cannot be raised until this transaction ends."""
        self._become_writer(source, fence.table)
        source.target.execute(f"SAVEPOINT {_SAVEPOINT}")
        self._limit = SqliteLimit(terms.runtime, source.raw, limit_s=terms.sqlite_limit_s)
        return not looks or self.reads(source, fence)

    def commit_if_ours(
        self, source: Source, fence: Fence, terms: FenceOptions, change: FinalUpdate | None = None
    ) -> bool | Exception | None:
        """None: there is no round trip to save."""
        return None

    def reads(self, source: Source, fence: Fence) -> bool:
        return _finds(source, fence)

    check = reads  # this connection is the only writer, so the fence is locked already

    def is_unbroken(self, source: Source) -> bool:
        return _has_savepoint(source)

    def begin_raising(self, source: Source, table: str, *, wait_s: float) -> None:
        """Become the writer. The wait is limited by the timeout of the connection, not by `wait_s`."""
        self._become_writer(source, table)

    def locking(self, *, shared: bool) -> str:
        """Return nothing: the whole file is locked."""
        return ""

    def ends_in_time(self) -> bool:
        return self._limit is None or self._limit.end()

    def end(self, source: Source) -> None:
        """Allow writing again, which the limit may have switched off."""
        if self._limit is not None:
            self._limit.lift()

    def _become_writer(self, source: Source, table: str) -> None:
        if source.raw.in_transaction:
            source.target.execute(f"UPDATE {table} SET token = token WHERE 1 = 0")  # noqa: S608 - checked identifiers
        else:
            source.target.execute("BEGIN IMMEDIATE")


_DATABASES: dict[str, Any] = {"postgresql": Postgres, "mysql": Mysql, "sqlite": Sqlite}


def database_for(kind: str) -> TargetDatabase:
    """Return the implementation for a kind of database, for one transaction."""
    database: TargetDatabase = _DATABASES[kind]()
    return database


def _quick(source: Source) -> Any:
    """Return the module for direct libpq calls, if the source uses psycopg and its connection is ready for them."""
    raw = source.raw
    if type(raw).__module__.partition(".")[0] != "psycopg":
        return None
    from fencepost.fence.sources import quick  # noqa: PLC0415 - psycopg is installed: the user's connection is from it

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

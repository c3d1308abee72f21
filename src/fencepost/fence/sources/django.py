"""Django's connections. Inside `atomic`, Django itself refuses `commit()` and `rollback()`."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from fencepost.fence.sources.source import in_a_transaction
from fencepost.fence.target import Target, target_of

_OF_PSYCOPG2 = {"READ COMMITTED": 1, "REPEATABLE READ": 2, "SERIALIZABLE": 3}


class DjangoSource:
    """``django.db.connection``, or one of ``django.db.connections``, in the thread that uses it."""

    ends_with_commit = False  # Django calls the `on_commit` hooks after the commit

    def __init__(self, given: Any) -> None:
        self.given = given
        self.wrapper = connections[given.alias]
        self.target: Target = target_of(given)
        self._atomic: Any = None
        self._isolation: Any = None

    @property
    def raw(self) -> Any:
        """The driver's connection."""
        return self.wrapper.connection

    @property
    def place(self) -> Hashable:
        """The alias and the settings, without the password."""
        settings = self.wrapper.settings_dict
        return ("django", self.wrapper.alias, *(str(settings.get(name)) for name in ("NAME", "HOST", "PORT", "USER")))

    @property
    def is_mariadb(self) -> bool:
        return bool(getattr(self.wrapper, "mysql_is_mariadb", False))

    def open(self) -> None:
        """Connect. Refuse a connection in a transaction, as with ``ATOMIC_REQUESTS`` or in a ``TestCase``."""
        if isinstance(self.given, BaseDatabaseWrapper) and self.given is not self.wrapper:
            raise RuntimeError(
                f"this is not the connection that Django uses as {self.wrapper.alias!r} in this thread; pass "
                f"django.db.connections[{self.wrapper.alias!r}]"
            )
        if self.wrapper.in_atomic_block:
            raise in_a_transaction(self.given)
        if not self.wrapper.get_autocommit():
            raise RuntimeError("this Django connection has autocommit off; a fenced transaction needs it on")
        self.wrapper.ensure_connection()

    def begin(self, isolation: str) -> None:
        """Begin an atomic block with this isolation level."""
        if self.wrapper.vendor == "postgresql":
            self._isolate(isolation.upper())
        self._atomic = transaction.atomic(using=self.wrapper.alias)
        self._atomic.__enter__()
        if self.wrapper.vendor == "mysql":  # for this transaction only, which has not begun on the server yet
            self.target.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}")
        elif self.wrapper.vendor == "sqlite":  # so statements after the user's own COMMIT can still be rolled back
            self.raw.isolation_level = "DEFERRED"  # Django resets it when the block ends

    def commit(self) -> None:
        """Commit, and call the `on_commit` hooks."""
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def roll_back(self) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            with suppress(Error):
                atomic.__exit__(RuntimeError, RuntimeError("rolled back"), None)

    def retold(self, error: Exception) -> Exception:
        """Return Django's own error."""
        try:
            with self.wrapper.wrap_database_errors:
                raise error  # noqa: TRY301 - the context manager converts it
        except Exception as converted:  # noqa: BLE001
            return converted

    def flush(self) -> None:
        """Raise Django's error if Django has marked the transaction to be rolled back."""
        self.wrapper.validate_no_broken_transaction()

    def execute_outside(self, sql: str) -> None:
        """Execute a SET statement, which begins no transaction."""
        with suppress(Error):  # a broken connection has no settings to restore
            self.target.execute(sql)

    def close(self) -> None:
        """Restore the isolation level."""
        raw, before, self._isolation = self.raw, self._isolation, None
        if raw is not None and before is not None:
            with suppress(Exception):  # the connection is broken; each driver has its own error for that
                raw.isolation_level = before[0]

    def _isolate(self, isolation: str) -> None:
        raw = self.raw
        if self._isolation is None:
            self._isolation = (raw.isolation_level,)
        if type(raw).__module__.startswith("psycopg2"):
            raw.isolation_level = _OF_PSYCOPG2[isolation]
        else:
            from psycopg import IsolationLevel  # noqa: PLC0415 - psycopg is installed: the connection is from it

            raw.isolation_level = IsolationLevel[isolation.replace(" ", "_")]

"""Django's connections. Inside its own `atomic` Django refuses `commit()` and `rollback()` by itself."""

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

    ends_with_commit = False  # hooks of `on_commit` come after it

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
        """What the settings say of it, but the password."""
        settings = self.wrapper.settings_dict
        return ("django", self.wrapper.alias, *(str(settings.get(name)) for name in ("NAME", "HOST", "PORT", "USER")))

    @property
    def is_mariadb(self) -> bool:
        """As Django knows it."""
        return bool(getattr(self.wrapper, "mysql_is_mariadb", False))

    def open(self) -> None:
        """Connect; refuse one that is in a transaction, as in ``ATOMIC_REQUESTS`` or a ``TestCase``."""
        if isinstance(self.given, BaseDatabaseWrapper) and self.given is not self.wrapper:
            raise RuntimeError(
                f"this is not the connection that Django uses as {self.wrapper.alias!r} in this thread; hand over "
                f"django.db.connections[{self.wrapper.alias!r}]"
            )
        if self.wrapper.in_atomic_block:
            raise in_a_transaction(self.given)
        if not self.wrapper.get_autocommit():
            raise RuntimeError("this connection of Django's has autocommit off; a fenced transaction needs it on")
        self.wrapper.ensure_connection()

    def begin(self, isolation: str) -> None:
        """Begin an atomic block with this isolation."""
        if self.wrapper.vendor == "postgresql":
            self._isolate(isolation.upper())
        self._atomic = transaction.atomic(using=self.wrapper.alias)
        self._atomic.__enter__()
        if self.wrapper.vendor == "mysql":  # of this transaction alone, which has not begun on the server yet
            self.target.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}")
        elif self.wrapper.vendor == "sqlite":  # what follows somebody's own COMMIT can then still be rolled back
            self.raw.isolation_level = "DEFERRED"  # Django sets it itself when the block ends

    def commit(self) -> None:
        """Commit; hooks of `on_commit` are called."""
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def roll_back(self) -> None:
        """Roll back."""
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            with suppress(Error):
                atomic.__exit__(RuntimeError, RuntimeError("rolled back"), None)

    def retold(self, error: Exception) -> Exception:
        """Return Django's own error."""
        try:
            with self.wrapper.wrap_database_errors:
                raise error  # noqa: TRY301 - that is what it is told by
        except Exception as told:  # noqa: BLE001
            return told

    def flush(self) -> None:
        """Nothing waits to be sent; but what Django has marked to be rolled back is not committed, and it says so."""
        self.wrapper.validate_no_broken_transaction()

    def execute_outside(self, sql: str) -> None:
        """Set something: that begins no transaction."""
        with suppress(Error):  # a connection that is broken keeps nothing
            self.target.execute(sql)

    def close(self) -> None:
        """Put the isolation back."""
        raw, before, self._isolation = self.raw, self._isolation, None
        if raw is not None and before is not None:
            with suppress(Exception):  # it is broken, in whichever way its driver calls that
                raw.isolation_level = before[0]

    def _isolate(self, isolation: str) -> None:
        raw = self.raw
        if self._isolation is None:
            self._isolation = (raw.isolation_level,)
        if type(raw).__module__.startswith("psycopg2"):
            raw.isolation_level = _OF_PSYCOPG2[isolation]
        else:
            from psycopg import IsolationLevel  # noqa: PLC0415 - it is there: the connection is of it

            raw.isolation_level = IsolationLevel[isolation.replace(" ", "_")]

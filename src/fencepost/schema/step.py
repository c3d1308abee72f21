"""The operations of migration steps: tables and indexes with a prefix, equivalent on all databases.

MySQL and MariaDB commit after every statement of this kind, so a step may have been interrupted halfway. An operator
may also have dropped one of several tables. So each operation first checks whether its work is already done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations

from fencepost.schema.checks import BEGUN, MARK, NOT_OURS
from fencepost.schema.columns import MYSQL_KINDS, TABLE_OPTIONS

_SOON_S = 0.5  # how long all that use the table wait behind a change that waits itself
Aside = Callable[[], AbstractContextManager[sa.Connection]]
"""Commits the transaction of the steps, and begins another one behind the block, under the same locks."""


class MigrationStep:
    """One step, which runs on one database or is written as a script for it (`--sql`)."""

    def __init__(self, operations: Operations, *, prefix: str, schema: str | None, aside: Aside | None = None) -> None:
        """Run `operations`. `aside` leaves the transaction for a while, where that is possible."""
        self._operations = operations
        self._context = operations.get_context()
        self._prefix = prefix
        self._schema = schema
        self._is_mysql = self._context.dialect.name in MYSQL_KINDS
        self._aside = aside
        self._new: set[str] = set()  # tables that were created in the same transaction

    def create_table(self, name: str, *columns: sa.Column[Any], **options: Any) -> None:
        """Create a table; its name gets the prefix."""
        full = f"{self._prefix}{name}"
        if self._looks() and self._inspector().has_table(full, schema=self._schema):
            return
        self._operations.create_table(full, *columns, schema=self._schema, **TABLE_OPTIONS, **options)
        self._new.add(full)

    def add_column(self, table: str, column: sa.Column[Any]) -> None:
        """Add a column after the others of a table. It must be nullable: older versions insert rows without it."""
        on = f"{self._prefix}{table}"
        if self._looks() and any(
            each["name"] == column.name for each in self._inspector().get_columns(on, schema=self._schema)
        ):
            return
        with self._soon():
            self._operations.add_column(on, column, schema=self._schema)

    def drop_column(self, table: str, column: str) -> None:
        """Remove a column. Only in a step that contracts: its oldest reader must work without the column."""
        on = f"{self._prefix}{table}"
        if self._looks() and all(
            each["name"] != column for each in self._inspector().get_columns(on, schema=self._schema)
        ):
            return
        with self._soon():
            self._operations.drop_column(on, column, schema=self._schema)

    @contextmanager
    def _soon(self) -> Iterator[None]:
        """On MariaDB, give up a change that takes no time by itself, if it waits for others: all wait behind it.

        Its own limit for that is a second at least. Not for indexes, which take long without keeping anyone.
        """
        dialect: Any = self._context.dialect
        if not self._looks() or not getattr(dialect, "is_mariadb", False):
            yield
            return
        connection = self._operations.get_bind()
        connection.execute(sa.text(f"SET SESSION max_statement_time = {_SOON_S}"))
        yield  # after an error, the connection is closed
        connection.execute(sa.text("SET SESSION max_statement_time = 0"))

    def create_seal(self, name: str) -> None:
        """On MySQL and MariaDB, create a table of one row with a creation time that a dump does not preserve.

        On MariaDB it is the insertion time of the row, recorded by system versioning; on MySQL it is CREATE_TIME in the
        data dictionary. Both are the same on a replica; restoring a dump creates new ones.
        """
        if not self._is_mysql:
            return
        self.create_table(name, sa.Column("only", sa.Integer(), primary_key=True, autoincrement=False))
        if not self._looks() or not self._is_versioned(name):
            versioned = "/*M!100304 , ADD SYSTEM VERSIONING */"
            self._operations.execute(f"ALTER TABLE {self.name(name)} COMMENT 'shows when it was made' {versioned}")
        self.insert(name, {"only": 1})

    def _is_versioned(self, name: str) -> bool:
        kind = sa.text(
            "SELECT TABLE_TYPE FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :name"
        )
        found = self._operations.get_bind().scalar(kind, {"name": f"{self._prefix}{name}"})
        return str(found).upper() == "SYSTEM VERSIONED"

    def create_index(
        self,
        table: str,
        name: str,
        *columns: Any,
        where: str = "",
        whole: tuple[str, ...] | None = (),
        unique: bool = False,
    ) -> None:
        """Create an index, on PostgreSQL and SQLite a partial one with the condition `where`.

        MySQL has no partial indexes: there the columns in `whole` come first; with None, no index is created. On a
        table that others use meanwhile, it is built beside them: see `_build`.
        """
        if self._is_mysql and whole is None:
            return
        full, on = f"{self._prefix}{table}_{name}", f"{self._prefix}{table}"
        if self._looks() and self._has_index(on, full):
            return
        parts = [*((whole or ()) if self._is_mysql else ()), *columns]
        partial: dict[str, Any] = {f"{kind}_where": sa.text(where) for kind in ("postgresql", "sqlite") if where}
        self._build(full, on, parts, unique=unique, **partial)

    def _build(self, full: str, on: str, parts: list[Any], **options: Any) -> None:
        """Create an index. On PostgreSQL, the nodes of a table that exists already go on writing to it meanwhile.

        That takes place outside of a transaction, so what the step did before is committed first. If it is interrupted,
        it leaves an index that is not valid, which the next attempt removes. InnoDB lets others write by itself.
        """
        schema = self._schema
        if self._aside is None or self._context.dialect.name != "postgresql" or on in self._new:
            self._operations.create_index(full, on, parts, schema=schema, **options)
            return
        with self._aside() as connection:
            connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {self._named(full)}")
            connection.exec_driver_sql("SET lock_timeout = 0")  # it keeps nobody from writing, however long it waits
            self._operations.create_index(full, on, parts, schema=schema, postgresql_concurrently=True, **options)
        self._new.clear()  # they are committed

    def _has_index(self, on: str, full: str) -> bool:
        if not any(index["name"] == full for index in self._inspector().get_indexes(on, schema=self._schema)):
            return False
        return self._context.dialect.name != "postgresql" or self._is_valid(full)

    def _is_valid(self, index: str) -> bool:
        valid = sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
        return bool(self._operations.get_bind().scalar(valid, {"name": self._named(index)}))

    def _named(self, full: str) -> str:
        return f"{self._schema}.{full}" if self._schema else full

    def name(self, table: str) -> str:
        """Return the full name of a table; prefix and schema are checked identifiers."""
        return self._named(f"{self._prefix}{table}")

    def create_check(self, name: str, parameters: str, row: str) -> None:
        """On PostgreSQL, create a procedure that locks `row` if the transaction was begun by a fence, and fails if not.

        `row` is a table, followed by WHERE and the condition.
        """
        if self._context.dialect.name == "postgresql":
            # A plan that was made while the table was empty would otherwise read the whole table later.
            self._operations.execute(f"""CREATE OR REPLACE PROCEDURE {self.name(name)}({parameters})
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM {row} FOR SHARE;
    IF NOT FOUND OR current_setting('{MARK}', true) IS DISTINCT FROM '{BEGUN}' THEN
        RAISE EXCEPTION 'the fence is not ours' USING ERRCODE = '{NOT_OURS}';
    END IF;
END $$""")

    def execute(self, statement: str) -> None:
        """Execute a statement, which must be idempotent."""
        self._operations.execute(statement)

    def insert(self, table: str, values: dict[str, Any]) -> None:
        """Insert a row, unless there is one with the same value in the first column."""
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in values]
        into = sa.table(f"{self._prefix}{table}", *columns, schema=self._schema)
        there = sa.select(sa.literal(1)).select_from(into).where(columns[0] == next(iter(values.values())))
        if self._looks() and self._operations.get_bind().scalar(there):
            return
        literal = {name: self._operations.inline_literal(value) for name, value in values.items()}
        self._operations.execute(sa.insert(into).values(literal))

    def _looks(self) -> bool:
        return not self._context.as_sql

    def _inspector(self) -> sa.Inspector:
        return sa.inspect(self._operations.get_bind())

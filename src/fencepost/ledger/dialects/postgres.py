"""PostgreSQL through psycopg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.psycopg import dialect as postgres_words
from sqlalchemy.sql import ClauseElement

from fencepost.ledger.dialects.dialect import ORIGIN_KEY, Cursor, Dialect, Parameters, Row
from fencepost.schema.sequences import advice
from fencepost.sql import postgres, psycopg_link
from fencepost.sql.psycopg_link import BoundedPsycopg
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, first_line

_FEW = 3  # rows; fewer are inserted one by one, and wait for a reply each
_GRACE_S = 0.5  # lets the server's own timeout end a statement first: then the connection stays usable
_TYPES = {"int": "bigint", "float": "double precision", "text": "text"}
# A cached plan may date from a time when a table was empty and a sequential scan was cheapest. And no statement of the
# ledger is worth JIT compilation, which PostgreSQL before 18 would use because a disabled scan type raises the costs.
_SESSION_SETTINGS = (("enable_seqscan", "off"), ("jit", "off"), postgres.READ_COMMITTED)
_EVIDENCE = """
SELECT {},
  (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass(%s)::oid
"""
_SEQUENCE = """
SELECT s.name, has_sequence_privilege(s.name, 'SELECT') FROM (SELECT pg_get_serial_sequence(%s, 'id') AS name) s
"""


class PostgresDialect(Dialect):
    """A ledger in a PostgreSQL database."""

    name = "postgresql"
    has_hints = True
    has_procedures = True
    has_sequences = True
    errors = psycopg_link.ERRORS
    words = postgres_words()  # type: ignore[no-untyped-call]
    mark = "%s"
    spelling = SPELLING["postgresql"]
    now_sql = postgres.NOW_US
    _may_see_server: bool | None = None
    _sequence: Any = None  # the name of the sequence of run ids, and whether this user may read it

    @property
    def product(self) -> str:
        return postgres.product(self.url.store)

    def dial(self, timeout_s: float | None = None) -> BoundedPsycopg:
        """Connect, check what the other end is, and set the server's timeouts."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        connection = psycopg_link.dial(self.url.store, limit_s, clock=self.runtime.monotonic)
        connection.statement_s = limit_s + _GRACE_S
        psycopg_link.greet(
            connection, postgres.limit_settings(limit_s, min(limit_s, self.silence_s)), _SESSION_SETTINGS
        )
        return connection

    def execute(self, cursor: Cursor, statement: ClauseElement) -> Cursor:
        """Execute a statement built with SQLAlchemy, planned for its values.

        Prepared, it would get one plan for all values: of a job with a million runs, and of one with ten.
        """
        connection: Any = getattr(cursor, "connection", None)
        threshold = getattr(connection, "prepare_threshold", None)
        if threshold is None:
            return super().execute(cursor, statement)
        connection.prepare_threshold = None
        try:
            return super().execute(cursor, statement)
        finally:
            connection.prepare_threshold = threshold

    def begin(self, connection: Any, cursor: Cursor) -> None:
        cursor.execute(connection.begin_sql)

    def own_refusal(self, trouble: Trouble, error: Exception) -> str | None:
        """Name the missing privileges, the way to repair a sequence, or the reason why the connection is refused."""
        if trouble is Trouble.FORBIDDEN:
            return (
                f"{self.product}: {first_line(error)}. Grant SELECT, INSERT, UPDATE, DELETE on the tables, USAGE on "
                "their schema and EXECUTE on the procedures; to create them, run as a user that may CREATE there: "
                "fencepost migrate"
            )
        if trouble is Trouble.DUPLICATE and (table := psycopg_link.table_whose_ids_repeat(error)) is not None:
            return (
                f"{self.product}: {first_line(error)}. If the sequence of its ids is behind, as after a restore of "
                f"data alone: restart a node, which advances it, or {advice(table)}"
            )
        if trouble in (Trouble.NO_ENTRY, Trouble.NO_DATABASE):
            return f"{self.product} refuses the connection: {str(error).strip().splitlines()[-1]}"
        return None

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Use jsonb_array_elements."""
        chosen = ", ".join(
            f"(e.value->>{place})::{_TYPES[kind]} AS {name}" for place, (name, kind) in enumerate(columns.items())
        )
        source = "jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS e(value, n)"
        return f"(SELECT {chosen} FROM {source} ORDER BY n) AS {alias}"  # noqa: S608 - fixed names only

    def objection(self, cursor: Cursor) -> str | None:
        """Check the version, whether the server is a primary, and its encoding."""
        cursor.execute(postgres.SERVER_SQL)
        return postgres.ServerFacts(*cursor.fetchone()).objection(self.product, who_needs_it="the ledger needs")

    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        return self.execute(cursor, insert(table).values(dict(values)).on_conflict_do_nothing()).rowcount == 1

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        cursor.execute(f"{sql}{self.unless_there('run', *ORIGIN_KEY)} RETURNING id", parameters)
        row = cursor.fetchone()
        return None if row is None else row[0]

    def insert_all_new(self, cursor: Any, sql: str, rows: Sequence[Sequence[Any]]) -> list[int | None]:
        """Insert the rows one by one in a pipeline, without waiting for each reply."""
        if len(rows) < _FEW:
            return super().insert_all_new(cursor, sql, rows)
        cursor.executemany(f"{sql}{self.unless_there('run', *ORIGIN_KEY)} RETURNING id", rows, returning=True)
        ids: list[int | None] = []
        while True:
            row = cursor.fetchone()
            ids.append(None if row is None else row[0])
            if not cursor.nextset():
                return ids

    def insert_absent(self, cursor: Cursor, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Pass each column as one array: a parameter for each value takes five times as long. No value may be None."""
        is_bytes = [isinstance(value, bytes) for value in rows[0]]
        chosen = ", ".join(f"decode(c{at}, 'hex')" if each else f"c{at}" for at, each in enumerate(is_bytes))
        arrays = ", ".join("%s::text[]" if each else "%s::bigint[]" for each in is_bytes)
        names = ", ".join(f"c{at}" for at in range(len(columns)))
        into = f"INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM unnest({arrays}) AS x({names})"  # noqa: S608
        values = zip(*rows, strict=True)
        texts = [
            map(bytes.hex, each) if hexed else map(str, each) for each, hexed in zip(values, is_bytes, strict=True)
        ]
        cursor.execute(self.spelling.insert_if_absent(into), ['{"' + '","'.join(each) + '"}' for each in texts])

    def evidence(self, cursor: Cursor) -> dict[str, str]:
        """Return the cluster's system identifier and the oids of the database and of the identity table.

        A promoted replica has the same values. The identifier may be hidden from this user, or by a cloud provider.
        """
        if self._may_see_server is None:
            cursor.execute("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
            self._may_see_server = bool(cursor.fetchone()[0])
        # Not a condition in SQL: PostgreSQL checks the privilege on a function even if it is not called.
        server = "(SELECT system_identifier FROM pg_control_system())" if self._may_see_server else "NULL"
        cursor.execute(_EVIDENCE.format(server), (self.table("identity"),))
        parts = zip(("server", "database", "table"), cursor.fetchone(), strict=True)
        return {name: str(value) for name, value in parts if value is not None}

    def top_id(self, cursor: Cursor) -> int | None:
        """Read the sequence, if this user may."""
        if self._sequence is None:
            cursor.execute(_SEQUENCE, (self.table("run"),))
            self._sequence = cursor.fetchone()
        name, may_ask = self._sequence
        if not may_ask:
            return None
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {name}")  # noqa: S608 - quoted by the server
        return int(cursor.fetchone()[0])

    def raise_ids(self, cursor: Cursor, to: int) -> None:
        """Advance the sequence."""
        cursor.execute(_SEQUENCE, (self.table("run"),))
        name, _ = cursor.fetchone()
        cursor.execute(f"SELECT setval(%s, greatest(%s, last_value)) FROM {name}", (name, to))  # noqa: S608 - as above

    def big(self, sql: str) -> str:
        """Add the type: the parameter may be NULL, and integers have three sizes."""
        return f"{sql}::bigint"

    def unless_there(self, table: str, key: str, where: str = "") -> str:
        """Return ON CONFLICT for this key only."""
        return f" ON CONFLICT ({key}){where and ' WHERE '}{where} DO NOTHING"

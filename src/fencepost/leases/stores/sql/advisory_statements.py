"""The SQL of the advisory store, in addition to that of the tables."""

# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters

from __future__ import annotations

from dataclasses import dataclass

from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.postgres_backend import WORDS
from fencepost.leases.stores.sql.statements import Statements

_OURS = "locktype = 'advisory' AND objsubid = 1 AND granted"
_HERE = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"

UNLOCK = "SELECT pg_advisory_unlock(%s)"
UNLOCK_ALL = "SELECT pg_advisory_unlock_all()"
LIMITS = ("idle_session_timeout", "lock_timeout")
RESET_LIMITS = "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN (%s, %s)"
LOCKED = f"SELECT classid::bigint, objid::bigint FROM pg_locks WHERE {_OURS} AND {_HERE}"


@dataclass(frozen=True, slots=True)
class AdvisoryStatements:
    """Statements that change the lock and the table row together."""

    lock: str
    unlock: str
    renew: str


def advisory_statements(sql: Statements, tables: LeaseTables) -> AdvisoryStatements:
    """Build them around the statements of the tables.

    `lock`: the function is called exactly once (a materialized WITH), because session locks are counted, and a second
    call would need a second unlock. `unlock` frees the lock a moment before its transaction commits; the next holder
    finds the row locked, and waits for that moment.
    """
    take = sql.take.removesuffix(WORDS.returning)
    past = "name, holder, token, acquired_at"
    return AdvisoryStatements(
        lock="WITH lock AS MATERIALIZED (SELECT pg_try_advisory_lock(%s) AS got), "
        f"taken AS ({take} AND (SELECT got FROM lock) RETURNING token) "
        "SELECT (SELECT got FROM lock), (SELECT token FROM taken)",
        unlock=f"WITH ended AS ({sql.end} RETURNING {past}), "
        f"past AS (INSERT INTO {tables.history} ({past}, ended_at, why) SELECT {past}, {WORDS.wall}, %s FROM ended) "
        "SELECT pg_advisory_unlock(%s) FROM ended",
        renew=f"{sql.renew}, (SELECT count(*) FROM pg_locks WHERE {_OURS} AND pid = pg_backend_pid())",
    )

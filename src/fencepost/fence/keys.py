"""The rows of idempotency keys: inserted, read and removed in the caller's transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.fence.effect_statements import EffectStatements

TABLE = "idempotency_key"


class NewKey(NamedTuple):
    """The row to insert for a piece of work."""

    key: str
    expires_us: int | None = None
    payload_hash: str | None = None


class KeptResult(NamedTuple):
    """The existing row of a key. `result` is JSON; None while the work is running, or if it has no result to keep."""

    payload_hash: str | None
    result: str | None
    job: str | None
    run_id: int | None


def take(landing: EffectStatements, wanted: NewKey) -> bool:
    """Insert the row, or take over an expired one; False if there is a valid one.

    Waits for another transaction that takes the same key. False is returned only if a valid row was seen: between any
    two of our statements, pruning may remove an expired one. On MySQL the row is read before each step, because an
    INSERT that finds a row there takes a shared lock, and two transactions with a shared lock would deadlock.
    """
    there = _look(landing, wanted.key, "") if landing.kind == "mysql" else None
    while there != "valid":
        step = _insert if there is None else _take_expired
        if step(landing, wanted):
            return True
        there = _look(landing, wanted.key, landing.past_snapshot)  # on MySQL, see newer rows than the snapshot's
    return False


def kept(landing: EffectStatements, key: str) -> KeptResult | None:
    """Return the row of a key; None if there is none or it has expired."""
    valid = f"(expires_at IS NULL OR expires_at > {landing.now})"
    query = f"SELECT payload_hash, result, job, run_id FROM {landing.table(TABLE)} WHERE {landing.key} = %s AND {valid}"  # noqa: S608 - ours
    rows = landing.execute(query + landing.past_snapshot, [key]).rows  # on MySQL, a locking read sees newer rows
    return KeptResult(*rows[0]) if rows else None


def keep_result(landing: EffectStatements, key: str, result: str) -> None:
    """Store the result in the row of the key."""
    landing.execute(f"UPDATE {landing.table(TABLE)} SET result = %s WHERE {landing.key} = %s", [result, key])  # noqa: S608 - ours


def give_back(landing: EffectStatements, key: str) -> None:
    """Delete the key, because its work failed. If the transaction can only be rolled back, that happens anyway.

    If the failure ended the transaction on the server, as a deadlock does on MySQL, the key is gone already. A row that
    exists then belongs to another transaction and has its result, so it is not deleted.
    """
    ours = f"{landing.key} = %s AND result IS NULL"
    with suppress(Exception):
        landing.execute(f"DELETE FROM {landing.table(TABLE)} WHERE {ours}", [key])  # noqa: S608 - ours


def _insert(landing: EffectStatements, wanted: NewKey) -> bool:
    return landing.insert(TABLE, {landing.key: ("%s", [wanted.key]), **_values(landing, wanted)})


def _look(landing: EffectStatements, key: str, lock: str) -> str | None:
    is_valid = f"expires_at IS NULL OR expires_at > {landing.now}"
    query = f"SELECT {is_valid} FROM {landing.table(TABLE)} WHERE {landing.key} = %s{lock}"  # noqa: S608 - ours
    rows = landing.execute(query, [key]).rows
    return ("valid" if rows[0][0] else "expired") if rows else None


def _take_expired(landing: EffectStatements, wanted: NewKey) -> bool:
    values = {"result": ("NULL", []), **_values(landing, wanted)}
    sets = ", ".join(f"{column} = {sql}" for column, (sql, _) in values.items())
    statement = f"UPDATE {landing.table(TABLE)} SET {sets} WHERE {landing.key} = %s AND expires_at <= {landing.now}"  # noqa: S608 - ours
    return (
        landing.execute(statement, [*(each for _, several in values.values() for each in several), wanted.key]).count
        == 1
    )


def _values(landing: EffectStatements, wanted: NewKey) -> dict[str, tuple[str, list[Any]]]:
    """Return the SQL and parameters of every column except key and result."""
    writer = landing.writer
    expires = "NULL" if wanted.expires_us is None else f"{landing.now} + {wanted.expires_us:d}"
    return {
        "payload_hash": ("%s", [wanted.payload_hash]),
        "job": ("%s", [writer.job]),
        "run_id": ("%s", [writer.run_id]),
        "token": ("%s", [writer.token]),
        "created_at": (landing.now, []),
        "expires_at": (expires, []),
    }

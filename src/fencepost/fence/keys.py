"""The rows of idempotency keys: taken, kept, and given back, in the caller's transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.fence.effect_statements import EffectStatements

TABLE = "idempotency_key"


class NewKey(NamedTuple):
    """The row that is to stand for what is done."""

    key: str
    expires_us: int | None = None
    payload_hash: str | None = None


class KeptResult(NamedTuple):
    """What stands under a key already. `result` is JSON; None while the work is under way, or has none to keep."""

    payload_hash: str | None
    result: str | None
    job: str | None
    run_id: int | None


def take(landing: EffectStatements, wanted: NewKey) -> bool:
    """Make the row ours; False if there is one whose time is not over. Waits for whoever takes the same key now.

    False is only said of a row that was seen: one whose time is over may be removed by whoever prunes between any two
    of our statements, and then there is none. On MySQL it is looked before each step: there an INSERT that finds a row
    shares a lock on it, which no two could then raise.
    """
    there = _look(landing, wanted.key, "") if landing.kind == "mysql" else None
    while there != "valid":
        step = _insert if there is None else _take_expired
        if step(landing, wanted):
            return True
        there = _look(landing, wanted.key, landing.past_snapshot)  # on MySQL past an old snapshot
    return False


def kept(landing: EffectStatements, key: str) -> KeptResult | None:
    """Return what stands under a key; None if nothing does, or its time is over."""
    valid = f"(expires_at IS NULL OR expires_at > {landing.now})"
    query = f"SELECT payload_hash, result, job, run_id FROM {landing.table(TABLE)} WHERE {landing.key} = %s AND {valid}"  # noqa: S608 - ours
    rows = landing.execute(query + landing.past_snapshot, [key]).rows  # locked on MySQL, to see past an old snapshot
    return KeptResult(*rows[0]) if rows else None


def keep_result(landing: EffectStatements, key: str, result: str) -> None:
    """Put the result beside the key."""
    landing.execute(f"UPDATE {landing.table(TABLE)} SET result = %s WHERE {landing.key} = %s", [result, key])  # noqa: S608 - ours


def give_back(landing: EffectStatements, key: str) -> None:
    """Forget the key again: its work failed. In a transaction that can only be rolled back, that happens anyway.

    A transaction that the server ended with that failure, as MySQL does with a deadlock, has lost the key already: what
    stands there then is somebody else's, and has its result.
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
    """Return every column but key and result, with its SQL and parameters."""
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

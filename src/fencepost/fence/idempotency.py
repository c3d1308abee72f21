"""Idempotency keys: a unique key that commits together with its effect, so that the effect happens once.

::

    with run.transaction() as tx:
        if run.once(f"settle:{order}", tx):      # True the first time
            tx.execute(...)

    @idempotent(key=lambda order, day: work_key("settle", order, day), expires="90d")
    def settle(tx, order, day):                  # runs once per key; later calls return the stored result
        return {"amount": ...}

**Promises.** Of all transactions that use the same key, one that commits gets True (or runs the function). The others
wait until it commits or rolls back. If it rolls back, key and effect are both undone. An expired key counts as absent.
The tables are in the same database as the effect, so the same transaction commits both.

**Not promised.** Anything for effects outside that database. That there are no errors: under *repeatable read* and
*serializable*, a key that another transaction has committed since ours began causes a serialization failure, and on
MySQL several transactions that wait for one that rolls back may deadlock. Both are worth a retry, which
`run.in_transaction` does. On SQLite a transaction that waits longer than the connection's timeout fails with
"database is locked".
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fencepost.core.duration import Duration, seconds
from fencepost.core.identity import fitted
from fencepost.core.keyed import note_key
from fencepost.errors import IdempotencyConflict, InvalidDuration, InvalidName
from fencepost.fence.arguments import KeyedSignature, json_text
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.keys import KeptResult, NewKey, give_back, keep_result, kept, take
from fencepost.fence.writer import Writer, current_writer

P = ParamSpec("P")
R = TypeVar("R")


def once(
    key: str, tx: Any, *, expires: Duration | None = None, prefix: str | None = None, schema: str | None = None
) -> bool:
    """Return True if `key` is new, and store it. If `tx` commits, later calls with this key return False.

    Args:
        key: names the work and what it is done for; see `work_key`.
        tx: the transaction of the effect: a connection of psycopg, PyMySQL or sqlite3, a connection or session of
            SQLAlchemy, or Django's connection.
        expires: after this time the key counts as absent; by default never.
        prefix: the prefix of the effect tables there; by default that of the current run's ledger.
        schema: the schema of these tables, on PostgreSQL; the same default.
    """
    return once_by(current_writer(prefix, schema), key, tx, expires=expires)


def once_by(writer: Writer, key: str, tx: Any, *, expires: Duration | None) -> bool:
    """Do the same as `once`, for the given writer."""
    note_key(tx)
    return take(EffectStatements(tx, writer), NewKey(_checked(key), _expiry_us(expires)))


def idempotent(
    key: str | Callable[..., str],
    *,
    expires: Duration | None = None,
    name: str | None = None,
    prefix: str | None = None,
    schema: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run a function once per key. Later calls with the same key return the stored result.

    The function's first parameter is the transaction, in which key, effects and result commit together. The result goes
    through JSON, also in the first call: a tuple comes back as a list. Using the same key with other arguments, or for
    another function, raises `IdempotencyConflict`.

    Args:
        key: a string with the function's arguments in braces, ``"settle:{order}:{day}"``, or a function of the same
            arguments (without the transaction) that returns the key; see `work_key`.
        expires: after this time the key counts as absent; by default never.
        name: identifies the function among those that use the same key, and stays valid when the function is renamed;
            by default the function's name.
        prefix: the prefix of the effect tables there; by default that of the current run's ledger.
        schema: the schema of these tables, on PostgreSQL; the same default.
    """
    expires_us = _expiry_us(expires)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = KeyedSignature(function, key, name=name)

        @functools.wraps(function)
        def perform(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(args, kwargs)
            wanted = NewKey(_checked(signature.key(bound)), expires_us, signature.fingerprint(bound))
            landing = EffectStatements(bound.tx, current_writer(prefix, schema))
            note_key(bound.tx)
            result: R = json.loads(_performed(landing, wanted, signature.name, lambda: function(*args, **kwargs)))
            return result

        return perform

    return decorate


def _performed(landing: EffectStatements, wanted: NewKey, name: str, work: Callable[[], Any]) -> str:
    """Do the work and return its result as JSON, or return the stored result."""
    while not take(landing, wanted):
        found = kept(landing, wanted.key)
        if found is not None:  # otherwise it has just expired or been pruned
            return _replayed(found, wanted, name)
    try:
        result = json_text(work(), name=name)
        keep_result(landing, wanted.key, result)
    except BaseException:
        give_back(landing, wanted.key)  # in case the caller commits anyway: the work was not done
        raise
    return result


def _replayed(found: KeptResult, wanted: NewKey, name: str) -> str:
    if found.payload_hash != wanted.payload_hash:
        raise IdempotencyConflict(wanted.key, name, job=found.job, run_id=found.run_id)
    if found.result is None:
        raise RuntimeError(f"{name} calls itself with the same key {wanted.key!r} in one transaction")
    return found.result


def _checked(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidName(f"an idempotency key must be a non-empty string, not {key!r}; see work_key")
    return fitted(key)


def _expiry_us(expires: Duration | None) -> int | None:
    if expires is None:
        return None
    expiry_us = round(seconds(expires, what="expires") * 1_000_000)
    if expiry_us <= 0:
        raise InvalidDuration("expires must be greater than zero; for a key that never expires, use expires=None")
    return expiry_us

"""Doing a thing once: a unique key that commits together with the effect.

::

    with run.transaction() as tx:
        if run.once(f"settle:{order}", tx):      # True the first time
            tx.execute(...)

    @idempotent(key=lambda order, day: work_key("settle", order, day), expires="90d")
    def settle(tx, order, day):                  # runs once per key; called again, returns what it returned then
        return {"amount": ...}

**Promises.** Of all transactions that offer one key, one that commits gets True (or runs the function); the others wait
until it commits or rolls back, and then know. If it rolls back, key and effect are gone together. A key whose time is
over counts as absent. The tables are in the same database as the effect: the same transaction commits both.

**Not promised.** Anything for effects outside of that database. That nobody gets an error: under *repeatable read* and
*serializable* a key that another transaction has committed since ours began is a serialization failure, and on MySQL
many who wait for one that rolls back may end in a deadlock. Both say "try again", which `run.in_transaction` does. On
SQLite one who waits longer than the connection's timeout gets "database is locked".
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
    """Return True if nothing was done under `key` before; from then on it was, if `tx` commits.

    Args:
        key: what is done, and for what; see `work_key`.
        tx: the transaction of the effect: a connection of psycopg, PyMySQL or sqlite3, a connection or session of
            SQLAlchemy, or Django's connection.
        expires: after this time the key counts as absent; by default never.
        prefix: of the tables of effects there; by default as in the ledger of the run under way.
        schema: the same, on PostgreSQL.
    """
    return once_by(current_writer(prefix, schema), key, tx, expires=expires)


def once_by(writer: Writer, key: str, tx: Any, *, expires: Duration | None) -> bool:
    """Do `once` on behalf of a writer."""
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
    """Let a function do its work once per key, and return what it returned then when it is called again.

    The function's first parameter is the transaction, in which key, effects and result commit together. The result is
    returned as JSON keeps it, the first time too: a tuple comes back as a list. The same key with other arguments, or
    for another function, is an `IdempotencyConflict`.

    Args:
        key: a text with the function's arguments in braces, ``"settle:{order}:{day}"``, or a function of the same
            arguments (without the transaction) that returns the key; see `work_key`.
        expires: after this time the key counts as absent; by default never.
        name: tells the function from others under the same key, also after it was renamed; by default its own name.
        prefix: of the tables of effects there; by default as in the ledger of the run under way.
        schema: the same, on PostgreSQL.
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
    """Return the result, as JSON: of the work, or as it was kept."""
    while not take(landing, wanted):
        found = kept(landing, wanted.key)
        if found is not None:  # else its time was just over, or it was just pruned
            return _replayed(found, wanted, name)
    try:
        result = json_text(work(), name=name)
        keep_result(landing, wanted.key, result)
    except BaseException:
        give_back(landing, wanted.key)  # or whoever commits all the same would say that it was done
        raise
    return result


def _replayed(found: KeptResult, wanted: NewKey, name: str) -> str:
    if found.payload_hash != wanted.payload_hash:
        raise IdempotencyConflict(wanted.key, name, job=found.job, run_id=found.run_id)
    if found.result is None:
        raise RuntimeError(f"{name} with the key {wanted.key!r} is under way in this very transaction: it calls itself")
    return found.result


def _checked(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidName(f"an idempotency key is a text of at least one character, not {key!r}; see work_key")
    return fitted(key)


def _expiry_us(expires: Duration | None) -> int | None:
    if expires is None:
        return None
    expiry_us = round(seconds(expires, what="expires") * 1_000_000)
    if expiry_us <= 0:
        raise InvalidDuration("expires must be longer than nothing; a key that never expires has expires=None")
    return expiry_us

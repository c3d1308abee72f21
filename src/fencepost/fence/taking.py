"""Shares the rows of one table among several readers. Each takes rows that no other reader has, and locks them.

::

    with run.transaction() as tx:
        for (order_id,) in run.take(tx, "SELECT id FROM orders WHERE settled IS NULL ORDER BY id", limit=100):
            ...
            tx.execute(text("UPDATE orders SET settled = true WHERE id = :id"), {"id": order_id})

``LIMIT`` and ``FOR UPDATE SKIP LOCKED`` are added to the query (PostgreSQL, MySQL 8 or later, MariaDB 10.6 or later).

**Promises.** Readers whose transactions are open at the same time get different rows. The rows are free again when the
reader's transaction ends. If the reader changes them in that transaction so that the query no longer finds them, each
row is handled once. If the transaction is rolled back, another reader takes the rows.

**Not promised.** That an empty result means that nothing is left: other readers may have rows locked, and may roll
back. To be sure, query again after they have ended. SQLite has one writer at a time, so no row is ever skipped.

**Refused**, with an error: a query that has its own limit or lock, a query without ORDER BY, and a query whose results
are not single rows (DISTINCT, GROUP BY, UNION). Without an order the same rows could be left over again and again, and
readers that lock in the same order do not deadlock. Select only from the table whose rows are shared. The rows of
joined tables would be locked too, and all rows that join with a locked one would be skipped. Put conditions on other
tables into EXISTS.

**Isolation.** On PostgreSQL under repeatable read or serializable, the transaction fails if another reader has changed
rows since it began: `TransactionConflict`, and nothing was written. `run.in_transaction` then retries. It is better to
declare a job that shares rows with ``isolation="read committed"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.core.keyed import note_key
from fencepost.errors import ConfigurationError, TransactionConflict
from fencepost.fence.autocommit import commits_at_once
from fencepost.fence.sql_words import ends_in_comment, outer_words
from fencepost.fence.target import Target, connection_of, described, family_of, target_of
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, trouble_of

_BY_ITSELF = {"LIMIT": "LIMIT", "FETCH": "FETCH", "OFFSET": "OFFSET", "FOR": "FOR UPDATE", "SHARE": "the lock"}
_NO_ROWS = {"DISTINCT", "GROUP", "HAVING", "UNION", "INTERSECT", "EXCEPT"}


def take(tx: Any, query: Any, *, limit: int, params: Sequence[Any] = ()) -> list[Any]:
    """Return up to `limit` rows of `query` that no other reader has locked, and lock them until the transaction ends.

    `query` is a string with ``%s`` for each of `params`, or a SQLAlchemy `select()` if `tx` is of SQLAlchemy. The rows
    are tuples, or SQLAlchemy's rows for a `select()`.
    """
    target = target_of(tx)
    if not _is_whole(limit) or limit < 1:
        raise ValueError(f"limit {limit!r} must be a whole number of at least 1")
    _refuse_autocommit(target)
    rows = _conflicts_told(lambda: _taken(target, query, limit, params))
    note_key(tx)
    return rows


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _taken(target: Target, query: Any, limit: int, params: Sequence[Any]) -> list[Any]:
    if isinstance(query, str):
        return target.execute(_extended(query, params, target.kind), (*params, limit)).rows
    if not hasattr(query, "with_for_update"):
        raise TypeError(
            f"run.take() needs SQL as a string or a SQLAlchemy select(), not {described(query)}; instead of a "
            "SQLAlchemy text(), pass the string itself, with %s for parameters"
        )
    if params:
        raise ValueError("a SQLAlchemy select() has its own parameters; params= is for SQL as a string")
    return _selected(target, query, limit)


def _selected(target: Target, query: Any, limit: int) -> list[Any]:
    if family_of(target.given) != "sqlalchemy":
        raise TypeError(f"a SQLAlchemy select() needs a SQLAlchemy connection, not {described(target.given)}")
    refuse_unfit(str(query.compile(dialect=connection_of(target.given).dialect)))
    return list(target.given.execute(query.limit(limit).with_for_update(skip_locked=True)).all())


def _extended(sql: str, params: Sequence[Any], kind: str) -> str:
    """Return the query with the clauses that limit and lock its rows."""
    text = sql.strip().removesuffix(";").rstrip()
    refuse_unfit(text)
    if text.count("%s") != len(params) or text.replace("%s", "").count("%"):
        raise ValueError(
            f"this query has {text.count('%s')} placeholders (%s) for {len(params)} parameters, or another percent "
            "sign; pass a value that contains one, such as a LIKE pattern, as a parameter"
        )
    line = "\n" if ends_in_comment(text) else " "
    return f"{text}{line}LIMIT %s" + SPELLING[kind].skip_locked


def refuse_unfit(sql: str) -> None:
    """Raise `ValueError`, with the reason, if `take` cannot use this query."""
    words = outer_words(sql)
    unfit = next((_BY_ITSELF[word] for word in words if word in _BY_ITSELF), None)
    if unfit is not None:
        raise ValueError(f"run.take() adds LIMIT and FOR UPDATE SKIP LOCKED itself; leave {unfit} out of the query")
    if words[:1] not in (["SELECT"], ["WITH"]) or ";" in words:
        raise ValueError("run.take() needs a single SELECT statement")
    whole = next((word for word in words if word in _NO_ROWS), None)
    if whole is not None:
        raise ValueError(f"run.take() locks single rows, but with {whole} a result stands for several rows")
    if "ORDER" not in words:
        raise ValueError(
            "run.take() needs to know which rows come first, or some might never be taken; add ORDER BY, for "
            "example with the primary key"
        )


def _conflicts_told(call: Callable[[], list[Any]]) -> list[Any]:
    try:
        return call()
    except Exception as error:
        if trouble_of(error) is not Trouble.CONFLICT:
            raise
        raise TransactionConflict(
            "another reader has changed rows of this query since the transaction began, and at this isolation level "
            "the transaction then fails; nothing was written, try again (run.in_transaction does), or declare the job "
            "with isolation='read committed'"
        ) from error


def _refuse_autocommit(target: Target) -> None:
    """Refuse a connection without an open transaction: its rows would be unlocked immediately."""
    if commits_at_once(target.given):
        raise ConfigurationError(
            f"{described(target.given)} is in autocommit mode and has no transaction open, so rows would not stay "
            "locked after they were read, and another reader could take them too; use the connection from "
            "run.transaction()"
        )

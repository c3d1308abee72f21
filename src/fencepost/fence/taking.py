"""Sharing the rows of one table among several readers: each takes some that nobody else has, and holds them.

::

    with run.transaction() as tx:
        for (order_id,) in run.take(tx, "SELECT id FROM orders WHERE settled IS NULL ORDER BY id", limit=100):
            ...
            tx.execute(text("UPDATE orders SET settled = true WHERE id = :id"), {"id": order_id})

To the query are added ``LIMIT`` and ``FOR UPDATE SKIP LOCKED`` (PostgreSQL; MySQL 8 or later, MariaDB 10.6 or later).

**Promises.** Readers whose transactions are open at the same time get different rows. What a reader took is free again
when its transaction ends; so whoever changes the rows in that transaction such that the query no longer finds them
has each row handled once, and what was rolled back is taken by the next.

**Not promised.** That an empty answer means that nothing is left: others may hold what is, and may roll back. Whoever
needs the end looks again when they have ended. On SQLite there is one writer, and so nothing to pass by.

**Refused**, with a sentence: a query that limits or locks by itself, one without an order (the same rows could be left
over again and again; and readers that lock in one order do not wait for each other in a circle), and one whose answer
is not made of single rows (DISTINCT, GROUP BY, UNION). Select from the one table whose rows are shared: rows that are
joined would be locked, too, and all that hang on one of them passed by. Conditions on others go into EXISTS.

**Isolation.** On PostgreSQL under repeatable read or serializable, rows that another reader has changed since this
transaction began end it: `TransactionConflict`, and nothing was written. `run.in_transaction` then begins anew; but a
job that shares rows is better declared with ``isolation="read committed"``.
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
    """Return up to `limit` rows of `query` that nobody else holds, and hold them until the transaction ends.

    `query` is a text with ``%s`` for each of `params`, or a SELECT of SQLAlchemy (with `tx` of SQLAlchemy). Rows are
    tuples; those of a SELECT are what SQLAlchemy makes of them.
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
            f"run.take() takes SQL as a text, or a select() of SQLAlchemy, not {described(query)}; a text() of "
            "SQLAlchemy is given as the text that it is made of, with %s for parameters"
        )
    if params:
        raise ValueError("a select() of SQLAlchemy brings its own parameters; params= are for SQL as a text")
    return _selected(target, query, limit)


def _selected(target: Target, query: Any, limit: int) -> list[Any]:
    if family_of(target.given) != "sqlalchemy":
        raise TypeError(f"a select() of SQLAlchemy needs a connection of SQLAlchemy, not {described(target.given)}")
    refuse_unfit(str(query.compile(dialect=connection_of(target.given).dialect)))
    return list(target.given.execute(query.limit(limit).with_for_update(skip_locked=True)).all())


def _extended(sql: str, params: Sequence[Any], kind: str) -> str:
    """Return the query with what makes it take rows."""
    text = sql.strip().removesuffix(";").rstrip()
    refuse_unfit(text)
    if text.count("%s") != len(params) or text.replace("%s", "").count("%"):
        raise ValueError(
            f"this query has {text.count('%s')} marks (%s) for {len(params)} parameters, or a percent sign that is no "
            "mark; what contains one, such as a pattern for LIKE, is given as a parameter"
        )
    line = "\n" if ends_in_comment(text) else " "
    return f"{text}{line}LIMIT %s" + SPELLING[kind].skip_locked


def refuse_unfit(sql: str) -> None:
    """Raise `ValueError` if rows cannot be taken by this query, and say why."""
    words = outer_words(sql)
    unfit = next((_BY_ITSELF[word] for word in words if word in _BY_ITSELF), None)
    if unfit is not None:
        raise ValueError(f"run.take() adds LIMIT and FOR UPDATE SKIP LOCKED itself; leave {unfit} out of the query")
    if words[:1] not in (["SELECT"], ["WITH"]) or ";" in words:
        raise ValueError("run.take() takes one SELECT, and nothing else")
    whole = next((word for word in words if word in _NO_ROWS), None)
    if whole is not None:
        raise ValueError(f"with {whole}, an answer stands for several rows, and it is rows that run.take() takes")
    if "ORDER" not in words:
        raise ValueError(
            "run.take() needs to know which rows come first, or some might never have their turn: add ORDER BY, for "
            "instance of the primary key"
        )


def _conflicts_told(call: Callable[[], list[Any]]) -> list[Any]:
    try:
        return call()
    except Exception as error:
        if trouble_of(error) is not Trouble.CONFLICT:
            raise
        raise TransactionConflict(
            "another reader has changed rows of this query since the transaction began, and at its isolation level "
            "that ends it; nothing was written, try again (run.in_transaction does), or declare the job with "
            "isolation='read committed'"
        ) from error


def _refuse_autocommit(target: Target) -> None:
    """Refuse a connection that has no transaction open: what it takes would be free at once."""
    if commits_at_once(target.given):
        raise ConfigurationError(
            f"{described(target.given)} is in autocommit mode and has no transaction open, so rows would not be held "
            "after they were read, and somebody else might take the same; use that of run.transaction()"
        )

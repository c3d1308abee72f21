"""The SQL of the most frequent operations, as far as it differs between databases.

`claiming`, `finishing`, `planning` and `reaping` write each statement once, as a template with named fields::

    "SELECT r.id FROM {run} r WHERE {ints:r.id} AND r.state = 'queued'{skip_locked}"

`{run}` is the table. `{ints:r.id}` is the condition that the column is in a list of numbers, passed as
`statements.ints(numbers)`; `{texts:r.job}` and `statements.texts(words)` do the same for texts. `{was:r.state}` is the
column in a form that keeps the database from using an index on it. A row that is found by its id has to be locked by
its id, through one index: two transactions that lock it through two indexes would deadlock. A template is filled once
and cached. Drivers and servers recognize a statement by its text, so templates contain nothing that varies.

Two statements are written separately for each database, because they are executed most often: claiming runs that
nothing blocks, and ending runs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple, Protocol

from fencepost.core.masked_values import MASKED
from fencepost.core.runs import Claim, Ending
from fencepost.ledger.claim_order import CLAIM_ORDER_COLUMNS, order_by, ranks
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor, Dialect

TABLES = (
    "node",
    "job",
    "schedule",
    "run",
    "attempt",
    "exclusive",
    "journal",
    "identity",
    "audit_head",
    "pause",
    "run_search",
)
# Fields of a claim whose column has another name. Fields of times end in _us, their columns do not.
_COLUMNS = {"run_id": "id", "attempt": "attempts", "claimed_at_us": "started_at"}
_CLAIMED = tuple(f"r.{_COLUMNS.get(name, name.removesuffix('_us'))}" for name in Claim._fields)
CLAIM_COLUMNS = ", ".join(_CLAIMED)
"""The columns of a run that make a `Claim`, in the order of its fields."""
_RANKED = (*_CLAIMED, *(rank for rank in ranks("r") if rank not in _CLAIMED))
CLAIM_WIDTH = len(_CLAIMED)
claim_rank = itemgetter(*map(_RANKED.index, ranks("r")))
"""Sorts rows of `{ranked_columns}` as runs are claimed. The first `CLAIM_WIDTH` columns of these make a `Claim`."""
# A node that was declared dead, has left, or was asked to drain, claims nothing. It may not know of that yet.
_NOT_ENDED = (
    "NOT EXISTS (SELECT 1 FROM {node} me "
    "WHERE me.id = %s AND coalesce(me.dead_at, me.left_at, me.drain_asked_at) IS NOT NULL)"
)
_AGAIN = frozenset(("queued", "waiting"))
_STATE = attrgetter("state")
_PERSON = {"waiting": "person"}
# With LIMIT as a parameter, plans would scan. A literal for every number would make too many statements to cache.
_LIMITS = (500, 400, 300, 200, 150, 100, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)


class ClaimRequest(NamedTuple):
    """What a node asks for when it claims. `keys`, if given, restricts keyed runs to those with one of these keys."""

    node: str
    jobs: tuple[str, ...]
    queues: tuple[str, ...]
    limit: int
    keys: tuple[str, ...] | None


class Taken(NamedTuple):
    """The runs that were claimed, and runs with a key, as (id, key), that were not claimed in this step.

    Most urgent first.
    """

    now_us: int
    claims: list[Claim]
    keyed: list[tuple[int, str]]


class EndingRows(NamedTuple):
    """Endings as they are written. `waits_for`, if given, says for each ending what its run waits for, or None."""

    rows: Sequence[Ending]
    waits_for: Sequence[str | None] | None = None


class Match(NamedTuple):
    """Selects the rows to change: those whose primary key equals a column of the source, and that fulfil `also`."""

    key: str
    column: str
    also: str = ""

    def __str__(self) -> str:
        return f"r.{self.key} = e.{self.column}{self.also and ' AND '}{self.also}"


class LedgerStatements(ABC):
    """The SQL of one dialect, for the tables of one ledger."""

    greatest: ClassVar[str] = "greatest"
    key: ClassVar[str] = "key"
    by: ClassVar[str] = "by"

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        url = dialect.url
        place = f"{url.schema}." if url.schema else ""
        self.fields: dict[str, Any] = {name: f"{place}{url.prefix}{name}" for name in TABLES}
        self.fields |= {
            "ints": Word(self.among_ints),
            "texts": Word(self.among_texts),
            "rows": Word(self._rows),
            "was": Word(lambda column: f"coalesce({column}, '')"),
            "greatest": self.greatest,
            "key": self.key,
            "by": self.by,
            "for_update": dialect.spelling.for_update,
            "skip_locked": dialect.spelling.skip_locked,
            "columns": CLAIM_COLUMNS,
            "ranked_columns": ", ".join(_RANKED),
            "ranks": ", ".join(ranks("r")),
            "ranking_columns": ", ".join(f"r.{column}" for column in CLAIM_ORDER_COLUMNS if column != "id"),
            "claim_order": Word(order_by),
            "claimable": "",  # an index hint for queued runs, where the database needs one
            "ready": "",  # an index hint for schedules that are due and have a node, where the database needs one
            "clock": dialect.now_sql,
            "not_ended": _NOT_ENDED.format_map(self.fields),
            "unpaused": Word(self._unpaused),
        }
        self._filled: dict[str, str] = {}

    def sql(self, template: str) -> str:
        """Return the SQL of a template, which is filled once and cached."""
        filled = self._filled.get(template)
        if filled is None:
            filled = self._filled[template] = template.format_map(self.fields).replace("%s", self.dialect.mark)
        return filled

    def rows(self, cursor: Cursor, template: str, *parameters: Any) -> list[Any]:
        """Execute a template and fetch all rows."""
        cursor.execute(self.sql(template), parameters)
        fetched: list[Any] = list(cursor.fetchall())
        return fetched

    def change(self, cursor: Cursor, template: str, *parameters: Any) -> int:
        """Execute a template and return the number of rows that matched."""
        cursor.execute(self.sql(template), parameters)
        return cursor.rowcount

    def now_us(self, cursor: Cursor) -> int:
        """Return the current time of the ledger."""
        return self.dialect.now_us(cursor)

    def clock(self) -> tuple[int, ...]:
        """Return the parameters for `{clock}`, if it has any."""
        return ()

    def ints(self, numbers: Collection[int]) -> Any:
        """Return the parameter for `{ints:…}`; it takes at least one number."""
        return json.dumps(list(numbers))

    def texts(self, words: Collection[str]) -> Any:
        """Return the parameter for `{texts:…}`; it takes at least one text."""
        return _as_list(tuple(words))

    def notify(self, cursor: Cursor) -> None:  # noqa: B027
        """Wake listening nodes when the transaction commits. Does nothing on databases where nodes cannot listen."""

    @abstractmethod
    def among_ints(self, column: str) -> str:
        """Return the condition that `column` is in a list of numbers."""

    @abstractmethod
    def among_texts(self, column: str) -> str:
        """Return the condition that `column` is in a list of texts."""

    @abstractmethod
    def update_from(self, table: str, *, source: str, on: Match, sets: Mapping[str, str]) -> str:
        """Return a template that updates rows `r` of `table` from the rows `e` of `source`."""

    @abstractmethod
    def take(self, connection: LedgerConnection, wanted: ClaimRequest) -> Taken:
        """Claim runs without a key, and find those with one, in one transaction that never waits for a lock.

        Runs whose key is free may be claimed here, too.
        """

    @abstractmethod
    def end(self, cursor: Cursor, endings: EndingRows) -> tuple[int, int]:
        """End the attempts that are still current; return the time, and how many ended.

        Also inserts a row of `attempt` for each ending that has an outcome.
        """

    @abstractmethod
    def end_alone(self, connection: LedgerConnection, endings: EndingRows) -> tuple[int, int]:
        """Do the same in its own transaction."""

    def _unpaused(self, spec: str) -> str:
        """Expand ``{unpaused:queue time}``: neither this queue nor everything is paused at that time.

        Name the queue by a parameter where there is one: then it is asked once, and not for every row.
        """
        queue, now = spec.split(maxsplit=1)
        pause = self.fields["pause"]
        return (
            f"NOT EXISTS (SELECT 1 FROM {pause} z WHERE z.queue IN ('', {queue}) "  # noqa: S608 - fixed names only
            f"AND (z.until IS NULL OR z.until > {now}))"
        )

    def _rows(self, spec: str) -> str:
        """Expand ``{rows:e id=int key=text}``: a table of the rows in one parameter, made by `listed`."""
        alias, *columns = spec.split()
        return self.dialect.json_table(alias, dict(column.split("=") for column in columns))


class TransactionStatements(LedgerStatements):
    """Statements for a database where a claim and an ending take several statements each, in a transaction."""

    def take(self, connection: LedgerConnection, wanted: ClaimRequest) -> Taken:
        """Call `_take` in a transaction."""
        return connection.write(lambda cursor: self._take(cursor, wanted))

    def end_alone(self, connection: LedgerConnection, endings: EndingRows) -> tuple[int, int]:
        """Call `end` in a transaction."""
        return connection.write(lambda cursor: self.end(cursor, endings))

    @abstractmethod
    def _take(self, cursor: Cursor, wanted: ClaimRequest) -> Taken: ...


@lru_cache(maxsize=64)
def _as_list(words: tuple[str, ...]) -> str:
    """Return words as JSON. Cached, because a node asks for the same jobs and queues all the time."""
    return json.dumps(words)


class Word:
    """Implements ``{word:argument}`` in a template."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        self._spell = spell

    def __format__(self, argument: str) -> str:
        return self._spell(argument)


def rounded(limit: int) -> int:
    """Return the greatest cached limit that is not above `limit`; at least 1."""
    return next((each for each in _LIMITS if each <= limit), 1)


def listed(rows: Sequence[Sequence[Any]]) -> str:
    """Return the parameter for ``{rows:…}``. Characters that no database can store in a text are replaced."""
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    if "\\u0000" in text or not _is_encodable(text):
        text = json.dumps([[clean(value) for value in row] for row in rows], ensure_ascii=False)
    return text


def clean(value: Any) -> Any:
    """Replace zero characters and lone surrogates in a text; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def said(text: Any) -> Any:
    """Return what somebody wrote for people, such as a reason, as it is stored: without the values of secrets."""
    return clean(MASKED.masked(text) if MASKED and isinstance(text, str) else text)


def said_json(detail: Mapping[str, Any]) -> str:
    """Return the details of an act as they are stored: as JSON, without the values of secrets, as `said` does."""
    return MASKED.masked_json(json.dumps(dict(detail)))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def written(endings: Sequence[Ending], *, horizon_us: int) -> EndingRows:
    """Return endings as they are written, each with what its run waits for.

    A next attempt is queued, or waits for its time if that is beyond the horizon. A run that ends as waiting is held
    for a person.
    """
    if _AGAIN.isdisjoint(map(_STATE, endings)):
        return EndingRows(endings)
    is_far = [ending.state == "queued" and ending.delay_us > horizon_us for ending in endings]
    rows = [each._replace(state="waiting") if far else each for each, far in zip(endings, is_far, strict=True)]
    words = ["time" if far else _PERSON.get(each.state) for each, far in zip(endings, is_far, strict=True)]
    return EndingRows(rows, words)


class HasDialect(Protocol):
    """A connection, or a whole database."""

    dialect: Dialect


def statements_for(connection: HasDialect) -> LedgerStatements:
    """Return the statements of a connection's dialect. They are cached with the dialect."""
    words: LedgerStatements | None = connection.dialect.kept_words
    if words is None:
        words = connection.dialect.kept_words = _make_statements(connection.dialect)
    return words


def _make_statements(dialect: Dialect) -> LedgerStatements:
    if dialect.name == "postgresql":
        from fencepost.ledger.dialects.statements_postgres import HotPostgres  # noqa: PLC0415 - needs its driver

        return HotPostgres(dialect)
    if dialect.name == "sqlite":
        from fencepost.ledger.dialects.statements_sqlite import HotSqlite  # noqa: PLC0415

        return HotSqlite(dialect)
    from fencepost.ledger.dialects.statements_mysql import HotMysql  # noqa: PLC0415

    return HotMysql(dialect)

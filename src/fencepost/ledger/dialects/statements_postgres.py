"""The most frequent statements on PostgreSQL: claiming a batch and ending a batch take one statement each.

Each of them is a transaction by itself, without BEGIN and COMMIT.

**Plans.** A frequent statement is planned once (a generic plan), perhaps while the tables are empty. So there must be
only one sensible plan. Connections have `enable_seqscan` off. Expressions hide columns from the planner that could lead
to another index (``state || ''``, ``job || ''``). LIMIT is a literal. The rows to take or end are found by one lookup
of their ids (``id = ANY``) and then matched by a hash join, which is chosen because the planner assumes many rows on
the other side (``generate_series`` of unknown length counts as a thousand). Tests check the plans.

**Parameters.** Arrays of numbers and plain words are passed as text, which costs a tenth of the driver's general
conversion. A column that is NULL in all rows is passed as NULL, and `unnest` fills it up.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from fencepost.core.runs import Claim
from fencepost.core.runtime import Runtime
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor, Dialect
from fencepost.ledger.dialects.statements import (
    CLAIM_WIDTH,
    ClaimRequest,
    EndingRows,
    LedgerStatements,
    Match,
    Taken,
    Word,
    claim_rank,
    clean,
    rounded,
)

_CLAIM = partial(tuple.__new__, Claim)
_NOTHING = [None] * 5
_WHOLE_EVERY_S = 0.5  # how often, at least, the whole queue is searched; see `QueueStart`
_FROM_THE_FIRST = -(2**63)  # the least number of the column: what is due before 1970 waits in the queue as well
_SUCCEEDED = {"succeeded"}

_FIND = """
    SELECT r.id, {ranking_columns}, r.exclusive_key, r.token FROM {run} r
    WHERE r.state = 'queued' AND r.queue = {queue} AND {unpaused:{queue} (SELECT now FROM clock)}
      AND r.available_at <= (SELECT now FROM clock)
      AND r.available_at >= %s AND r.job || '' = ANY(%s::text[]){gate} AND EXISTS (SELECT 1 FROM allowed)
    ORDER BY {claim_order:r} LIMIT {limit} FOR UPDATE SKIP LOCKED"""

_FIND_IN_MANY = """
  SELECT x.* FROM unnest(%s::text[]) AS q(name) CROSS JOIN LATERAL ({find}) x
  ORDER BY {claim_order:x} LIMIT {limit}"""

_GATE = " AND (r.exclusive_key IS NULL OR r.exclusive_key = ANY(%s::text[]))"

# Runs with a key that were found but not claimed are returned with every row, as two arrays, which are mostly NULL.
_TAKE = """
WITH clock AS MATERIALIZED (SELECT {clock} AS now),
allowed AS MATERIALIZED (SELECT 1 WHERE {not_ended}),
due AS MATERIALIZED ({find}),
found AS MATERIALIZED ({many:due id exclusive_key token}),
{with_keys}
ours AS MATERIALIZED (
  SELECT id, greatest(token + 1, (SELECT now FROM clock)) AS token FROM found WHERE exclusive_key IS NULL{and_first})
UPDATE {run} r SET state = 'running', node = %s, attempts = r.attempts + 1, started_at = (SELECT now FROM clock),
  token = o.token
FROM ours o WHERE r.id = ANY(ARRAY(SELECT id FROM ours)) AND r.id = o.id
RETURNING {ranked_columns},
  (SELECT array_agg(id ORDER BY n) FROM rest), (SELECT array_agg(exclusive_key ORDER BY n) FROM rest)
"""

# A key that exists, is free and is not locked is taken for the most urgent run that has it.
_TAKE_KEYS = """free AS MATERIALIZED (
  SELECT x.key, x.token FROM {exclusive} x
  WHERE x.key = ANY(ARRAY(SELECT exclusive_key FROM found WHERE exclusive_key IS NOT NULL)) AND x.run_id IS NULL
  FOR UPDATE SKIP LOCKED),
first AS MATERIALIZED (
  SELECT DISTINCT ON (f.exclusive_key)
    f.id, f.exclusive_key, greatest(f.token + 1, k.token + 1, (SELECT now FROM clock)) AS token
  FROM found f JOIN ({many:free key token}) k ON k.key = f.exclusive_key ORDER BY f.exclusive_key, f.n),
held AS (
  UPDATE {exclusive} x SET run_id = f.id, token = f.token FROM first f
  WHERE x.key = ANY(ARRAY(SELECT exclusive_key FROM first)) AND x.key = f.exclusive_key),
rest AS MATERIALIZED (
  SELECT f.* FROM found f
  WHERE f.exclusive_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM first o WHERE o.id = f.id)),"""
_AND_FIRST = " UNION ALL SELECT id, token FROM first"
_LEAVE_KEYS = "rest AS MATERIALIZED (SELECT f.* FROM found f WHERE f.exclusive_key IS NOT NULL),"

# For the case that _TAKE has changed no row: then it returns none.
_FIND_KEYED = """
WITH clock AS MATERIALIZED (SELECT {clock} AS now),
allowed AS MATERIALIZED (SELECT 1 WHERE {not_ended}),
found AS MATERIALIZED ({find})
SELECT clock.now, f.id, f.exclusive_key FROM clock LEFT JOIN found f ON f.exclusive_key IS NOT NULL
ORDER BY {claim_order:f}
"""

# For batches in which all attempts succeeded without result or error, as most do.
_SUCCEED = """
WITH clock AS MATERIALIZED (SELECT {clock} AS now),
e AS MATERIALIZED (
  SELECT * FROM ROWS FROM (
    unnest(%s::bigint[]), unnest(%s::int[]), unnest(%s::bigint[]), unnest(%s::bigint[]), generate_series(1, %s))
  AS e (id, attempt, token, took_us, n)),
changed AS (
  UPDATE {run} r SET
    state = 'succeeded', ended_at = clock.now, error_code = NULL, error = NULL, result = NULL, why = NULL
  FROM e, clock
  WHERE r.id = ANY(%s::bigint[]) AND r.id = e.id AND r.token = e.token AND r.attempts = e.attempt
    AND r.state || '' = 'running'
  RETURNING r.id, r.attempts, r.node, r.token, r.started_at, r.ended_at, e.took_us),
kept AS (
  INSERT INTO {attempt} (run_id, number, node, token, started_at, ended_at, took_us, outcome)
  SELECT c.*, 'succeeded' FROM changed c)
SELECT clock.now, (SELECT count(*) FROM changed) FROM clock
"""

_END = """
WITH clock AS MATERIALIZED (SELECT {clock} AS now),
e AS MATERIALIZED (
  SELECT *, state IN ('queued', 'waiting') AS is_again FROM ROWS FROM (
    unnest(%s::bigint[]), unnest(%s::int[]), unnest(%s::bigint[]), unnest(%s::text[]), unnest(%s::text[]),
    unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::text[]), unnest(%s::text[]), unnest(%s::text[]),
    unnest(%s::text[]), unnest(%s::text[]), unnest(%s::text[]), generate_series(1, %s))
  AS e (id, attempt, token, state, outcome, delay_us, took_us, error_code, error, trace, result, why, waits_for, n)),
changed AS (
  UPDATE {run} r SET
    state = CASE WHEN {again} OR NOT e.is_again THEN e.state ELSE 'cancelled' END,
    waits_for = CASE WHEN {again} THEN e.waits_for END,
    node = CASE WHEN e.outcome IS NULL THEN NULL ELSE r.node END,
    started_at = CASE WHEN e.outcome IS NULL THEN NULL ELSE r.started_at END,
    progress = CASE WHEN {again} THEN NULL ELSE r.progress END,
    progress_note = CASE WHEN {again} THEN NULL ELSE r.progress_note END,
    available_at = CASE WHEN {again} THEN clock.now + e.delay_us ELSE r.available_at END,
    ended_at = CASE WHEN {again} THEN NULL ELSE clock.now END,
    attempts = r.attempts - (e.outcome IS NULL)::int,
    failures = r.failures + (coalesce(e.outcome, '') IN ('failed', 'timed_out'))::int,
    crashes = r.crashes + (coalesce(e.outcome, '') = 'lost')::int,
    error_code = e.error_code, error = e.error, result = e.result, why = e.why
  FROM e, clock
  WHERE r.id = ANY(%s::bigint[]) AND r.id = e.id AND r.token = e.token AND r.attempts = e.attempt
    AND r.state || '' = 'running'
  RETURNING e.*, r.node, r.started_at),
kept AS (
  INSERT INTO {attempt}
    (run_id, number, node, token, started_at, ended_at, took_us, outcome, error_code, error, trace)
  SELECT c.id, c.attempt, c.node, c.token, c.started_at, clock.now, c.took_us, c.outcome, c.error_code, c.error, c.trace
  FROM changed c, clock WHERE c.outcome IS NOT NULL)
SELECT clock.now, (SELECT count(*) FROM changed) FROM clock
""".replace("{again}", "(e.is_again AND r.cancel_requested_at IS NULL)")


class QueueStart:
    """The time from which to search the queue, after a full batch was taken from it.

    The index keeps entries of claimed runs until the table is vacuumed, and skipping these costs more the longer a
    queue is processed. So the search after a full batch begins at the time at which that batch ended. Older runs, which
    were promoted, recorded late or less urgent, are found by the next search of the whole queue: as soon as a batch is
    not full, and at least twice a second. (Before PostgreSQL 18 this saves little, because an index is read from its
    beginning.)
    """

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.monotonic
        self._known: dict[tuple[Any, ...], tuple[int, float]] = {}

    def of(self, wanted: ClaimRequest) -> int:
        """Return the time to begin at; `_FROM_THE_FIRST` for the whole queue."""
        floor_us, until = self._known.get(wanted[1:3], (_FROM_THE_FIRST, 0.0))
        return floor_us if self._clock() < until else _FROM_THE_FIRST

    def took(self, wanted: ClaimRequest, taken: Taken, *, from_us: int) -> None:
        """Record a batch, whose search began at `from_us`."""
        if taken.keyed or len(taken.claims) < wanted.limit:
            self._known.pop(wanted[1:3], None)
            return
        is_whole = from_us == _FROM_THE_FIRST
        until = self._clock() + _WHOLE_EVERY_S if is_whole else self._known[wanted[1:3]][1]
        self._known[wanted[1:3]] = (taken.claims[-1].available_at_us, until)


class HotPostgres(LedgerStatements):
    """The statements for PostgreSQL."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.fields["many"] = Word(_many)
        self._takes: dict[tuple[int, bool, bool], tuple[str, str]] = {}
        self._floors: WeakKeyDictionary[LedgerConnection, QueueStart] = WeakKeyDictionary()

    def among_ints(self, column: str) -> str:
        return f"{column} = ANY(%s::bigint[])"

    def among_texts(self, column: str) -> str:
        return f"{column} = ANY(%s::text[])"

    def ints(self, numbers: Collection[int]) -> str:
        return _numbers(numbers)

    def texts(self, words: Collection[str]) -> str:
        return _texts(tuple(words))

    def update_from(self, table: str, *, source: str, on: Match, sets: Mapping[str, str]) -> str:
        """Return UPDATE … FROM, which finds its rows by one lookup of their keys."""
        changes = ", ".join(f"{column} = {value}" for column, value in sets.items())
        return (
            f"WITH e AS MATERIALIZED (SELECT e.* FROM {source}) UPDATE {{{table}}} AS r SET {changes} FROM e "
            f"WHERE r.{on.key} = ANY(ARRAY(SELECT e.{on.column} FROM e)) AND {on}"
        )

    def notify(self, cursor: Cursor) -> None:
        """Notify the ledger's channel. The server sends this once per transaction, after the commit."""
        cursor.execute(self._notify_sql)

    def take(self, connection: LedgerConnection, wanted: ClaimRequest) -> Taken:
        """Claim with one statement, which is a transaction; with a second one if too few runs are after the floor."""
        floor = self._floors.setdefault(connection, QueueStart(self.dialect.runtime))
        floor_us = floor.of(wanted)
        taken = self._take(connection, wanted, floor_us)
        count = len(taken.claims) + len(taken.keyed)
        if count < wanted.limit and floor_us != _FROM_THE_FIRST:
            rest = self._take(connection, wanted._replace(limit=rounded(wanted.limit - count)), _FROM_THE_FIRST)
            taken = Taken(rest.now_us, taken.claims + rest.claims, taken.keyed + rest.keyed)
        floor.took(wanted, taken, from_us=floor_us)
        return taken

    def _take(self, connection: LedgerConnection, wanted: ClaimRequest, floor_us: int) -> Taken:
        take, find = self._takes.get(_shape(wanted)) or self._take_sql(wanted)
        queues = wanted.queues * 2 if len(wanted.queues) == 1 else (_texts(wanted.queues),)
        gate = () if wanted.keys is None else (_texts(wanted.keys),)
        given = (wanted.node, *queues, floor_us, _texts(wanted.jobs), *gate)
        cursor: Any
        with connection.autocommit() as cursor:
            _keep_plans(cursor)
            cursor.execute(take, (*given, wanted.node), binary=True)
            rows = cursor.fetchall()
            if not rows:
                cursor.execute(find, given)
                return _only_keyed(cursor.fetchall())
        return _taken(rows)

    def end(self, cursor: Cursor, endings: EndingRows) -> tuple[int, int]:
        """End all attempts with one statement."""
        ids, attempts, tokens, states, outcomes, delays, took, *texts, _, _ = zip(*endings.rows, strict=True)
        numbers = _numbers(ids)
        identity = (numbers, _numbers(attempts), _numbers(tokens))
        texts_or_none = [_any_texts(column) for column in texts]
        if texts_or_none == _NOTHING and set(states) == set(outcomes) == _SUCCEEDED:
            cursor.execute(self.sql(_SUCCEED), (*identity, _maybe_numbers(took), len(ids), numbers))
        else:
            waits_for = None if endings.waits_for is None else _words(endings.waits_for)
            whole = (
                _words(states),
                _words(outcomes),
                _numbers(delays),
                _maybe_numbers(took),
                *texts_or_none,
                waits_for,
            )
            cursor.execute(self.sql(_END), (*identity, *whole, len(ids), numbers))
        now_us, count = cursor.fetchone()
        return now_us, count

    def end_alone(self, connection: LedgerConnection, endings: EndingRows) -> tuple[int, int]:
        """End all attempts with one statement, which is a transaction."""
        with connection.autocommit() as cursor:
            _keep_plans(cursor)
            return self.end(cursor, endings)

    def _take_sql(self, wanted: ClaimRequest) -> tuple[str, str]:
        """Return the statement that claims runs, and the one that finds keyed runs if nothing could be claimed."""
        is_one = len(wanted.queues) == 1
        find = _FIND.replace("{queue}", "%s" if is_one else "q.name")
        find = find if is_one else _FIND_IN_MANY.replace("{find}", find)
        find = find.replace("{limit}", str(wanted.limit)).replace("{gate}", "" if wanted.keys is None else _GATE)
        with_keys, and_first = (_TAKE_KEYS, _AND_FIRST) if wanted.keys is None else (_LEAVE_KEYS, "")
        take = _TAKE.replace("{with_keys}", with_keys).replace("{and_first}", and_first)
        take = self.sql(take.replace("{find}", find))
        only = self.sql(_FIND_KEYED.replace("{find}", find.replace(" FOR UPDATE SKIP LOCKED", "")))
        self._takes[_shape(wanted)] = take, only
        return take, only

    @cached_property
    def _notify_sql(self) -> str:
        return f"NOTIFY {channel(self.dialect)}"


def _many(spec: str) -> str:
    """Expand ``{many:table column …}``: its rows, numbered by `n` in order, with a high estimate for the planner."""
    table, *columns = spec.split()
    arrays = ", ".join(f"unnest(ARRAY(SELECT {column} FROM {table}))" for column in columns)
    return (
        f"SELECT * FROM ROWS FROM ({arrays}, generate_series(1, (SELECT count(*) FROM {table})::int)) "
        f"AS {table} ({', '.join(columns)}, n)"
    )


def _shape(wanted: ClaimRequest) -> tuple[int, bool, bool]:
    """Return what the text of the statement depends on."""
    return wanted.limit, wanted.keys is not None, len(wanted.queues) == 1


def _taken(rows: list[Any]) -> Taken:
    *_, ids, keys = rows[0]
    rows.sort(key=claim_rank)
    claims = [_CLAIM(row[:CLAIM_WIDTH]) for row in rows]
    return Taken(claims[0].claimed_at_us, claims, [] if ids is None else list(zip(ids, keys, strict=True)))


def _only_keyed(rows: list[Any]) -> Taken:
    return Taken(rows[0][0], [], [(run_id, key) for _, run_id, key in rows if run_id is not None])


def channel(dialect: Dialect) -> str:
    """Return the name of the ledger's notification channel; an identifier."""
    return f"{dialect.url.schema or 'public'}_{dialect.url.prefix}news".lower()


def _keep_plans(cursor: Any) -> None:
    """Set a connection to keep generic plans, once. Each statement has one sensible plan."""
    connection = cursor.connection
    if connection.prepare_threshold and not getattr(connection, "keeps_plans", False):
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        connection.prepare_threshold = 1
        connection.keeps_plans = True


def _numbers(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _maybe_numbers(values: Sequence[int | None]) -> str:
    return _numbers(values).replace("None", "NULL")  # type: ignore[arg-type]  # None becomes the text "None"


def _words(values: Iterable[str | None]) -> str:
    """Return an array of words that need no quotes."""
    return "{" + ",".join(["NULL" if value is None else value for value in values]) + "}"


def _any_texts(values: Sequence[str | None]) -> list[str | None] | None:
    """Return the texts for the driver; None if all of them are None."""
    return None if values.count(None) == len(values) else [clean(value) for value in values]


@lru_cache(maxsize=256)
def _texts(values: tuple[str, ...]) -> str:
    """Return an array of arbitrary texts, quoted."""
    return "{" + ",".join([_quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""Claiming: a node takes due runs.

**Promises.** A run is claimed by one node at a time, with a token above all its earlier ones, and above every token
that was ever given under its exclusive key. Of the runs with the same exclusive key, at most one is running. A run that
finds its key taken is skipped, or waits, or the holder is asked to stop, as `decide` says. Both the transaction that
finds a key taken and the one that frees it lock the key's row first, so no run waits for a key that is free.

Runs of a paused queue are not claimed: every statement that starts runs compares the pauses with the ledger's clock
(`queue_pauses`). A node that was asked to drain claims nothing.

**Not promised.** That a claim that ended in `LedgerUnavailable` did not happen: `mine` returns the runs that a node
holds. That all due runs are claimed at once: rows that another node has locked are skipped.

**How.** Runs without a key are taken first, in their own transaction; on PostgreSQL also those whose key is free. The
others follow in a second transaction, so that locks are taken in the same order everywhere::

    rows of `exclusive`, by key   →   rows of `run`

Neither transaction waits: a key or a run that another transaction has locked stays queued until the next claim. So a
claim is never part of a deadlock. The row of a key that was never used is inserted before, in a separate transaction,
because an INSERT may wait for another. (A claim may wait for one row: that of a holder that is asked to stop. A
transaction that has it locked commits soon, or would have needed the key's row first.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fencepost.core.overlap import SKIP, SKIP_LATE, Decision, Replace, SkipRun, lost_to_catching_up
from fencepost.core.runs import Claim
from fencepost.ledger.claim_order import ranks
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import ClaimRequest, LedgerStatements, Match, listed, rounded, statements_for

MOST_AT_ONCE = 500  # runs in one claim


class OverlapRule(Protocol):
    """Decides about a run that is about to be claimed. Pure.

    `is_tick` means that the run is for exactly one due time; a run that makes up for several missed ones is not a tick
    here.
    """

    def __call__(self, job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision: ...


class SkippedRun(NamedTuple):
    """A run that was skipped, because run `holder` has its exclusive key."""

    run_id: int
    job: str
    reason: str
    holder: int


class Blocked(NamedTuple):
    """A run that waits for its exclusive key, which run `holder` has."""

    run_id: int
    job: str
    key: str
    holder: int


class Claimed(NamedTuple):
    """The result of a claim. `more` means that it reached its limit, so there may be more due runs.

    `contested` is the number of runs that were left because another transaction had them locked or changed them.
    """

    now_us: int
    claims: list[Claim]
    skipped: list[SkippedRun]
    blocked: list[Blocked]
    more: bool
    contested: int = 0


def claim(
    connection: LedgerConnection,
    *,
    node: str,
    jobs: Collection[str],
    queues: Collection[str],
    limit: int,
    decide: OverlapRule,
    gate: Mapping[str, int] | None = None,
) -> Claimed:
    """Claim up to `limit` due runs of these jobs from these queues, most urgent first.

    With a `gate`, a key is taken only with the token that the gate has for it; runs with other keys are left alone.
    """
    statements = statements_for(connection)
    limit = rounded(min(limit, MOST_AT_ONCE))
    taken = statements.take(
        connection, ClaimRequest(node, tuple(jobs), tuple(queues), limit, None if gate is None else tuple(gate))
    )
    is_full = len(taken.claims) + len(taken.keyed) >= limit
    if not taken.keyed:
        return Claimed(taken.now_us, taken.claims, [], [], is_full)
    keyed_claims = KeyedClaims(statements, node=node, now_us=taken.now_us, decide=decide, gate=gate)
    keyed_claims.starting.update(each.run_id for each in taken.claims)
    settled = keyed_claims.serve(connection, taken.keyed)
    served = len(settled.claims) + len(settled.skipped) + len(settled.blocked)
    contested = len(taken.keyed) - served if gate is None else 0
    return Claimed(taken.now_us, taken.claims + settled.claims, settled.skipped, settled.blocked, is_full, contested)


_MINE = "SELECT {columns} FROM {run} r WHERE r.state = 'running' AND r.node = %s ORDER BY r.id"


def mine(connection: LedgerConnection, *, node: str) -> list[Claim]:
    """Return all runs that a node holds: after a claim without a reply, also those that the node does not know of."""
    statements = statements_for(connection)
    return [Claim(*row) for row in connection.read(lambda cursor: statements.rows(cursor, _MINE, node))]


class WantedKey(NamedTuple):
    """The key of due runs, the highest token given under it, and whether a run holds it now."""

    key: str
    last_token: int
    is_taken: bool


_RANKS = ranks("r")
_KEYS = """
SELECT k.name, {greatest}(coalesce((SELECT x.token FROM {exclusive} x WHERE x.key = k.name), 0), k.token),
  (SELECT x.run_id FROM {exclusive} x WHERE x.key = k.name)
FROM (
  SELECT r.exclusive_key AS name, max(r.token) AS token, <ranks>
  FROM {run} r{claimable} WHERE r.state = 'queued' AND {texts:r.queue} AND {texts:coalesce(r.job, '')}
    AND r.available_at <= %s AND r.exclusive_key IS NOT NULL AND NOT ({texts:r.exclusive_key})
  GROUP BY r.exclusive_key) k
ORDER BY <order>, k.name
"""
_KEYS = _KEYS.replace("<ranks>", ", ".join(f"min({rank}) AS rank_{index}" for index, rank in enumerate(_RANKS)))
_KEYS = _KEYS.replace("<order>", ", ".join(f"k.rank_{index}" for index in range(len(_RANKS))))


def keys_wanted(
    connection: LedgerConnection,
    *,
    jobs: Collection[str],
    queues: Collection[str],
    limit: int,
    without: Collection[str] = (),
) -> list[WantedKey]:
    """Return keys of due runs, most urgent first: those to take at the gate before a claim."""
    statements = statements_for(connection)

    def ask(cursor: Cursor) -> list[Any]:
        now_us = statements.now_us(cursor)
        template = f"{_KEYS} LIMIT {rounded(limit)}"
        return statements.rows(
            cursor, template, statements.texts(queues), statements.texts(jobs), now_us, statements.texts(without)
        )

    return [WantedKey(key, token, run_id is not None) for key, token, run_id in connection.read(ask)]


# -- runs with an exclusive key


_LOCK_KEYS = """
SELECT x.key, x.run_id, x.token, {clock} FROM {exclusive} x WHERE {texts:x.key} ORDER BY x.key{skip_locked}
"""
_KEYS_THERE = "SELECT x.key FROM {exclusive} x WHERE {texts:x.key}"
_MAKE_KEYS = "INSERT INTO {exclusive} ({key}, token) SELECT e.name, 0 FROM {rows:e name=text} WHERE true"
# Since they were found, another node may have tried them without success: then they are queued again with a back-off.
# Or their queue was paused.
_LOCK_RUNS = """
SELECT {columns}, r.origin_key FROM {run} r
WHERE {ints:r.id} AND {was:r.state} = 'queued' AND r.available_at + 0 <= %s AND {unpaused:r.queue %s}{skip_locked}
"""
_CATCHING_UP = "SELECT r.id, r.ticks FROM {run} r WHERE {ints:r.id} AND r.ticks > 1"
_IS_QUEUED = Match("id", "id", "{was:r.state} = 'queued'")
_STARTED = "{rows:e id=int name=text token=int node=text started_at=int}"
_START = {
    "state": "'running'",
    "node": "e.node",
    "started_at": "e.started_at",
    "token": "e.token",
    "attempts": "r.attempts + 1",
}
_PUT_ASIDE = "{rows:e id=int state=text waits_for=text why=text ended_at=int}"
_ASIDE = {name: f"e.{name}" for name in ("state", "waits_for", "why", "ended_at")}
_STOP = """
UPDATE {run} SET cancel_requested_at = %s, cancel_by = %s
WHERE id = %s AND state = 'running' AND cancel_requested_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class KeyDecisions:
    """The decisions about candidates with a key. `new_keys` have no row yet; nothing is decided about these."""

    claims: list[Claim] = field(default_factory=list)
    skipped: list[SkippedRun] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)  # holder, and the run that replaces it
    new_keys: frozenset[str] = frozenset()

    def __add__(self, other: KeyDecisions) -> KeyDecisions:
        return KeyDecisions(
            self.claims + other.claims,
            self.skipped + other.skipped,
            self.blocked + other.blocked,
            self.stops + other.stops,
            self.new_keys | other.new_keys,
        )


class KeyedClaims:
    """Claims candidates with an exclusive key, in order."""

    def __init__(
        self,
        statements: LedgerStatements,
        *,
        node: str,
        now_us: int,
        decide: OverlapRule,
        gate: Mapping[str, int] | None,
    ) -> None:
        self._statements = statements
        self._node = node
        self._now_us = now_us
        self._decide = decide
        self._gate = gate
        self.starting: set[int] = set()  # the runs that this claim starts

    def serve(self, connection: LedgerConnection, keyed: Sequence[tuple[int, str]]) -> KeyDecisions:
        """Decide about all candidates whose key is not locked. Rows of new keys are inserted first."""
        settled = connection.write(lambda cursor: self._serve(cursor, keyed))
        left = [pair for pair in keyed if pair[1] in settled.new_keys]
        if left:
            connection.write(lambda cursor: self._make_keys(cursor, {key for _, key in left}))
            settled += connection.write(lambda cursor: self._serve(cursor, left))
        return settled

    def _make_keys(self, cursor: Cursor, keys: Iterable[str]) -> None:
        statements = self._statements
        sql = _MAKE_KEYS + statements.dialect.unless_there(statements.fields["exclusive"], statements.key)
        statements.change(cursor, sql, listed([[key] for key in sorted(keys)]))

    def _serve(self, cursor: Cursor, keyed: Sequence[tuple[int, str]]) -> KeyDecisions:
        statements, keys = self._statements, sorted({key for _, key in keyed})
        locked = statements.rows(cursor, _LOCK_KEYS, *statements.clock(), statements.texts(keys))
        # The time is read with the keys locked: since the search, this process may have been paused, and another run
        # may have had the key.
        self._now_us = max([self._now_us, *(at_us for *_, at_us in locked)])
        holders = {key: (run_id, token) for key, run_id, token, _ in locked}
        settled = KeyDecisions(new_keys=self._without_row(cursor, [key for key in keys if key not in holders]))
        ids = [run_id for run_id, key in keyed if key in holders]
        if ids:
            now_us = self._now_us
            found = statements.rows(cursor, _LOCK_RUNS, statements.ints(ids), now_us, now_us)
            runs = {row[0]: row for row in found}
            self._settle(settled, [runs[run_id] for run_id in ids if run_id in runs], holders)
            self._explain_skipped(cursor, settled)
            self._write(cursor, settled)
        return settled

    def _without_row(self, cursor: Cursor, keys: Sequence[str]) -> frozenset[str]:
        """Return those of these keys that have no row; the rows of the others are locked by another transaction."""
        if not keys:
            return frozenset()
        there = {row[0] for row in self._statements.rows(cursor, _KEYS_THERE, self._statements.texts(keys))}
        return frozenset(keys) - there

    def _settle(
        self, settled: KeyDecisions, rows: Sequence[Sequence[Any]], holders: Mapping[str, tuple[int | None, int]]
    ) -> None:
        """Decide about each run in order: the first that finds its key free gets it."""
        held = dict(holders)
        for *fields, origin_key in rows:
            found = Claim(*fields)
            key = found.exclusive_key or ""
            holder, last_token = held[key]
            decision = self._decide(
                found.job,
                is_tick=(origin_key or "").startswith("tick:") and found.ticks == 1,
                attempts=found.attempt,
                key_is_taken=holder is not None,
            )
            if holder is not None:
                is_late = decision == SKIP and holder in self.starting
                _put_off(settled, found, holder, SKIP_LATE if is_late else decision)
            elif (token := self._token(key, max(last_token, found.token))) is not None:
                held[key] = (found.run_id, token)
                self.starting.add(found.run_id)
                settled.claims.append(self._started(found, token))

    def _explain_skipped(self, cursor: Cursor, settled: KeyDecisions) -> None:
        """Where a tick was skipped for a run that makes up for missed due times, as after a restart, name that run."""
        if not settled.skipped:
            return
        holders = self._statements.ints(sorted({each.holder for each in settled.skipped}))
        catching_up = dict(self._statements.rows(cursor, _CATCHING_UP, holders))
        for number, each in enumerate(settled.skipped):
            if each.holder in catching_up:
                reason = lost_to_catching_up(each.holder, catching_up[each.holder])
                settled.skipped[number] = each._replace(reason=reason)

    def _token(self, key: str, last_token: int) -> int | None:
        """Return the token to start with; None if the one from the gate is not above all earlier ones."""
        if self._gate is None:
            return max(last_token + 1, self._now_us)
        token = self._gate.get(key)
        return token if token is not None and token > last_token else None

    def _started(self, found: Claim, token: int) -> Claim:
        return found._replace(attempt=found.attempt + 1, token=token, claimed_at_us=self._now_us)

    def _write(self, cursor: Cursor, settled: KeyDecisions) -> None:
        if settled.claims:
            self._start(cursor, settled.claims)
        if settled.skipped or settled.blocked:
            self._put_aside(cursor, settled)
        for holder, by in settled.stops:
            self._statements.change(cursor, _STOP, self._now_us, f"run {by} (overlap is replace)", holder)
        if settled.stops:
            self._statements.notify(cursor)

    def _start(self, cursor: Cursor, claims: Sequence[Claim]) -> None:
        statements = self._statements
        rows = listed([[claim.run_id, claim.exclusive_key, claim.token, self._node, self._now_us] for claim in claims])
        statements.change(cursor, statements.update_from("run", source=_STARTED, on=_IS_QUEUED, sets=_START), rows)
        sets = {"run_id": "e.id", "token": "e.token"}
        statements.change(
            cursor, statements.update_from("exclusive", source=_STARTED, on=Match("key", "name"), sets=sets), rows
        )

    def _put_aside(self, cursor: Cursor, settled: KeyDecisions) -> None:
        statements, now_us = self._statements, self._now_us
        rows = [[each.run_id, "skipped", None, each.reason, now_us] for each in settled.skipped]
        rows += [[each.run_id, "waiting", "key", _why(each), None] for each in settled.blocked]
        update = statements.update_from("run", source=_PUT_ASIDE, on=_IS_QUEUED, sets=_ASIDE)
        statements.change(cursor, update, listed(rows))


def _put_off(settled: KeyDecisions, found: Claim, holder: int, decision: Decision) -> None:
    """Add a run whose key is taken to the decisions. If `decide` would start it nevertheless, it waits."""
    if isinstance(decision, SkipRun):
        settled.skipped.append(SkippedRun(found.run_id, found.job, decision.reason, holder))
        return
    settled.blocked.append(Blocked(found.run_id, found.job, found.exclusive_key or "", holder))
    if isinstance(decision, Replace):
        settled.stops.append((holder, found.run_id))


def _why(blocked: Blocked) -> str:
    return f"its exclusive key {blocked.key!r} is taken by run {blocked.holder}"

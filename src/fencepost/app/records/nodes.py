"""Nodes, locks, dead letters and the journal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.records.record import LedgerRecord, NodeNames, at_or_none, read_json, seconds_of
from fencepost.core.tick import instant
from fencepost.core.timings import usual_margin_s

if TYPE_CHECKING:
    from fencepost.bulk.letters import StoredLetter
    from fencepost.core.grants import LeaseRecord, PastGrant, SessionSight
    from fencepost.ledger.journal import JournalEntry
    from fencepost.ledger.nodes import NodeRow


@dataclass(frozen=True, slots=True)
class NodeRecord(LedgerRecord):
    """A node. `running`: how many runs it executes; `state`: ``living``, ``draining``, ``overdue``, ``left``, ``dead``.

    A node is overdue if its lease was not renewed for its ttl: the next node that has watched it for a ttl declares it
    dead. `lease_age_s`: when it was renewed last, against `lease_ttl_s`. `trust_left_s`: for how long the node may go
    on without a renewal, at most, if its margin is the usual one. `lease_mark`: a number that is another one after each
    renewal. None where the lease store does not show it.
    `drain_by`: the person who has asked it to drain, at `drain_asked_at`.
    """

    id: str
    name: str
    state: str
    running: int
    slots: int
    queues: Sequence[str]
    jobs: Sequence[str]
    generation: int
    version: str
    token: int
    started_at: datetime
    draining_at: datetime | None
    left_at: datetime | None
    dead_at: datetime | None
    dead_why: str | None
    longest_pause_s: float | None
    drain_asked_at: datetime | None
    drain_by: str | None
    lease_age_s: float | None
    lease_ttl_s: float | None
    trust_left_s: float | None
    lease_mark: int | None = None

    @staticmethod
    def of(row: NodeRow, *, running: int, sights: Mapping[str, SessionSight] | None = None) -> NodeRecord:
        """Read a row of the ledger; `sights` are the sessions that the lease store shows, None if it does not."""
        sight = None if sights is None or not row.is_living else sights.get(row.grant_id)
        return NodeRecord(
            id=row.id,
            name=row.name,
            state=_node_state(row, is_overdue=sights is not None and not (sight and sight.is_current)),
            running=running,
            slots=row.slots,
            queues=tuple(row.queues),
            jobs=tuple(row.jobs),
            generation=row.generation,
            version=row.version,
            token=row.token,
            started_at=instant(row.started_at),
            draining_at=at_or_none(row.draining_at),
            left_at=at_or_none(row.left_at),
            dead_at=at_or_none(row.dead_at),
            dead_why=row.dead_why,
            longest_pause_s=seconds_of(row.longest_pause_us),
            drain_asked_at=at_or_none(row.drain_asked_at),
            drain_by=row.drain_by,
            lease_age_s=None if sight is None else sight.age_s,
            lease_ttl_s=None if sight is None else sight.ttl_s,
            trust_left_s=None if sight is None else _trust_left_s(sight),
            lease_mark=None if sight is None else sight.renewed_at_us,
        )

    @property
    def is_living(self) -> bool:
        """Whether no end of it is recorded."""
        return self.left_at is None and self.dead_at is None


@dataclass(frozen=True, slots=True)
class LockRecord(LedgerRecord):
    """A lock, held or free. `holder` of a free lock is its last holder.

    `free_in_s`: after how long at most a retry is worthwhile, where the store knows. `last_tick_at`: the last due time
    that was done under it. `kept`: its holder has released it, but it stays closed for a while (`at_least`). `age_s`:
    when the holder's session was renewed last, against `ttl_s`. `waited_for`: whether somebody waits. Both are None
    where the store does not show it. `store`: ``ledger``, or ``leases`` for that of ``App(leases=…)``.
    """

    name: str
    held: bool
    holder: str | None
    token: int
    grant_id: str | None
    acquired_at: datetime | None
    free_in_s: float | None
    last_tick_at: datetime | None
    kept: bool
    age_s: float | None
    ttl_s: float | None
    waited_for: bool | None
    store: str | None

    @staticmethod
    def of(record: LeaseRecord, *, store: str | None = None) -> LockRecord:
        """Read what a lease store has told; `store` is the place that was asked, if it has a name."""
        shows_age = record.is_held and record.ttl_s is not None and record.free_in_s is not None
        return LockRecord(
            name=record.name,
            held=record.is_held,
            holder=record.holder,
            token=record.token,
            grant_id=record.grant_id,
            acquired_at=at_or_none(record.acquired_at_us) if record.is_held else None,
            free_in_s=record.free_in_s,
            last_tick_at=at_or_none(record.last_tick_us),
            kept=not record.is_held and (record.free_in_s or 0.0) > 0.0,
            age_s=max((record.ttl_s or 0.0) - (record.free_in_s or 0.0), 0.0) if shows_age else None,
            ttl_s=record.ttl_s,
            waited_for=record.is_waited_for,
            store=store,
        )


@dataclass(frozen=True, slots=True)
class PastLockRecord(LedgerRecord):
    """A period in which a holder held a lock, and why it ended."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    ended_at: datetime
    why: str

    @staticmethod
    def of(grant: PastGrant) -> PastLockRecord:
        """Read what a lease store has told."""
        return PastLockRecord(
            name=grant.name,
            holder=grant.holder,
            token=grant.token,
            acquired_at=instant(grant.acquired_at_us),
            ended_at=instant(grant.ended_at_us),
            why=grant.why,
        )


@dataclass(frozen=True, slots=True)
class LetterRecord(LedgerRecord):
    """A dead letter: an item of a bulk job that could not be processed. Each `database` numbers its letters separately.

    `item` is the item as JSON, None where only a description was kept, which is `shown`; `tries` how often it was
    processed without success; `state` is ``new``, ``replayed`` or ``dropped``.
    """

    id: int
    job: str
    step: str
    instance: str
    run_id: int | None
    state: str
    item_key: str
    item: Any = field(hash=False)
    shown: str
    error_code: str
    error: str
    tries: int
    created_at: datetime
    can_be_replayed: bool
    database: str

    @staticmethod
    def of(letter: StoredLetter, *, job: str, database: str) -> LetterRecord:
        """Read a row of the database it is in."""
        return LetterRecord(
            id=letter.id,
            job=job,
            step=letter.step,
            instance=letter.instance,
            run_id=letter.run_id,
            state=letter.state,
            item_key=letter.item_key,
            item=json.loads(letter.shown) if letter.can_be_replayed else None,
            shown=letter.shown,
            error_code=letter.error_code,
            error=letter.error,
            tries=letter.attempt,
            created_at=instant(letter.created_at),
            can_be_replayed=letter.can_be_replayed,
            database=database,
        )


@dataclass(frozen=True, slots=True)
class JournalRecord(LedgerRecord):
    """An entry of the journal: an act of a person, or a failure."""

    id: int
    at: datetime
    what: str
    job: str | None
    run_id: int | None
    schedule: str | None
    node: str | None
    node_name: str | None
    token: int | None
    by: str | None
    reason: str | None
    detail: Mapping[str, Any] | None = field(hash=False)

    @staticmethod
    def of(entry: JournalEntry, *, nodes: NodeNames) -> JournalRecord:
        """Read a row of the ledger."""
        return JournalRecord(
            id=entry.id,
            at=instant(entry.at),
            what=entry.what,
            job=entry.job,
            run_id=entry.run_id,
            schedule=entry.schedule,
            node=entry.node,
            node_name=nodes.get(entry.node or ""),
            token=entry.token,
            by=entry.by,
            reason=entry.reason,
            detail=read_json(entry.detail),
        )


def _node_state(row: NodeRow, *, is_overdue: bool) -> str:
    if row.is_living:
        return "overdue" if is_overdue else "living" if row.draining_at is None else "draining"
    return "dead" if row.dead_at is not None else "left"


def _trust_left_s(sight: SessionSight) -> float:
    """Return how long its holder may trust it, at most: it counts from before the store had the renewal."""
    return max(sight.ttl_s - usual_margin_s(sight.ttl_s) - sight.age_s, 0.0)

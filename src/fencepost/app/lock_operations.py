"""Locks and exclusive keys, as operators use them: ``app.operations.locks``. Lists, shows, releases and resets.

An exclusive key of a run is not released here: a run that has it goes on, and would run beside the next one. Cancel the
run, or let its node's death be noticed: both free the key, in the transaction that ends the attempt.

**Promises.** A release ends one grant, that of the token that was given, or none. It is recorded with who, why, whose
grant it was and its token: in the transaction of the release where the leases are beside the ledger's tables, else as
an entry before it (outcome ``begun``) and one after it. An entry ``begun`` without the second one says that this
process ended in between, or lost the ledger.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.app.lease_places import (
    LEASES,
    LEDGER,
    LeasesElsewhere,
    LeasesInLedger,
    Revocation,
    gone_meanwhile,
    leases_at,
    leases_of,
    refuse_other,
)
from fencepost.app.numbers import page_limit
from fencepost.app.people import reason_given
from fencepost.app.records import LockRecord, PastLockRecord
from fencepost.app.records.locks import (
    KeyRecord,
    ReleasedLockRecord,
    ResetLockRecord,
    WaitingRunRecord,
)
from fencepost.app.scoped import acting, actor
from fencepost.core.names import LEADER_LEASE, NODE_LEASE, lock_name
from fencepost.core.noted import Noted
from fencepost.core.rights import Caller, HumanAct, Scope
from fencepost.core.tick import instant
from fencepost.errors import ConfigurationError, FencepostError, InvalidParameters, LockHeld, NoSuchLock
from fencepost.ledger import auditing, journal
from fencepost.ledger.auditing import BEGUN, AuditAct
from fencepost.ledger.held_keys import KeyHolder, holders_of, key_holders, key_waiters
from fencepost.ledger.journal import About
from fencepost.locks import connect

if TYPE_CHECKING:
    from fencepost.core.grants import LeaseRecord
    from fencepost.leases.locks import Locks
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.held_keys import KeyWaiter
    from fencepost.ledger.ledger import Ledger

MOST_WAITING = 1000
"""Waiting runs that are read for one page of keys. A key for which more wait ends the page."""
NOT_DONE, UNKNOWN = "not done", "unknown"
"""Outcomes of an act on another store, in the audit, besides `BEGUN`."""
Place = LeasesInLedger | LeasesElsewhere


class _Act(NamedTuple):
    """Which store is acted on, by whom, and why."""

    store: str
    who: str
    why: str


class LockOperations:
    """Locks of the ledger's own lease store, and of the one that the application names besides."""

    def __init__(
        self,
        ledger: Ledger,
        scope: Scope,
        *,
        locks: Callable[[], Locks] | None,
        leases: Callable[[], Locks] | None,
        node_names: Callable[[builtins.list[str | None]], Mapping[str, str]],
    ) -> None:
        """Act as `scope` allows. `locks` is the nodes' lease store, if it is open; `leases` that of the application."""
        self._ledger = ledger
        self._scope = scope
        self._locks = locks
        self._leases = leases
        self._node_names = node_names

    # -- looking -----------------------------------------------------------------------------------------------------

    def stores(self) -> tuple[str, ...]:
        """Return which stores can be asked: ``ledger``, and ``leases`` if the application names another one."""
        self._scope.require(HumanAct.LOOK)
        return (LEDGER,) if self._leases is None else (LEDGER, LEASES)

    def list(
        self, *, store: str = LEDGER, held: bool = False, after: str = "", limit: int = 100
    ) -> builtins.list[LockRecord]:
        """Return locks by name, from after the name `after` on; with `held`, those that a session has.

        The sessions of nodes are left out: `Operations.nodes` shows them. Needs the role of viewer for all jobs.
        """
        self._scope.require(HumanAct.LOOK)
        found = self._place(store).page(after=_edge(after), limit=page_limit(limit), is_held=held)
        return [LockRecord.of(each, store=store) for each in found]

    def show(self, name: str, *, store: str = LEDGER) -> LockRecord:
        """Return one lock, or raise `NoSuchLock`. Needs the role of viewer for all jobs."""
        self._scope.require(HumanAct.LOOK)
        return LockRecord.of(self._read(self._place(store), name), store=store)

    def history(
        self, name: str | None = None, *, store: str = LEDGER, limit: int = 100
    ) -> builtins.list[PastLockRecord] | None:
        """Return who held which lock until when, and why it ended, newest first; None if the store keeps no history."""
        self._scope.require(HumanAct.LOOK)
        known = None if name is None else lock_name(name)
        found = self._place(store).history(known, limit=page_limit(limit))
        return None if found is None else [PastLockRecord.of(each) for each in found]

    def leaders(self, *, limit: int = 100) -> builtins.list[PastLockRecord]:
        """Return the nodes that led until now, newest first: who, token, from when, until when, and why it ended."""
        return self.history(LEADER_LEASE, limit=limit) or []

    def keys(self, *, after: str = "", limit: int = 100) -> builtins.list[KeyRecord]:
        """Return the exclusive keys that a run has or waits for, by key, from after the key `after` on.

        Within a scope: those that a run of its jobs has or waits for. A page may have fewer than `limit` keys although
        more follow, if its last key has `more_waiting`.
        """
        most, visible, start = page_limit(limit), self._scope.visible, _edge(after)
        if most == 0:
            return []

        def read(cursor: Cursor) -> tuple[builtins.list[KeyHolder], builtins.list[KeyWaiter], builtins.list[KeyHolder]]:
            holders = key_holders(self._ledger, cursor, after=start, limit=most, jobs=visible)
            waiting = key_waiters(self._ledger, cursor, after=start, limit=MOST_WAITING + 1, jobs=visible)
            known = {each.key for each in holders}
            unknown = sorted({each.key for each in waiting} - known)
            return holders, waiting, holders_of(self._ledger, cursor, unknown)

        holders, waiting, others = self._ledger.read(read)
        cut_at = waiting[MOST_WAITING - 1].key if len(waiting) > MOST_WAITING else None
        names = sorted({each.key for each in holders} | {each.key for each in waiting[:MOST_WAITING]})
        shown = [each for each in names if cut_at is None or each <= cut_at][:most]
        by_key = {each.key: each for each in holders + others}
        nodes = self._node_names([each.node for each in by_key.values() if self._scope.sees(each.job)])
        runs: dict[str, builtins.list[WaitingRunRecord]] = {}
        for each in waiting[:MOST_WAITING]:
            runs.setdefault(each.key, []).append(WaitingRunRecord(each.run_id, each.job))
        return [self._key(key, by_key.get(key), runs.get(key, []), nodes=nodes, is_cut=key == cut_at) for key in shown]

    # -- acting ------------------------------------------------------------------------------------------------------

    def release(
        self, name: str, *, by: str, reason: str, token: int | None = None, store: str = LEDGER
    ) -> ReleasedLockRecord:
        """Take a lock away from its holder, by force. See `fencepost.app.records.locks.release_consequence`.

        With `token`, only from the holder that has it: raises `StateChanged` if another one holds the lock. Nothing is
        done, and nothing recorded, if nobody holds it. The session of a node is refused: stop that node instead.
        """
        self._scope.require(HumanAct.RELEASE_LOCK)
        known, place = _lock_of_people(name), self._place(store)
        act = _Act(store, actor(self._scope, by), reason_given(reason))
        record = self._read(place, known)
        with acting(self._scope):
            if isinstance(place, LeasesElsewhere):
                return self._release_elsewhere(place, record, act, token)
            return self._ledger.write(lambda cursor: self._noted(cursor, place.release(cursor, known, token), act))

    def reset(self, name: str, *, by: str, reason: str, store: str = LEDGER) -> ResetLockRecord:
        """Bring back the token of a free lock that a wrong clock has put more than a day ahead.

        See `fencepost.leases.locks.Locks.reset`. The lock is taken for a moment.
        """
        self._scope.require(HumanAct.RELEASE_LOCK)
        known, act = _lock_of_people(name), _Act(store, actor(self._scope, by), reason_given(reason))
        before = self._read(self._place(store), known)
        detail = {"lock": known, "store": store, "was": before.token}
        with acting(self._scope):
            self._say(act, BEGUN, detail | {"to": "reset"})
            try:
                token = self._reset(store, known, act.why)
            except FencepostError as error:
                self._say(act, NOT_DONE, detail | {"to": "reset", "why": type(error).__name__})
                if isinstance(error, LockHeld):
                    raise ConfigurationError(f"{error}; end its holder, or release it first") from None
                raise

            def work(cursor: Cursor) -> ResetLockRecord:
                about = About(by=act.who, reason=act.why, token=token, detail=detail)
                journal.note(self._ledger, cursor, Noted.LOCK_RESET, about)
                return ResetLockRecord(known, store, before.token, token)

            return self._ledger.write(work)

    def _release_elsewhere(
        self, place: LeasesElsewhere, record: LeaseRecord, act: _Act, token: int | None
    ) -> ReleasedLockRecord:
        """Release in a store that cannot share a transaction with the audit: say so before, and what came of it."""
        if not record.is_held:
            return _released(Revocation(record, is_released=False), act.store)
        refuse_other(record, token)
        detail = _detail(record, act.store)
        self._say(act, BEGUN, detail)
        try:
            is_done = place.release(record)
        except FencepostError as error:
            self._say(act, UNKNOWN, detail | {"why": type(error).__name__})
            raise
        if not is_done:
            self._say(act, NOT_DONE, detail)
            raise gone_meanwhile(record.name)
        return self._ledger.write(lambda cursor: self._noted(cursor, Revocation(record, is_released=True), act))

    def _noted(self, cursor: Cursor, taken: Revocation, act: _Act) -> ReleasedLockRecord:
        """Note a release in the transaction of `cursor`, unless there was nothing to release."""
        if taken.is_released:
            about = About(by=act.who, reason=act.why, token=taken.record.token, detail=_detail(taken.record, act.store))
            journal.note(self._ledger, cursor, Noted.LOCK_RELEASED, about)
        return _released(taken, act.store)

    def _say(self, act: _Act, outcome: str, detail: Mapping[str, Any]) -> None:
        """Record in the audit how far an act on another store is."""
        caller = Caller(act.who) if self._scope.is_direct else self._scope.caller
        said = AuditAct(caller, HumanAct.RELEASE_LOCK, reason=act.why, outcome=outcome, detail=detail)
        self._ledger.write(lambda cursor: auditing.record(self._ledger, cursor, said))

    def _reset(self, store: str, name: str, reason: str) -> int:
        if store == LEASES and self._leases is not None:
            return self._leases().reset(name, reason=reason).token
        with connect(self._ledger.url.lease_url(), runtime=self._ledger.runtime) as own:
            return own.reset(name, reason=reason).token

    def _read(self, place: Place, name: str) -> LeaseRecord:
        found = place.read(lock_name(name))
        if found is None:
            raise NoSuchLock(name)
        return found

    def _place(self, store: str) -> Place:
        if store == LEDGER:
            return leases_of(self._ledger, self._locks)
        if store == LEASES and self._leases is not None:
            return leases_at(self._leases)
        raise InvalidParameters(
            f"there is no store {str(store)[:40]!r} here: {LEDGER}, and {LEASES} where the application names another "
            "one (leases=…) and its code is loaded"
        )

    def _key(
        self,
        key: str,
        holder: KeyHolder | None,
        waiting: builtins.list[WaitingRunRecord],
        *,
        nodes: Mapping[str, str],
        is_cut: bool,
    ) -> KeyRecord:
        is_seen = holder is not None and self._scope.sees(holder.job)
        seen = holder if is_seen else None
        return KeyRecord(
            key=key,
            held=holder is not None,
            run_id=None if seen is None else seen.run_id,
            job=None if holder is None else self._scope.named(holder.job),
            node=None if seen is None else seen.node,
            node_name=None if seen is None else nodes.get(seen.node or ""),
            token=None if seen is None else seen.token,
            since_at=None if seen is None or seen.started_at is None else instant(seen.started_at),
            waiting=tuple(waiting),
            more_waiting=is_cut,
        )


def _edge(after: str) -> str:
    """Return the name at which a page begins; refuse what no database takes as a text."""
    if "\x00" in after or after.encode("utf-8", "ignore").decode() != after:
        raise InvalidParameters("after= is not the name of a lock or key")
    return after


def _lock_of_people(name: str) -> str:
    """Return the name of a lock that may be taken away; refuse the session of a node."""
    if lock_name(name).startswith(NODE_LEASE):
        raise InvalidParameters(
            f"{name!r} is the session of a node, and not a lock: stop that node, and its runs go to the others"
        )
    return name


def _detail(record: LeaseRecord, store: str) -> dict[str, Any]:
    return {"lock": record.name, "store": store, "holder": record.holder, "token": record.token}


def _released(taken: Revocation, store: str) -> ReleasedLockRecord:
    record = taken.record
    return ReleasedLockRecord(record.name, store, taken.is_released, record.holder, record.token)

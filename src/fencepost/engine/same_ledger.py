"""The check that a node still works with the same ledger, and not with an older dump or a copy of it.

It is made when the node joins, before the first statement on each new connection of a loop, and every few seconds.
While an operator has to decide (`fencepost restored`), `is_held` is True: then nothing is planned, claimed, reaped or
pruned. Running runs continue, and are finished if the ledger still has them. Requests are recorded, and wait.

The node remembers what it has seen of the ledger, by which it recognizes an older state of it
(`fencepost.core.restored`). This memory is lost when all nodes restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from fencepost.core.duration import spelled
from fencepost.core.events import Event, What
from fencepost.core.restored import LEASES, LONGEST_GAP_US, Behind, Changed, Memory, is_ahead, judge
from fencepost.core.runtime import Runtime
from fencepost.errors import LedgerHeld
from fencepost.leases.store import LedgerMark
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.standing import LedgerStanding, advance, beat, hold, note_evidence, standing

_EVERY_S = 10.0  # seldom: an idle node costs less than a statement a second
_EVERY_HELD_S = 2.0  # how soon work continues after an operator has accepted the ledger
_WATCHED = 20  # the schedules that this node planned last: if these are in the ledger, so are the earlier ones


class SameLedger:
    """What a node knows of its ledger, and whether it may use it. Several loops use it at once."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        runtime: Runtime,
        emit: Callable[[Event], None],
        noted: Callable[[LedgerMark], tuple[str, LedgerMark] | None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._noted = noted  # what the lease store knows of the ledger, if it is a separate store
        self._runtime = runtime
        self._emit = emit
        self._lock = runtime.lock()  # guards `_memory`
        self._check_lock = runtime.lock()  # held during a check
        self._memory = Memory()
        self._check_at = float("-inf")
        self._checking: LedgerConnection | None = None
        self.held_why: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether nothing may be planned, claimed, reaped or pruned until an operator has decided."""
        return self.held_why is not None

    def watch(self, connection: LedgerConnection) -> None:
        """Check the ledger each time that `connection` is opened, before its first statement."""
        connection.on_open = partial(self._opened, connection)

    def planned(self, through: Iterable[tuple[str, int]]) -> None:
        """Remember how far schedules are planned. Called after the commit."""
        known = dict(through)
        if not known:
            return
        with self._lock:
            # The schedules that were planned last come last.
            before = {name: at for name, at in self._memory.planned.items() if name not in known}
            self._memory = replace(self._memory, planned=before | known)

    def claimed(self, top_id: int) -> None:
        """Remember the highest id that was seen."""
        if top_id > (self._memory.top_id or 0):
            with self._lock:
                self._memory = replace(self._memory, top_id=max(top_id, self._memory.top_id or 0))

    def is_due(self, now: float) -> bool:
        """Whether it is time to check again."""
        return now >= self._check_at

    def doubt(self) -> None:
        """Check again as soon as possible, because a call to the ledger failed."""
        self._check_at = float("-inf")

    def check(self, connection: LedgerConnection) -> bool:
        """Check the ledger, and hold or continue accordingly. Return True if this has ended a hold."""
        with self._check_lock:
            was_held = self.is_held
            self._checking = connection
            try:
                self._settle(connection, *self._looked(connection))
            finally:
                self._checking = None
        self._check_at = self._runtime.monotonic() + (_EVERY_HELD_S if self.is_held else _EVERY_S)
        return was_held and not self.is_held

    def _looked(self, connection: LedgerConnection) -> tuple[LedgerStanding, Memory]:
        """Read the state of the ledger. Return it with the memory from before: other loops plan and claim meanwhile."""
        memory = self._remembered()
        seen = self._stands(connection)
        answer = self._noted(_mark(seen))
        if answer is None:
            return seen, memory
        identity, known = answer
        if memory.ledger_id is None and _is_older(seen, known):
            seen = self._stands(connection)  # again: another node may have advanced both since the first reading
            memory = self._as_leases_know(seen, known)
        return seen._replace(present={**seen.present, LEASES: identity}), memory

    def _stands(self, connection: LedgerConnection) -> LedgerStanding:
        return connection.read(lambda cursor: standing(self._ledger, cursor, self._watched()))

    def _as_leases_know(self, seen: LedgerStanding, known: LedgerMark) -> Memory:
        """Return what the lease store recorded about this ledger before, if the ledger lacks it."""
        with self._lock:
            if _is_older(seen, known):
                # No node was alive the whole time and could tell what is missing: an operator has to decide.
                beat_us = max(known.beat_us, seen.ledger.beat_us + LONGEST_GAP_US + 1)
                self._memory = replace(self._memory, ledger_id=known.ledger_id, era=known.era, beat_us=beat_us)
            return self._memory

    # -- one check ---------------------------------------------------------------------------------------------------

    def _opened(self, connection: LedgerConnection, cursor: Cursor) -> None:
        """Refuse a new connection to a ledger that an operator has to decide about, unless that is already known."""
        if self.is_held or self._checking is connection:
            return
        memory = self._remembered()  # first: what other loops add meanwhile does not count as missing
        seen = standing(self._ledger, cursor, self._watched())
        verdict = judge(seen.noted, seen.present, memory, seen.ledger)
        if seen.held_why is not None or isinstance(verdict, Changed | Behind):
            self.doubt()
            raise LedgerHeld("the ledger may have been restored or copied; it is checked before it is used")

    def _settle(self, connection: LedgerConnection, seen: LedgerStanding, memory: Memory) -> None:
        verdict = judge(seen.noted, seen.present, memory, seen.ledger)
        if isinstance(verdict, Changed):
            self._hold(_changed(self._ledger, verdict))
        elif isinstance(verdict, Behind) and not verdict.is_small:
            hold(self._ledger, why := _behind(self._ledger, verdict), connection)
            self._hold(why)
        elif seen.held_why is not None:
            self._hold(seen.held_why)
        else:
            self._go_on(connection, seen, memory, verdict)

    def _go_on(self, connection: LedgerConnection, seen: LedgerStanding, memory: Memory, verdict: object) -> None:
        if seen.noted is None:
            note_evidence(self._ledger, seen.present, connection)
        is_accepted = memory.ledger_id == seen.ledger.ledger_id and memory.era < seen.ledger.era
        if isinstance(verdict, Behind) or (is_accepted and is_ahead(memory, seen.ledger)):
            self._advance(connection, memory, verdict)
        if seen.wants_beat:
            beat(self._ledger, connection)
        self._remember(seen)
        if self.is_held:
            self.held_why = None
            self._emit(
                Event(What.LEDGER_BACK, node="-", reason="an operator has decided which ledger it is; work continues")
            )

    def _advance(self, connection: LedgerConnection, memory: Memory, verdict: object) -> None:
        lacks = (
            f"about {spelled(round(verdict.by_us / 1e6))}"
            if isinstance(verdict, Behind) and verdict.by_us
            else "moments"
        )
        why = (
            f"the ledger lacked {lacks} that this node knows of; due times in between are skipped as 'restored: "
            "unknown', and no id is given again: fencepost runs --state skipped"
        )
        advance(self._ledger, memory, why=why, connection=connection)
        self._emit(Event(What.LEDGER_ADVANCED, node="-", reason=why))

    def _remember(self, seen: LedgerStanding) -> None:
        with self._lock:
            memory, ledger = self._memory, seen.ledger
            if memory.ledger_id != ledger.ledger_id:
                memory = Memory(ledger.ledger_id)
            self._memory = replace(
                memory,
                era=ledger.era,
                beat_us=max(ledger.beat_us, memory.beat_us),
                top_id=max(ledger.top_id or 0, memory.top_id or 0),
            )
        if ledger.ledger_id not in (None, self._ledger.known_identity):
            self._ledger.known_identity, self._ledger.known_naming = ledger.ledger_id, None

    def _hold(self, why: str) -> None:
        if self.held_why != why:
            self.held_why = why
            self._emit(Event(What.LEDGER_HELD, node="-", reason=why))

    def _remembered(self) -> Memory:
        with self._lock:
            return self._memory

    def _watched(self) -> list[str]:
        with self._lock:
            return list(self._memory.planned)[-_WATCHED:]


def _mark(seen: LedgerStanding) -> LedgerMark:
    return LedgerMark(seen.ledger.ledger_id, seen.ledger.era, seen.ledger.beat_us)


def _is_older(seen: LedgerStanding, known: LedgerMark) -> bool:
    """Whether the ledger had been in a later state before."""
    return known.ledger_id == seen.ledger.ledger_id and known > _mark(seen)


def _changed(ledger: Ledger, verdict: Changed) -> str:
    what = " and ".join(verdict.what)
    if verdict.what == (LEASES,):
        return (
            f"{ledger.dialect.product} has its leases in another file than noted: it is reached by two names (a hard "
            "link, a file mounted alone), or the file of leases was removed. Nothing is planned, claimed or reaped. "
            "Let every process use one name; then, if no node is left that uses the other file: "
            f"fencepost restored --accept --reason WHY --ledger '{ledger.url}'"
        )
    return (
        f"this ledger was restored from a dump, copied or moved: not the same {what} as noted. Nothing is planned or "
        f"claimed until an operator decides: {_commands(ledger)}"
    )


def _behind(ledger: Ledger, verdict: Behind) -> str:
    # If only the lease store or a later decision shows it, the difference is unknown.
    by = f", by {spelled(round(verdict.by_us / 1e6))} or more" if verdict.by_us > LONGEST_GAP_US + 1 else ""
    return (
        f"this ledger is older than what a node has seen of it{by}: it was restored. Nothing is planned or claimed "
        f"until an operator decides: {_commands(ledger)}"
    )


def _commands(ledger: Ledger) -> str:
    where = f"--reason WHY --ledger '{ledger.url}'"
    return (
        f"fencepost restored --accept {where} (it is the same ledger, and the other one is gone), or "
        f"fencepost restored --as-copy {where} (the original is still in use elsewhere)"
    )

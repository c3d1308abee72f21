"""The audit, as operators use it: ``app.operations.audit``. Lists, verifies, anchors, exports and prunes the chain.

What is recorded, and what the chain promises and does not, is described in `fencepost.core.audit` and docs/audit.md.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.app.numbers import is_id, page_edge, page_limit
from fencepost.app.records.audit import AnchorRecord, AuditRecord, VerifiedRecord
from fencepost.app.scoped import actor
from fencepost.core.audit import Break, ChainEnd, ChainRow, Damage, breaks
from fencepost.core.audit_words import KNOWN_WORDS, written_as
from fencepost.core.nearest import suggestion
from fencepost.core.rights import Caller, HumanAct, Scope
from fencepost.core.tick import instant
from fencepost.engine.requesting import instant_us
from fencepost.errors import AuditHeadMissing, InvalidParameters
from fencepost.ledger import auditing
from fencepost.ledger.auditing import AuditAct, ChainState
from fencepost.ledger.identity import present_identity
from fencepost.ledger.ledger import Ledger

_MOST_BREAKS = 100  # a rewritten table breaks every entry; the first of them are enough to report


class Audit:
    """The audit of one ledger."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        """Read the chain of `ledger`. Needs the role of admin for all jobs."""
        self._ledger = ledger
        self._scope = scope

    def entries(
        self,
        *,
        job: str | None = None,
        who: str | None = None,
        act: str | None = None,
        run_id: int | None = None,
        before_n: int | None = None,
        limit: int = 100,
    ) -> list[AuditRecord]:
        """Return entries, newest first.

        `act` is a word of the audit, or the act itself: ``retry`` finds those that were done and those refused. Raise
        `InvalidParameters` for a word that the audit never uses.
        """
        self._scope.require(HumanAct.READ_AUDIT)
        if run_id is not None and not is_id(run_id):
            return []
        found = auditing.entries(
            self._ledger,
            jobs=None if job is None else (job,),
            who=who,
            acts=None if act is None else written_as(act),
            run_id=run_id,
            before_n=page_edge(before_n),
            limit=page_limit(limit),
        )
        if act is not None and not found and act not in KNOWN_WORDS:
            raise InvalidParameters(f"the audit has no act {act!r}; {suggestion(act, KNOWN_WORDS)}")
        return [AuditRecord.of(row) for row in found]

    def anchor(self) -> AnchorRecord:
        """Return the end of the chain. Keep it where a user with the database's password cannot change it."""
        self._scope.require(HumanAct.READ_AUDIT)
        head = auditing.state(self._ledger).head
        return AnchorRecord(present_identity(self._ledger), head.n, head.hash, instant(self._ledger.now_us()))

    def verify(self, anchors: Sequence[AnchorRecord] = ()) -> VerifiedRecord:
        """Compare the whole chain with itself, its head and `anchors`, which must be of this ledger.

        Entries that are added during the comparison are not compared: it ends where the chain ended when it began.
        """
        self._scope.require(HumanAct.READ_AUDIT)
        ours = present_identity(self._ledger)
        for anchor in anchors:
            if anchor.ledger != ours:
                raise InvalidParameters(
                    f"the anchor of entry {anchor.n} is of ledger {anchor.ledger}, and this is ledger {ours}"
                )
        try:
            state = auditing.state(self._ledger)
        except AuditHeadMissing as error:
            gone = Break(0, Damage.HEAD_CHANGED, str(error))
            return VerifiedRecord.of([gone], through_n=0, from_n=0, entries=0, anchors=0, pruned_anchors=0)
        counted = _Counted(auditing.chain(self._ledger, after_n=state.floor.n, through_n=state.head.n))
        wanted = [ChainEnd(each.n, each.hash) for each in anchors if each.n >= state.floor.n]
        compared = breaks(counted, head=state.head, floor=state.floor, anchors=wanted)
        strays = [Break(each.n, Damage.INSERTED, "it is outside of the chain") for each in self._outside(state)]
        found = [*itertools.islice(compared, _MOST_BREAKS), *strays]
        if found and auditing.state(self._ledger).floor != state.floor:
            return self.verify(anchors)  # the audit was pruned meanwhile
        return VerifiedRecord.of(
            found,
            through_n=state.head.n,
            from_n=state.floor.n + 1,
            entries=counted.count,
            anchors=len(wanted),
            pruned_anchors=len(anchors) - len(wanted),
        )

    def export(self, *, after_n: int = 0) -> Iterator[str]:
        """Return the chain, oldest entry first, as lines of JSON that a program of thirty lines can verify."""
        self._scope.require(HumanAct.READ_AUDIT)
        return self._exported(after_n)

    def _exported(self, after_n: int) -> Iterator[str]:
        state = auditing.state(self._ledger)
        for row in auditing.chain(
            self._ledger, after_n=max(page_edge(after_n) or 0, state.floor.n), through_n=state.head.n
        ):
            yield json.dumps({"n": row.n, "prev": row.prev, "hash": row.hash, "entry": row.entry})

    def prune(self, *, before: datetime | str, by: str, reason: str | None = None) -> int:
        """Remove the entries from before a time; return how many. The removal is itself an entry."""
        self._scope.require(HumanAct.PRUNE_AUDIT)
        who, before_us = actor(self._scope, by), instant_us(before, what="before")
        state = auditing.state(self._ledger)
        if before_us > self._ledger.now_us():
            raise InvalidParameters(
                f"before={before} is in the future: that would remove everything but the newest entry"
            )
        last = auditing.last_before(self._ledger, before_us)
        if last is None:
            return 0
        caller = Caller(who) if self._scope.is_direct else self._scope.caller
        said = AuditAct(caller, HumanAct.PRUNE_AUDIT, reason=reason)
        return auditing.prune_through(self._ledger, last, said).floor.n - state.floor.n

    def _outside(self, state: ChainState) -> list[ChainRow]:
        """Return entries outside of the chain; none if the chain was appended to or pruned meanwhile."""
        found = auditing.outside(self._ledger, state)
        return found if found and auditing.state(self._ledger) == state else []


class _Counted:
    """Counts what is taken from an iterable."""

    def __init__(self, rows: Iterable[ChainRow]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[ChainRow]:
        for row in self._rows:
            self.count += 1
            yield row


def read_anchors(texts: Collection[str]) -> list[AnchorRecord]:
    """Read anchors as they were printed, one JSON object per line. Skip lines without a hash.

    Refuse a line that has a hash but is not an anchor: an anchor that is silently skipped protects nothing.
    """
    found = []
    for line in (line for text in texts for line in text.splitlines()):
        start = line.find("{")
        if start < 0 or '"hash"' not in line:
            continue
        try:
            found.append(_anchor(json.loads(line[start:])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise InvalidParameters(f"this line is not an anchor: {line[:100]!r}") from None
    return found


def _anchor(parsed: Mapping[str, Any]) -> AnchorRecord:
    if not isinstance(parsed["n"], int) or not re.fullmatch("[0-9a-f]{64}", parsed["hash"]):
        raise ValueError("neither a number nor a hash")
    return AnchorRecord(parsed["ledger"], parsed["n"], parsed["hash"], datetime.fromisoformat(parsed["at"]))

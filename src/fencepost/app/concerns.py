"""What needs a person now, as operators use it: ``app.operations.concerns``. Lists, acknowledges, and what changed.

**Promises.** An acknowledgement is of what the row stood for: what is shown later for the first time needs a person
again, whenever it began, and so does what was acknowledged once its time is over. Of runs that wait too long, those
that could have begun before the latest that was shown are known, too: not all of them are looked at. It changes nothing
else: an acknowledged run that was given up can be repeated.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from fencepost.app.finding_concerns import DAY_US, MOST, ConcernFinder, FoundConcern, Shown, grouped
from fencepost.app.pause_times import pause_end_us
from fencepost.app.records.concerns import AcknowledgedRecord, ChangeRecord, ConcernRecord, details_of
from fencepost.app.records.record import read_json
from fencepost.app.scoped import acting, actor, masked
from fencepost.core.concerns import ARE_BAD, BY_ORDER, WORST_FIRST, ConcernKind, concern_id, covers
from fencepost.core.noted import DONE_BY_PEOPLE
from fencepost.core.rights import HumanAct
from fencepost.core.tick import instant
from fencepost.errors import NotInLedger
from fencepost.ledger import attention
from fencepost.ledger.acknowledging import Acknowledgement, acknowledge, acknowledged, unacknowledge
from fencepost.ledger.journal import About, JournalEntry

if TYPE_CHECKING:
    from fencepost.app.looking import Looking
    from fencepost.core.duration import Duration
    from fencepost.core.rights import Scope
    from fencepost.ledger.ledger import Ledger

_ROWS = 20  # of one kind
_MOST_CHANGES = 50  # acts of people in the list, the newest; the journal has all


Standing = Mapping[str, Mapping[str, Acknowledgement]]
"""The acknowledgements that stand, by kind and id, the newest first."""


class _Row(NamedTuple):
    """A row of the list, and the ids of the others that it stands for."""

    shown: ConcernRecord
    also: Sequence[str]


class Concerns:
    """What needs a person in one ledger."""

    def __init__(self, ledger: Ledger, scope: Scope, ask: Looking, shown: Shown) -> None:
        """Look at `ledger` within `scope`, by means of `ask`."""
        self._ledger = ledger
        self._scope = scope
        self._ask = ask
        self._shown = shown

    def list(self) -> builtins.list[ConcernRecord]:
        """Return what needs a person, worst first, and after it what a person knows of (`acknowledged`)."""
        return [row.shown for row in self._rows()]

    def changes(self) -> builtins.list[ChangeRecord]:
        """Return what changed in the last 24 hours, newest first: deploys, schedules, acts of people.

        Deploys are no single job's: they are shown to those who may see all jobs.
        """
        since_us, seen = self._ledger.now_us() - DAY_US, self._scope.visible
        whats = [str(each) for each in DONE_BY_PEOPLE]
        lines = attention.noted(self._ledger, seen, whats, since_us=since_us, limit=_MOST_CHANGES)
        found = [self._change(line) for line in lines]
        if seen is None:
            found += [_deployed(each) for each in attention.deploys(self._ledger, since_us=since_us)]
        return sorted(found, key=lambda each: each.at, reverse=True)

    def acknowledge(
        self,
        what: str,
        id: str,
        *,
        by: str,
        note: str | None = None,
        until: datetime | str | None = None,
        duration: Duration | None = None,
    ) -> ConcernRecord:
        """Say that you know of something that `list` shows; until a time, or for a duration, if one is given.

        Raise `NotInLedger` if it is over, or has become another one: then look again.
        """
        who, (found, also) = actor(self._scope, by), self._listed(what, id)
        until_us = pause_end_us(self._ledger, until=until, duration=duration)
        with acting(self._scope):
            about, others = _about(found, who), () if what in BY_ORDER else also
            row = acknowledge(self._ledger, what, id, until_us=until_us, about=about, text=note, also=others)
        return _with(found, AcknowledgedRecord.of(row))

    def unacknowledge(self, what: str, id: str, *, by: str, reason: str | None = None) -> None:
        """Withdraw an acknowledgement, of whoever it is: it needs a person again. `id` is that of the row in `list`."""
        who, (found, also) = actor(self._scope, by), self._listed(what, id)
        known = id if found.acknowledged is None else found.acknowledged.id
        with acting(self._scope):
            about = _about(found, who)._replace(reason=reason)
            if not unacknowledge(self._ledger, what, known, about=about, also=also):
                raise NotInLedger(f"{what} {id} is not acknowledged; nothing was done")

    def _rows(self) -> builtins.list[_Row]:
        finder = ConcernFinder(self._ledger, self._scope, self._ask, self._shown)
        groups = grouped(finder.found())
        standing = self._standing(finder.now_us) if groups else {}
        rows: builtins.list[_Row] = []
        for kind in WORST_FIRST:
            of_kind = [group for (each, _), group in groups.items() if each is kind]
            for group in sorted(of_kind, key=lambda group: group[0].occurrence)[:_ROWS]:
                rows += _rows(kind, group, standing)
        return sorted(rows, key=lambda row: row.shown.acknowledged is not None)

    def _listed(self, what: str, id_: str) -> _Row:
        """Return the row of this name, if the caller may acknowledge it."""
        found = next((each for each in self._rows() if (each.shown.what, each.shown.id) == (what, id_)), None)
        if found is None:
            raise _not_listed(what, id_)
        self._scope.require(HumanAct.ACKNOWLEDGE, found.shown.job)
        return found

    def _standing(self, now_us: int) -> Standing:
        """Return the acknowledgements whose time is not over."""
        found: dict[str, dict[str, Acknowledgement]] = {}
        for each in acknowledged(self._ledger):
            if each.until is None or each.until > now_us:
                by = str(masked(each.by, self._scope))
                found.setdefault(each.what, {})[each.id] = each._replace(by=by)
        return found

    def _change(self, line: JournalEntry) -> ChangeRecord:
        by = masked(line.by, self._scope)
        about = (line.job, line.run_id, line.schedule)
        details = details_of(line.what, read_json(line.detail))
        return ChangeRecord(instant(line.at), line.what, *about, by, line.reason, details)


def _rows(kind: ConcernKind, group: Sequence[FoundConcern], standing: Standing) -> list[_Row]:
    """Return the row of what nobody has acknowledged, and one for each acknowledgement; each is that of its latest."""
    parts: dict[Acknowledgement | None, list[FoundConcern]] = {}
    firsts: dict[Acknowledgement | None, Acknowledgement] = {}
    for each in group:
        known = _known(kind, concern_id(each.subject, each.occurrence), standing.get(str(kind), {}))
        act = None if known is None else known._replace(id="")  # the same of all that were acknowledged at once
        parts.setdefault(act, []).append(each)
        if known is not None:
            firsts.setdefault(act, known)
    rows = []
    for act, part in parts.items():
        shown, first = _record(part, len(group)), firsts.get(act)
        also = [concern_id(each.subject, each.occurrence) for each in part[1:]]
        rows.append(_Row(shown if first is None else _with(shown, AcknowledgedRecord.of(first)), also))
    return rows


def _known(kind: ConcernKind, id_: str, standing: Mapping[str, Acknowledgement]) -> Acknowledgement | None:
    """Return the acknowledgement of an occurrence, if there is one."""
    if kind not in BY_ORDER:
        return standing.get(id_)
    return next((each for each in standing.values() if covers(each.id, id_)), None)


def _record(group: Sequence[FoundConcern], looked_at: int) -> ConcernRecord:
    latest, more = group[0], len(group) - 1
    words = latest.words() + (f"; and {more}{'+' if looked_at >= MOST else ''} more of this kind" if more else "")
    since_us = latest.occurrence.since_us if latest.since_us is None else latest.since_us
    return ConcernRecord(
        what=str(latest.kind),
        id=concern_id(latest.subject, latest.occurrence),
        level="bad" if latest.kind in ARE_BAD else "warn",
        sentence=words,
        since_at=instant(since_us) if since_us else None,
        job=latest.job,
        run_id=latest.run_id,
        run=latest.run,
        schedule=latest.schedule,
        node=latest.node,
        act=latest.act,
        command=latest.command,
        consequence=latest.consequence,
        pause=latest.pause,
    )


def _with(found: ConcernRecord, known: AcknowledgedRecord) -> ConcernRecord:
    return replace(found, acknowledged=known)


def _about(found: ConcernRecord, who: str) -> About:
    return About(job=found.job, run_id=found.run_id, schedule=found.schedule, node=found.node, by=who)


def _deployed(deploy: attention.Deploy) -> ChangeRecord:
    known = deploy.node is not None
    reason = f"generation {deploy.generation}, fencepost {deploy.version}, on {deploy.node}" if known else None
    return ChangeRecord(instant(deploy.at), "deploy", None, None, None, None, reason)


def _not_listed(what: str, id_: str) -> NotInLedger:
    return NotInLedger(
        f"nothing that needs a person is {what[:60]} {id_[:200]} now: it is over, or has become another one. "
        "fencepost now lists what there is"
    )

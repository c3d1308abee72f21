"""Dead letters, bulk work, the audit and restored ledgers in the name of one caller."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from fencepost.access.authority import CALLER, Authority
from fencepost.app.records import (
    BulkAgainRecord,
    BulkForgottenRecord,
    BulkRecord,
    DecisionRecord,
    LetterRecord,
    StandingRecord,
)
from fencepost.app.records.audit import AnchorRecord, AuditRecord, VerifiedRecord
from fencepost.app.restored import PendingWord
from fencepost.core.rights import HumanAct
from fencepost.ledger.recording import Enqueued
from fencepost.ledger.restoring import ID_GAP


class AuthorizedLetters:
    """``authorized.letters``: the methods of `fencepost.app.letters.Letters`. Needs the application's code."""

    def __init__(self, authority: Authority) -> None:
        """Reach dead letters by `authority`."""
        self._authority = authority

    def iterate(
        self, job: str | None = None, *, state: str | None = None, step: str = "", before_id: int | None = None
    ) -> Iterator[LetterRecord]:
        """Yield letters, newest first in each database, read page by page."""
        return self._authority.looks(lambda ops: ops.letters.iterate(job, state=state, step=step, before_id=before_id))

    def show(self, letter_id: int, *, job: str | None = None, step: str = "") -> LetterRecord:
        """Return one letter, or raise `NoSuchLetter`; refuse a number that means two."""
        return self._authority.looks(lambda ops: ops.letters.show(letter_id, job=job, step=step))

    def replay(
        self,
        job: str,
        ids: Iterable[int] = (),
        *,
        reason: str,
        all_new: bool = False,
        step: str = "",
        again: bool = False,
    ) -> Enqueued | None:
        """Have letters processed again, in a run of its own; None if there is nothing to replay."""
        return self._authority.acts(
            HumanAct.REPLAY_LETTERS,
            reason,
            lambda ops: ops.letters.replay(job, ids, by=CALLER, reason=reason, all_new=all_new, step=step, again=again),
            job=job,
        )

    def drop(self, job: str, ids: Iterable[int] = (), *, reason: str, all_new: bool = False, step: str = "") -> int:
        """Mark letters as dropped; they stay on record. Return how many were."""
        return self._authority.acts(
            HumanAct.DROP_LETTERS,
            reason,
            lambda ops: ops.letters.drop(job, ids, by=CALLER, reason=reason, all_new=all_new, step=step),
            job=job,
        )

    def list(
        self,
        job: str | None = None,
        *,
        state: str | None = None,
        step: str = "",
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[LetterRecord]:
        """Return letters, newest first in each database: those before `before_id`, at most `limit`."""
        return self._authority.looks(
            lambda ops: ops.letters.list(job, state=state, step=step, before_id=before_id, limit=limit)
        )


class AuthorizedBulk:
    """``authorized.bulk``: the methods of `fencepost.app.bulk_instances.BulkInstances`."""

    def __init__(self, authority: Authority) -> None:
        """Reach bulk work by `authority`."""
        self._authority = authority

    def show(self, run_id: int) -> BulkRecord:
        """Return the steps and partitions of what a run stands for: how far each is, and which run does it."""
        return self._authority.looks(lambda ops: ops.bulk.show(run_id))

    def again(self, run_id: int, *, reason: str) -> BulkAgainRecord:
        """Do once more what is complete, from the beginning."""
        return self._authority.acts(
            HumanAct.REPEAT_BULK, reason, lambda ops: ops.bulk.again(run_id, by=CALLER, reason=reason), run=run_id
        )

    def forget(self, run_id: int, *, reason: str) -> BulkForgottenRecord:
        """Forget how far an unfinished job is, so that its next run begins anew."""
        return self._authority.acts(
            HumanAct.FORGET_BULK, reason, lambda ops: ops.bulk.forget(run_id, by=CALLER, reason=reason), run=run_id
        )


class AuthorizedAudit:
    """``authorized.audit``: the methods of `fencepost.app.auditing.Audit`. Needs the role of admin for all jobs."""

    def __init__(self, authority: Authority) -> None:
        """Reach the audit by `authority`."""
        self._authority = authority

    def entries(
        self,
        *,
        job: str | None = None,
        who: str | None = None,
        act: str | None = None,
        run_id: int | None = None,
        before_n: int | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditRecord]:
        """Return entries, newest first."""
        return self._authority.looks(
            lambda ops: ops.audit.entries(job=job, who=who, act=act, run_id=run_id, before_n=before_n, limit=limit),
            HumanAct.READ_AUDIT,
        )

    def anchor(self) -> AnchorRecord:
        """Return the end of the chain."""
        return self._authority.looks(lambda ops: ops.audit.anchor(), HumanAct.READ_AUDIT)

    def verify(self, anchors: Sequence[AnchorRecord] = ()) -> VerifiedRecord:
        """Compare the whole chain with itself, its head and `anchors`."""
        return self._authority.looks(lambda ops: ops.audit.verify(anchors), HumanAct.READ_AUDIT)

    def export(self, *, after_n: int = 0) -> Iterator[str]:
        """Return the chain, oldest entry first, as lines of JSON."""
        return self._authority.looks(lambda ops: ops.audit.export(after_n=after_n), HumanAct.READ_AUDIT)

    def prune(self, *, before: datetime | str, reason: str | None = None) -> int:
        """Remove the entries from before a time; return how many."""
        return self._authority.acts(
            HumanAct.PRUNE_AUDIT,
            reason,
            lambda ops: ops.audit.prune(before=before, by=CALLER, reason=reason),
            before=str(before),
        )


class AuthorizedRestored:
    """``authorized.restored``: the methods of `fencepost.app.restored.RestoredLedger`."""

    def __init__(self, authority: Authority) -> None:
        """Decide by `authority`."""
        self._authority = authority

    def standing(self) -> StandingRecord:
        """Return whether there is something to decide. Needs the role of viewer for all jobs."""
        return self._authority.looks(lambda ops: ops.restored.standing())

    def accept(
        self, *, reason: str, pending: PendingWord = "hold", id_gap: int = ID_GAP, unnoticed: bool = False
    ) -> DecisionRecord:
        """Accept it as the same ledger, in place of one that is gone."""
        return self._authority.acts(
            HumanAct.ACCEPT_LEDGER,
            reason,
            lambda ops: ops.restored.accept(
                by=CALLER, reason=reason, pending=pending, id_gap=id_gap, unnoticed=unnoticed
            ),
        )

    def as_copy(self, *, reason: str, unnoticed: bool = False) -> DecisionRecord:
        """Accept it as a copy with an identity of its own, while the original goes on elsewhere."""
        return self._authority.acts(
            HumanAct.ACCEPT_LEDGER,
            reason,
            lambda ops: ops.restored.as_copy(by=CALLER, reason=reason, unnoticed=unnoticed),
        )

"""Schedules, dead letters, bulk work, the audit and restored ledgers, asked of a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.app.records import (
    BulkAgainRecord,
    BulkForgottenRecord,
    BulkRecord,
    DecisionRecord,
    LetterRecord,
    OutlookRecord,
    ScheduleRecord,
    StandingRecord,
    spelled,
)
from fencepost.app.records.audit import AnchorRecord, AuditRecord, VerifiedRecord
from fencepost.app.records.record import LedgerRecord
from fencepost.app.records.results import ChainLineRecord
from fencepost.app.records.shapes import read_record
from fencepost.cli.remote.connection import ServerConnection, part
from fencepost.core.duration import Duration
from fencepost.core.schedule import Schedule, schedule_to_json
from fencepost.ledger.recording import Enqueued

if TYPE_CHECKING:
    from fencepost.app.restored import PendingWord

R = TypeVar("R", bound=LedgerRecord)
_MOST = 500  # records on a page: the server refuses more (`MOST_ON_A_PAGE`)
_VERIFYING_S = 600.0  # the server answers only when it has read the whole chain
_EDGES = ("id", "n", "name", "key")  # by which of its fields the records of a list are in order


def records(kind: type[R], answer: Mapping[str, Any]) -> list[R]:
    """Return the records of a page."""
    return [read_record(kind, each) for each in answer["items"]]


def pages(
    server: ServerConnection,
    kind: type[R],
    path: str,
    query: Mapping[str, Any],
    *,
    edge: str,
    start: Any,
    limit: int | None,
) -> list[R]:
    """Return the records of a list, as many as `limit` says, page by page; None for all."""
    return list(islice(each_page(server, kind, path, query, edge=edge, start=start, limit=limit), limit))


def each_page(
    server: ServerConnection,
    kind: type[R],
    path: str,
    query: Mapping[str, Any],
    *,
    edge: str,
    start: Any,
    limit: int | None,
) -> Iterator[R]:
    """Yield the records of a list from `start` on; each page begins where the one before has ended."""
    size, last = min(_MOST, limit or _MOST), start
    while True:
        answer = server.get(path, {**query, edge: last, "limit": size})
        found = records(kind, answer)
        yield from found
        if answer["next"] is None or not found:
            return
        last = next(getattr(found[-1], each) for each in _EDGES if hasattr(found[-1], each))


def pause_body(reason: str | None, until: datetime | str | None, duration: Duration | None) -> dict[str, Any]:
    """Return the body of a request to pause something."""
    text = str(duration) if isinstance(duration, int | float) else duration
    return {"reason": reason, "until": time_text(until), "duration": text}


def time_text(at: datetime | str | None) -> str | None:
    """Return a time as it is sent."""
    return spelled(at) if isinstance(at, datetime) else at


class RemoteSchedules:
    """The methods of `fencepost.app.schedules.Schedules` that commands use."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def get(self, id: str) -> ScheduleRecord:
        """Return one schedule, or raise `NoSuchSchedule`."""
        return read_record(ScheduleRecord, self._server.get(f"/schedules/{part(id)}"))

    def iterate(self, *, job: str | None = None) -> Iterator[ScheduleRecord]:
        """Yield all schedules by id."""
        return each_page(self._server, ScheduleRecord, "/schedules", {"job": job}, edge="after", start="", limit=None)

    def preview(self, id: str, *, count: int = 5, year: int | None = None) -> Sequence[OutlookRecord]:
        """Return the next due times of a schedule, or of those of a job."""
        return records(OutlookRecord, self._server.get("/preview", {"of": id, "count": count, "year": year}))

    def put(
        self,
        id: str,
        job: str,
        schedule: Schedule,
        *,
        params: Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
        expect: str | None = None,
        is_new: bool = False,
    ) -> ScheduleRecord:
        """Make a schedule, or change the one of this id."""
        spec = json.loads(schedule_to_json(schedule))
        body = {"job": job, "spec": spec, "params": dict(params or {}), "reason": reason}
        done = self._server.act(f"/schedules/{part(id)}", body, method="PUT", is_new=is_new)
        return read_record(ScheduleRecord, done)

    def pause(
        self,
        id: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> ScheduleRecord:
        """Plan nothing more until `resume`, or until the pause ends by itself."""
        body = pause_body(reason, until, duration)
        return read_record(ScheduleRecord, self._server.act(f"/schedules/{part(id)}/pause", body))

    def resume(self, id: str, *, by: str, reason: str | None = None, expect: str | None = None) -> ScheduleRecord:
        """Plan again from now on."""
        return read_record(ScheduleRecord, self._server.act(f"/schedules/{part(id)}/resume", {"reason": reason}))

    def delete(
        self,
        id: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        even_of_code: bool = False,
        expect: str | None = None,
    ) -> None:
        """Delete a schedule."""
        query = {"reason": reason, "even_of_code": str(even_of_code).lower()}
        self._server.act(f"/schedules/{part(id)}", None, method="DELETE", query=query)


class RemoteLetters:
    """The methods of `fencepost.app.letters.Letters` that commands use."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def iterate(
        self, job: str | None = None, *, state: str | None = None, step: str = "", before_id: int | None = None
    ) -> Iterator[LetterRecord]:
        """Yield letters, newest first in each database."""
        query = {"job": job, "state": state, "step": step or None}
        return each_page(self._server, LetterRecord, "/letters", query, edge="before", start=before_id, limit=None)

    def show(self, letter_id: int, *, job: str | None = None, step: str = "") -> LetterRecord:
        """Return one letter, or raise `NoSuchLetter`."""
        return read_record(LetterRecord, self._server.get(f"/letters/{letter_id}", {"job": job, "step": step or None}))

    def replay(
        self,
        job: str,
        ids: Iterable[int] = (),
        *,
        by: str,
        reason: str,
        all_new: bool = False,
        step: str = "",
        again: bool = False,
    ) -> Enqueued | None:
        """Request a run that processes these letters again."""
        body = {"job": job, "ids": list(ids), "reason": reason, "all_new": all_new, "step": step, "again": again}
        made = self._server.act("/letters/replay", body)
        return Enqueued(made["run_id"], made["is_new"]) if made["run_id"] else None

    def drop(
        self, job: str, ids: Iterable[int] = (), *, by: str, reason: str, all_new: bool = False, step: str = ""
    ) -> int:
        """Mark letters as dropped."""
        body = {"job": job, "ids": list(ids), "reason": reason, "all_new": all_new, "step": step}
        return int(self._server.act("/letters/drop", body)["count"])


class RemoteBulk:
    """The methods of `fencepost.app.bulk_instances.BulkInstances`."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def show(self, run_id: int) -> BulkRecord:
        """Return the progress of what a run stands for."""
        return read_record(BulkRecord, self._server.get(f"/bulk/{run_id}"))

    def again(self, run_id: int, *, by: str, reason: str) -> BulkAgainRecord:
        """Repeat what is complete."""
        return read_record(BulkAgainRecord, self._server.act(f"/bulk/{run_id}/again", {"reason": reason}))

    def forget(self, run_id: int, *, by: str, reason: str) -> BulkForgottenRecord:
        """Forget how far an unfinished job is."""
        return read_record(BulkForgottenRecord, self._server.act(f"/bulk/{run_id}/forget", {"reason": reason}))


class RemoteAudit:
    """The methods of `fencepost.app.auditing.Audit`."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

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
        """Return entries, newest first."""
        query = {"job": job, "who": who, "act": act, "run_id": run_id}
        return pages(self._server, AuditRecord, "/audit", query, edge="before", start=before_n, limit=limit)

    def anchor(self) -> AnchorRecord:
        """Return the end of the chain."""
        return read_record(AnchorRecord, self._server.get("/audit/anchor"))

    def verify(self, anchors: Sequence[AnchorRecord] = ()) -> VerifiedRecord:
        """Compare the whole chain with itself and with `anchors`."""
        body = {"anchors": [each.to_json() for each in anchors]}
        return read_record(VerifiedRecord, self._server.ask("/audit/verify", body, timeout_s=_VERIFYING_S))

    def export(self, *, after_n: int = 0) -> Iterator[str]:
        """Return the chain, oldest entry first, as lines of JSON."""
        found = each_page(self._server, ChainLineRecord, "/audit/export", {}, edge="after", start=after_n, limit=None)
        return (json.dumps(each.to_json()) for each in found)

    def prune(self, *, before: datetime | str, by: str, reason: str | None = None) -> int:
        """Remove the entries from before a time."""
        return int(self._server.act("/audit/prune", {"before": time_text(before), "reason": reason})["count"])


class RemoteRestored:
    """The methods of `fencepost.app.restored.RestoredLedger`."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def standing(self) -> StandingRecord:
        """Return whether a decision is needed."""
        return read_record(StandingRecord, self._server.get("/restored"))

    def accept(
        self,
        *,
        by: str,
        reason: str,
        pending: PendingWord = "hold",
        id_gap: int = 1_000_000,
        unnoticed: bool = False,
    ) -> DecisionRecord:
        """Accept it as the same ledger."""
        body = {"reason": reason, "pending": pending, "id_gap": id_gap, "unnoticed": unnoticed}
        return read_record(DecisionRecord, self._server.act("/restored/accept", body))

    def as_copy(self, *, by: str, reason: str, unnoticed: bool = False) -> DecisionRecord:
        """Accept it as a copy."""
        body = {"reason": reason, "unnoticed": unnoticed}
        return read_record(DecisionRecord, self._server.act("/restored/as-copy", body))

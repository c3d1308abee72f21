"""The operations that commands use, asked of a server: the methods of `fencepost.app.operations.Operations`.

`by` is taken and not sent: who acts is the one whose API token it is. A test compares the parameters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import parse_qsl, urlsplit

from fencepost.app.records import (
    AttemptRecord,
    DueRecord,
    FiguresRecord,
    JobRecord,
    JournalRecord,
    LockRecord,
    LogRecord,
    NodeRecord,
    PartRecord,
    RenamedJobRecord,
    RunRecord,
    RunsFound,
    WhyRecord,
)
from fencepost.app.records.record import LedgerRecord
from fencepost.app.records.results import SearchRecord
from fencepost.app.records.shapes import read_record
from fencepost.app.searching import RunSearch, RunWishes
from fencepost.cli.remote.concerns import RemoteConcerns
from fencepost.cli.remote.connection import ServerConnection, part
from fencepost.cli.remote.locks import RemoteLocks
from fencepost.cli.remote.pauses import RemotePauses
from fencepost.cli.remote.subjects import (
    RemoteAudit,
    RemoteBulk,
    RemoteLetters,
    RemoteRestored,
    RemoteSchedules,
    pages,
    records,
    time_text,
)
from fencepost.core.parameters import Signature
from fencepost.engine.backfilling import Backfilled
from fencepost.errors import ConfigurationError
from fencepost.ledger.recording import Enqueued
from fencepost.ledger.removing import Forgotten
from fencepost.ledger.requests import Cancelled, Retried

if TYPE_CHECKING:
    from fencepost.core.duration import Duration
    from fencepost.core.runtime import Runtime

R = TypeVar("R", bound=LedgerRecord)
Time = datetime | str | None
MOST = 500  # records on a page: the server refuses more (`MOST_ON_A_PAGE`)
_FIGURES_AT_ONCE = 100  # jobs on a page: the server refuses more (`MOST_FIGURES`)
_IDS_AT_ONCE = 200  # so that the address is not too long


_QUERY = {"states": "state", "ids": "id"}


def _asked(value: Any) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    return list(value) if isinstance(value, Collection) and not isinstance(value, str) else value


def _how_far(search: Mapping[str, Any] | None) -> dict[str, Any]:
    if search is None:
        return {}
    found = read_record(SearchRecord, search)
    return {name: getattr(found, name) for name in ("looked_through", "looked_back_to", "looked_back_at")}


class RemoteOperations:
    """Acts and queries of operators, on the ledger of a server."""

    def __init__(self, exchange: ServerConnection, runtime: Runtime) -> None:
        """Ask by `exchange`; `runtime` has the clocks of this process."""
        self.runtime = runtime
        self._server = exchange
        self.schedules = RemoteSchedules(exchange)
        self.letters = RemoteLetters(exchange)
        self.locks = RemoteLocks(exchange)
        self.bulk = RemoteBulk(exchange)
        self.concerns = RemoteConcerns(exchange)
        self.audit = RemoteAudit(exchange)
        self.restored = RemoteRestored(exchange)
        self.pauses = RemotePauses(exchange)

    # -- looking -----------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the present time of the ledger's clock."""
        return datetime.fromisoformat(self._server.get("/ledger")["now"])

    def held_because(self) -> str | None:
        """Return why nodes do nothing with this ledger."""
        found: str | None = self._server.get("/ledger")["held_because"]
        return found

    def why(self, job: str, at: Time = None) -> list[WhyRecord]:
        """Return what became of a due time."""
        return self._list(WhyRecord, "/why", job=job, at=time_text(at))

    def runs(
        self,
        *,
        job: str | None = None,
        states: Collection[str] = (),
        waits_for: str | None = None,
        schedule: str | None = None,
        queue: str | None = None,
        requested_by: str | None = None,
        retry_of: int | None = None,
        exclusive_key: str | None = None,
        since: Time = None,
        until: Time = None,
        ids: Collection[int] | None = None,
        before_id: int | None = None,
        after_id: int | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return runs, newest first; with `after_id` those after it, oldest first."""
        asked = RunWishes(job=job, states=states, waits_for=waits_for, schedule=schedule, queue=queue)
        asked |= RunWishes(requested_by=requested_by, retry_of=retry_of, exclusive_key=exclusive_key)
        asked |= RunWishes(since=since, until=until)
        if ids is not None:
            wanted = list(ids)
            chunks = [wanted[start : start + _IDS_AT_ONCE] for start in range(0, len(wanted), _IDS_AT_ONCE)]
            found = [
                self.find_runs(**asked | {"ids": some}, before_id=before_id, after_id=after_id, limit=MOST)
                for some in chunks
            ]
            return [run for page in found for run in page.runs][:limit]
        rows: list[RunRecord] = []
        while len(rows) < limit:
            page = self.find_runs(**asked, before_id=before_id, after_id=after_id, limit=limit - len(rows))
            rows += page.runs
            if page.next_before is None and page.next_after is None:
                break
            before_id, after_id = page.next_before or before_id, page.next_after or after_id
        return rows

    def find_runs(
        self, *, before_id: int | None = None, after_id: int | None = None, limit: int = 100, **asked: Unpack[RunSearch]
    ) -> RunsFound:
        """Return a page of runs within bounds, and say how far the search came."""
        params = asked.pop("params", None) or {}
        query: dict[str, Any] = {"param": [f"{name}:{text}" for name, text in params.items()]}
        query |= {"before": before_id, "after": after_id, "limit": min(limit, MOST)}
        query |= {_QUERY.get(name, name): _asked(value) for name, value in asked.items()}
        answer = self._server.get("/runs", query)
        edges = dict(parse_qsl(urlsplit(answer["next"] or "").query))
        before, after = (edges.get(name) if answer["next"] else None for name in ("before", "after"))
        return RunsFound(
            records(RunRecord, answer),
            # with `after`, the edge that moves is that one
            next_before=None if before is None or after is not None else int(before),
            next_after=None if after is None else int(after),
            **_how_far(answer.get("search")),
        )

    def run(self, run_id: int) -> RunRecord:
        """Return one run, or raise `NoSuchRun`."""
        return self._one(RunRecord, f"/runs/{run_id}")

    def waits(self, run_id: int) -> str | None:
        """Return what a run waits for."""
        found: str | None = self._server.get(f"/runs/{run_id}/waits")["waits"]
        return found

    def attempts(self, run_id: int) -> list[AttemptRecord]:
        """Return the attempts of a run that have ended."""
        return self._list(AttemptRecord, f"/runs/{run_id}/attempts")

    def log(
        self, run_id: int, *, attempt: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[LogRecord]:
        """Return what a run wrote, in order."""
        # The server refuses more than 100 records of a log.
        return self._list(LogRecord, f"/runs/{run_id}/log", attempt=attempt, after=after, limit=min(limit, 100))

    def parts(self, run_id: int) -> list[PartRecord]:
        """Return the runs of a bulk job's partitions."""
        return self._list(PartRecord, f"/runs/{run_id}/parts")

    def nodes(self, *, living: bool = False, limit: int = 100) -> list[NodeRecord]:
        """Return nodes, the living first."""
        return self._list(NodeRecord, "/nodes", living=str(living).lower(), limit=min(limit, MOST))

    def leader(self) -> LockRecord | None:
        """Return the lock of the present or last leader."""
        found = self._server.get("/leader")
        return None if found is None else read_record(LockRecord, found)

    def jobs(self) -> list[JobRecord]:
        """Return the jobs on record, by name."""
        return pages(self._server, JobRecord, "/jobs", {}, edge="after", start="", limit=None)

    def job(self, name: str) -> JobRecord:
        """Return one job, or raise `NoSuchJob` with a suggestion."""
        return self._one(JobRecord, f"/jobs/{part(name)}")

    def figures(
        self, job: str | None = None, *, since: Time = None, after: str = "", limit: int = 100
    ) -> list[FiguresRecord]:
        """Return how the attempts of jobs ended and how long they took, hour by hour."""
        query, found = {"job": job, "since": time_text(since)}, list[FiguresRecord]()
        while len(found) < limit:
            size = min(_FIGURES_AT_ONCE, limit - len(found))
            answer = self._server.get("/figures", query | {"after": found[-1].job if found else after, "limit": size})
            found += records(FiguresRecord, answer)
            if answer["next"] is None:
                break
        return found

    def journal(
        self,
        *,
        job: str | None = None,
        run_id: int | None = None,
        what: str | None = None,
        since: Time = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JournalRecord]:
        """Return lines of the journal, newest first."""
        query = {"job": job, "run_id": run_id, "what": what, "since": time_text(since)}
        return pages(self._server, JournalRecord, "/journal", query, edge="before", start=before_id, limit=limit)

    def read_params(self, job: str, typed: Mapping[str, str]) -> dict[str, Any]:
        """Convert parameters as they were typed to the types of the job, by the signature on record."""
        return Signature.from_json(json.dumps(dict(self.job(job).signature))).coerce_text(typed, job=job)

    def would_backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[DueRecord]:
        """Return the due times that `backfill` would request."""
        body = _backfill(job, first, last, schedule=schedule, params=params, limit=limit)
        return records(DueRecord, self._server.ask("/backfills/dry-run", body))

    # -- acting ------------------------------------------------------------------------------------------------------

    def trigger(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        by: str,
        reason: str | None = None,
        at: Time = None,
        delay: Duration | None = None,
        key: str | None = None,
        priority: int | None = None,
        again: bool = False,
    ) -> Enqueued:
        """Request a run."""
        body: dict[str, Any] = {
            "job": job,
            "params": dict(params or {}),
            "reason": reason,
            "at": time_text(at),
            "again": again,
        }
        body |= {"delay": None if delay is None else str(delay), "key": key, "priority": priority}
        made = self._server.act("/runs", body)
        return Enqueued(made["run_id"], made["is_new"])

    def backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        by: str,
        reason: str | None = None,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Backfilled:
        """Request one run per due time of a period."""
        body = _backfill(job, first, last, schedule=schedule, params=params, limit=limit)
        made = self._server.act("/backfills", body | {"reason": reason, "key": key, "again": again})
        return Backfilled(made["key"], made["asked"], made["new"])

    def cancel(self, run_id: int, *, by: str, reason: str | None = None, expect: str | None = None) -> Cancelled:
        """Cancel a run, or have it stopped."""
        return Cancelled(self._server.act(f"/runs/{run_id}/cancel", {"reason": reason})["outcome"])

    def retry(
        self,
        run_id: int,
        *,
        by: str,
        reason: str | None = None,
        again: bool = False,
        params: Mapping[str, Any] | None = None,
        expect: str | None = None,
    ) -> int:
        """Repeat a run that has ended; return the id of the new one."""
        changed = {} if params is None else {"params": dict(params)}
        return int(self._server.act(f"/runs/{run_id}/retry", {"reason": reason, "again": again} | changed)["run_id"])

    def release(self, run_id: int, *, by: str, reason: str | None = None, expect: str | None = None) -> None:
        """Release a run that waits for a person."""
        self._server.act(f"/runs/{run_id}/release", {"reason": reason})

    def reprocess(
        self,
        *,
        by: str,
        reason: str | None = None,
        job: str | None = None,
        since: Time = None,
        until: Time = None,
        after_id: int = 0,
        limit: int = 100,
    ) -> list[Retried]:
        """Repeat runs that were given up, each once."""
        body = {"reason": reason, "job": job, "since": time_text(since), "until": time_text(until)}
        made: list[Retried] = []
        while len(made) < limit:
            asked = min(MOST, limit - len(made))
            found = self._server.act("/reprocess", body | {"after": after_id, "limit": asked})["repeated"]
            made += [Retried(each["retry_of"], each["run_id"], each["is_new"]) for each in found]
            if len(found) < asked:
                break
            after_id = made[-1].old_id
        return made

    def drain_node(self, node: str, *, by: str, reason: str | None = None) -> NodeRecord:
        """Ask a living node to drain."""
        return read_record(NodeRecord, self._server.act(f"/nodes/{part(node)}/drain", {"reason": reason}))

    def rename_job(
        self,
        old: str,
        new: str,
        *,
        by: str,
        reason: str | None = None,
        effects: Sequence[str] | None = None,
        into_existing: bool = False,
    ) -> RenamedJobRecord:
        """Rename a job in all records; one with effects in other databases only beside the ledger."""
        if effects is not None:
            raise ConfigurationError("--effects does not work with a server: it takes URLs of databases")
        body: dict[str, Any] = {"old": old, "new": new, "reason": reason}
        body |= {"into_existing": True} if into_existing else {}  # servers of earlier releases do not know it
        return read_record(RenamedJobRecord, self._server.act("/jobs/rename", body))

    def forget_job(self, name: str, *, by: str, reason: str | None = None) -> Forgotten:
        """Forget a job that no living node has."""
        gone = self._server.act(f"/jobs/{part(name)}", None, method="DELETE", query={"reason": reason})
        return Forgotten(gone["schedules"], gone["runs"])

    def _one(self, kind: type[R], path: str) -> R:
        return read_record(kind, self._server.get(path))

    def _list(self, kind: type[R], path: str, **query: Any) -> list[R]:
        return records(kind, self._server.get(path, query))


def _backfill(
    job: str,
    first: datetime | str,
    last: datetime | str,
    *,
    schedule: str | None,
    params: Mapping[str, Any] | None,
    limit: int | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {"job": job, "first": time_text(first), "last": time_text(last), "schedule": schedule}
    body |= {} if params is None else {"params": dict(params)}
    return body | ({} if limit is None else {"limit": limit})

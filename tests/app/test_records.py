"""What a ledger is shown as, written down field by field: whoever changes a name or a type changes this list."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import sqlalchemy

from fencepost import App, Run, cron, every
from fencepost.app import records
from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.app.records import LedgerRecord, LockRecord, OutlookRecord, PastLockRecord
from fencepost.bulk.readers.keyset import keyset
from fencepost.core.grants import LeaseRecord, PastGrant
from fencepost.core.rights import Scope
from fencepost.core.tick import microseconds
from fencepost.engine.why import Became
from fencepost.errors import ConfigurationError, InvalidParameters, NoSuchRun, NoSuchSchedule
from fencepost.testing import until

WINDOW = {"start": "instant or null", "end": "instant"}
RUN = {
    "id": "integer",
    "job": "text",
    "type": "text",
    "state": "text",
    "waits_for": "text or null",
    "why": "text or null",
    "schedule": "text or null",
    "origin_key": "text or null",
    "first_due_at": "instant or null",
    "due_at": "instant or null",
    "ticks": "integer",
    "window": "WindowRecord or null",
    "params": "object",
    "request_hash": "text or null",
    "requested_by": "text or null",
    "reason": "text or null",
    "priority": "integer",
    "queue": "text",
    "exclusive_key": "text or null",
    "attempts": "integer",
    "failures": "integer",
    "crashes": "integer",
    "node": "text or null",
    "node_name": "text or null",
    "token": "integer or null",
    "created_at": "instant",
    "available_at": "instant",
    "started_at": "instant or null",
    "ended_at": "instant or null",
    "cancel_requested_at": "instant or null",
    "cancel_by": "text or null",
    "error_code": "text or null",
    "error": "text or null",
    "result": "anything",
    "progress": "number or null",
    "progress_note": "text or null",
    "sla_at": "instant or null",
    "sla_missed": "boolean or null",
    "retry_of": "integer or null",
    "generation": "integer",
}
ATTEMPT = {
    "run_id": "integer",
    "number": "integer",
    "outcome": "text",
    "node": "text or null",
    "node_name": "text or null",
    "token": "integer",
    "started_at": "instant or null",
    "ended_at": "instant",
    "took_s": "number or null",
    "error_code": "text or null",
    "error": "text or null",
    "trace": "text or null",
}
PART = {
    "run_id": "integer",
    "origin_key": "text",
    "step": "text or null",
    "number": "integer or null",
    "state": "text",
    "progress_note": "text or null",
}
JOB = {
    "name": "text",
    "type": "text",
    "doc": "text or null",
    "policy": "object",
    "strategy": "text or null",
    "signature": "object",
    "generation": "integer",
    "seen_at": "instant",
    "nodes": "integer",
    "renamed_to": "text or null",
}
SCHEDULE = {
    "id": "text",
    "job": "text",
    "when": "text",
    "spec": "object",
    "params": "object",
    "origin": "text",
    "generation": "integer",
    "next_due_at": "instant or null",
    "planned_through_at": "instant",
    "paused_at": "instant or null",
    "paused_by": "text or null",
    "pause_reason": "text or null",
    "paused_until": "instant or null",
    "unserved_at": "instant or null",
    "created_at": "instant",
    "updated_at": "instant",
}
DUE = {"schedule": "text or null", "due_at": "instant or null", "window": "WindowRecord or null"}
NODE = {
    "id": "text",
    "name": "text",
    "state": "text",
    "running": "integer",
    "slots": "integer",
    "queues": "list of text",
    "jobs": "list of text",
    "generation": "integer",
    "version": "text",
    "token": "integer",
    "started_at": "instant",
    "draining_at": "instant or null",
    "left_at": "instant or null",
    "dead_at": "instant or null",
    "dead_why": "text or null",
    "longest_pause_s": "number or null",
    "drain_asked_at": "instant or null",
    "drain_by": "text or null",
    "lease_age_s": "number or null",
    "lease_ttl_s": "number or null",
    "trust_left_s": "number or null",
    "lease_mark": "integer or null",
}
PAUSE = {
    "queue": "text or null",
    "paused_at": "instant",
    "paused_by": "text",
    "paused_until": "instant or null",
    "reason": "text or null",
    "ignored_by": "list of text",
    "version": "text",
}
RESUMED = {"queue": "text or null", "was_paused": "boolean", "left": "list of PauseRecord"}
LOCK = {
    "name": "text",
    "held": "boolean",
    "holder": "text or null",
    "token": "integer",
    "grant_id": "text or null",
    "acquired_at": "instant or null",
    "free_in_s": "number or null",
    "last_tick_at": "instant or null",
    "kept": "boolean",
    "age_s": "number or null",
    "ttl_s": "number or null",
    "waited_for": "boolean or null",
    "store": "text or null",
}
PAST_LOCK = {
    "name": "text",
    "holder": "text",
    "token": "integer",
    "acquired_at": "instant",
    "ended_at": "instant",
    "why": "text",
}
LETTER = {
    "id": "integer",
    "job": "text",
    "step": "text",
    "instance": "text",
    "run_id": "integer or null",
    "state": "text",
    "item_key": "text",
    "item": "anything",
    "shown": "text",
    "error_code": "text",
    "error": "text",
    "tries": "integer",
    "created_at": "instant",
    "can_be_replayed": "boolean",
    "database": "text",
}
LOG = {
    "run_id": "integer",
    "attempt": "integer",
    "position": "text",
    "at": "instant",
    "missing": "integer",
    "lines": "integer",
    "text": "text",
}
JOURNAL = {
    "id": "integer",
    "at": "instant",
    "what": "text",
    "job": "text or null",
    "run_id": "integer or null",
    "schedule": "text or null",
    "node": "text or null",
    "node_name": "text or null",
    "token": "integer or null",
    "by": "text or null",
    "reason": "text or null",
    "detail": "object or null",
}
WHY = {
    "job": "text",
    "schedule": "text or null",
    "at": "instant",
    "became": "text",
    "sentence": "text",
    "run": "RunRecord or null",
    "nearest_at": "list of instant",
    "now": "list of text",
}
COUNTS = dict.fromkeys(("read", "written", "filtered", "skipped", "chunks"), "integer")
PARTITION = {
    "number": "integer",
    "slice": "object",
    "position": "anything",
    "done": "boolean",
    "counts": "CountsRecord or null",
    "run_id": "integer or null",
    "run_state": "text or null",
}
BULK_STEP = {
    "name": "text",
    "state": "text",
    "done_by": "integer or null",
    "other_code": "boolean",
    "counts": "CountsRecord",
    "partitions": "list of PartitionRecord",
}
BULK = {
    "run_id": "integer",
    "job": "text",
    "state": "text",
    "instance": "text",
    "steps": "list of BulkStepRecord",
}
BULK_AGAIN = {"run_id": "integer", "again_of": "integer"}
BULK_FORGOTTEN = {"run_id": "integer", "instance": "text", "checkpoints": "integer", "written": "integer"}
STANDING = {
    "held": "boolean",
    "changed": "list of text",
    "id": "text or null",
    "noted": "object or null",
    "present": "object",
    "why": "text or null",
}
DECISION = {"copy": "boolean", "skipped": "integer", "runs": "integer", "paused": "integer"}
RENAMED_JOB = {
    "name": "text",
    "formerly": "text",
    "schedules": "integer",
    "runs": "integer",
    "checkpoints": "integer",
    "letters": "integer",
    "schedules_deleted": "list of text",
    "permissions_taken": "integer",
}
MOMENT = {"due_at": "instant or null", "local": "text", "note": "text or null"}
CLOCK_CHANGE = {
    "at": "instant",
    "kind": "text",
    "local_before": "text",
    "local_after": "text",
    "offset_before_s": "integer",
    "offset_after_s": "integer",
    "around": "list of MomentRecord",
    "left_off": "integer",
}
OUTLOOK = {
    "schedule": "text or null",
    "when": "text",
    "tz": "text",
    "dst": "text or null",
    "disagreements": "list of text",
    "year": "integer",
    "next": "list of MomentRecord",
    "changes": "list of ClockChangeRecord",
}
OUTCOMES = {
    "succeeded": "integer",
    "failed": "integer",
    "timed_out": "integer",
    "lost": "integer",
    "interrupted": "integer",
    "cancelled": "integer",
    "skipped": "integer",
    "misfired": "integer",
    "dead": "integer",
}
RUN_TIMES = {"count": "integer", "p50_s": "number or null", "p95_s": "number or null", "p99_s": "number or null"}
HOUR = {"at": "instant", "outcomes": "OutcomesRecord", "run_times": "RunTimesRecord or null"}
FIGURES = {
    "job": "text",
    "since_at": "instant",
    "until_at": "instant",
    "outcomes": "OutcomesRecord",
    "run_times": "RunTimesRecord",
    "not_counting": "integer",
    "hours": "list of HourRecord",
}
SHAPES = {
    "CountsRecord": COUNTS,
    "PartitionRecord": PARTITION,
    "BulkStepRecord": BULK_STEP,
    "BulkRecord": BULK,
    "BulkAgainRecord": BULK_AGAIN,
    "BulkForgottenRecord": BULK_FORGOTTEN,
    "StandingRecord": STANDING,
    "DecisionRecord": DECISION,
    "RenamedJobRecord": RENAMED_JOB,
    "MomentRecord": MOMENT,
    "ClockChangeRecord": CLOCK_CHANGE,
    "OutlookRecord": OUTLOOK,
    "WindowRecord": WINDOW,
    "RunRecord": RUN,
    "AttemptRecord": ATTEMPT,
    "PartRecord": PART,
    "OutcomesRecord": OUTCOMES,
    "RunTimesRecord": RUN_TIMES,
    "HourRecord": HOUR,
    "FiguresRecord": FIGURES,
    "JobRecord": JOB,
    "ScheduleRecord": SCHEDULE,
    "DueRecord": DUE,
    "NodeRecord": NODE,
    "PauseRecord": PAUSE,
    "ResumedRecord": RESUMED,
    "LockRecord": LOCK,
    "PastLockRecord": PAST_LOCK,
    "LetterRecord": LETTER,
    "LogRecord": LOG,
    "JournalRecord": JOURNAL,
    "WhyRecord": WHY,
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
PLAIN: dict[Any, str] = {
    int: "integer",
    str: "text",
    bool: "boolean",
    float: "number",
    datetime: "instant",
    Any: "anything",
    Became: "text",
}
IS_OF: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "text": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: isinstance(value, dict),
    "instant": lambda value: isinstance(value, str) and INSTANT.fullmatch(value) is not None,
    "null": lambda value: value is None,
    "anything": lambda value: True,
}


def spelled(hint: Any) -> str:
    """Say what a type is in JSON."""
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, LedgerRecord):
        return hint.__name__
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if each is type(None) else spelled(each) for each in arguments)
    if origin is Mapping:
        return "object"
    assert origin is Sequence, hint
    return f"list of {spelled(arguments[0])}"


def fits(value: Any, shape: str) -> bool:
    """Whether a value, read back from JSON, is what its shape says."""
    if " or " in shape:
        return any(fits(value, each) for each in shape.split(" or "))
    if shape.startswith("list of "):
        return isinstance(value, list) and all(fits(each, shape.removeprefix("list of ")) for each in value)
    if shape in SHAPES:
        return isinstance(value, dict) and not misfits(value, SHAPES[shape])
    return IS_OF[shape](value)


def misfits(document: Mapping[str, Any], shape: Mapping[str, str]) -> list[str]:
    assert list(document) == list(shape)
    return [name for name, value in document.items() if not fits(value, shape[name])]


def read(record: LedgerRecord) -> dict[str, Any]:
    """Return a record as somebody reads it who has only its JSON, after a look at whether that is what is promised."""
    document: dict[str, Any] = json.loads(json.dumps(record.to_json()))
    assert misfits(document, SHAPES[type(record).__name__]) == [], document
    return document


def test_every_kind_of_record_is_written_down_here() -> None:
    kinds = [value for value in vars(records).values() if isinstance(value, type) and issubclass(value, LedgerRecord)]
    assert {kind.__name__ for kind in kinds} - {"LedgerRecord"} == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_its_fields_have_these_names_and_types(name: str) -> None:
    kind = getattr(records, name)
    hints = get_type_hints(kind, localns={"Became": Became})
    assert {field.name: spelled(hints[field.name]) for field in dataclasses.fields(kind)} == SHAPES[name]
    assert [field.name for field in dataclasses.fields(kind)] == list(SHAPES[name])
    assert kind.__dataclass_params__.frozen


@pytest.mark.parametrize("name", SHAPES)
def test_names_say_what_is_an_instant_and_what_a_duration(name: str) -> None:
    for field, shape in SHAPES[name].items():
        is_instant = "instant" in shape and name != "WindowRecord"
        assert is_instant == (field == "at" or field.endswith(("_at", "_until"))), field
        assert not field.endswith("_us")
        assert not ("number" in shape and "progress" not in field) or field.endswith("_s"), field


SAMPLES: dict[str, Any] = {
    "integer": 7,
    "number": 0.5,
    "text": "some",
    "boolean": True,
    "object": {"a": [1]},
    "instant": datetime(2026, 1, 1, tzinfo=UTC),
    "anything": {"b": [2]},
}


def sample(shape: str) -> Any:
    """Return a value of this shape, of the widest kind that it may have."""
    first = shape.partition(" or ")[0]
    if first.startswith("list of "):
        return (sample(first.removeprefix("list of ")),)
    return sampled(first) if first in SHAPES else SAMPLES[first]


def sampled(name: str) -> LedgerRecord:
    made: LedgerRecord = getattr(records, name)(*map(sample, SHAPES[name].values()))
    return made


@pytest.mark.parametrize("name", SHAPES)
def test_records_can_be_put_into_sets(name: str) -> None:
    assert len({sampled(name), sampled(name)}) == 1


# -- and so they come from a ledger ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An application of which a node has run a few jobs, one of them in vain, and items of a bulk job."""
    folder = tmp_path_factory.mktemp("records")
    app = App(f"sqlite:///{folder}/ledger.db", ttl="10s", leader=True)
    declare(app, folder)
    with app.running():
        good = app.enqueue("add", params={"a": 1}, requested_by="ann", reason="sums").run_id
        bad = app.operations.trigger("boom", by="ann", reason="to see").run_id
        bulk = app.enqueue("settle").run_id
        app.enqueue("add", params={"a": 9}, delay="1d")
        ended = ("succeeded", "dead")
        until(lambda: all(app.operations.run(each).state in ended for each in (good, bad, bulk)), 30, what="they end")
        until(app.operations.leader, 30, what="somebody leads")
    yield app
    app.close()


def declare(app: App, folder: Path) -> None:
    @app.job(every("1h"), sla="10m")
    def add(run: Run, a: int = 0) -> int:
        """Add one."""
        run.progress(0.5, "half of it")
        return a + 1

    @app.job(retries=0)
    def boom() -> None:
        raise KeyError("boom")

    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/target.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("INSERT INTO orders VALUES (1), (2)")

    @app.bulk(read=keyset("SELECT id FROM orders WHERE id > :after ORDER BY id LIMIT :limit", key="id"),
              name="settle", source=engine, process=refuse, skip_limit=5)  # fmt: skip
    def settle(tx: Any, orders: Any) -> None: ...


def refuse(order: Any) -> Any:
    raise ValueError(f"order {order.id} is poison")


def test_runs_and_their_attempts(app: App) -> None:
    found = {row.id: read(row) for row in app.operations.runs(limit=1000)}
    states = {row["state"] for row in found.values()}
    assert states >= {"succeeded", "dead", "waiting"}
    [failed] = app.operations.runs(states=["dead"])
    [attempt] = app.operations.attempts(failed.id)
    assert read(attempt)["run_id"] == failed.id
    assert (attempt.outcome, attempt.error_code) == ("failed", "KeyError")
    assert attempt.node_name == app.node_name
    [good] = app.operations.runs(job="add", states=["succeeded"], requested_by="ann")
    assert (good.params, good.result) == ({"a": 1}, 2)
    assert good.created_at.tzinfo is UTC
    assert (good.sla_at or good.created_at) - good.created_at == timedelta(minutes=10)
    assert good.sla_missed is False
    assert found[good.id]["created_at"] == good.created_at.isoformat().replace("+00:00", "Z")


def test_jobs_schedules_and_nodes(app: App) -> None:
    jobs = {each.name: read(each) for each in app.operations.jobs()}
    assert jobs["add"]["doc"] == "Add one."
    assert jobs["add"]["policy"]["sla"] == 600
    assert app.operations.job("add").nodes == 0
    [schedule] = app.operations.schedules.list()
    assert read(schedule)["spec"] == schedule.spec
    assert (schedule.schedule, schedule.is_in_code) == (every("1h"), True)
    assert str(schedule) == "add: add, every 1h"
    [node] = app.operations.nodes()
    assert read(node)["state"] == "left"
    assert not node.is_living
    assert app.operations.nodes(living=True) == []


def test_what_a_back_fill_would_ask_for(app: App) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    dues = app.operations.would_backfill("add", first, first + timedelta(hours=2))
    assert [read(each)["due_at"] for each in dues] == [f"2026-01-01T0{hour}:00:00Z" for hour in range(3)]
    assert app.operations.runs(job="add", since=first, requested_by="nobody") == []


def test_the_journal_and_the_fate_of_a_due_time(app: App) -> None:
    [line] = [each for each in app.operations.journal() if each.what == "run triggered"]
    assert (read(line)["by"], line.reason) == ("ann", "to see")
    for answer in app.operations.why("add", datetime.now(UTC) - timedelta(days=400)):
        assert read(answer)["became"] == answer.became
    never = app.operations.why("add", datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert [len(read(each)["nearest_at"]) for each in never] == [2]


def test_letters(app: App) -> None:
    listed = app.operations.letters.list()
    assert [read(each)["item"] for each in listed] == [[2], [1]]
    assert [each.state for each in app.operations.letters.list("settle", state="new", limit=1)] == ["new"]


def test_how_far_a_bulk_job_is_and_doing_it_again(app: App) -> None:
    [run] = app.operations.runs(job="settle", limit=1)
    shown = app.operations.bulk.show(run.id)
    assert read(shown)["steps"][0]["partitions"][0]["counts"] == read(shown)["steps"][0]["counts"]
    [step] = shown.steps
    assert (shown.state, step.state, step.partitions_done, step.counts.skipped) == ("succeeded", "done", 1, 2)
    with pytest.raises(ConfigurationError, match="was completed by run"):
        app.operations.bulk.forget(run.id, by="ann", reason="to see")
    made = app.operations.bulk.again(run.id, by="ann", reason="the rates were wrong")
    assert read(made) == {"run_id": made.run_id, "again_of": run.id}
    with pytest.raises(ConfigurationError, match=f"run {made.run_id} of what run .* stands for has not ended"):
        app.operations.bulk.forget(made.run_id, by="ann", reason="to see")
    assert app.operations.cancel(made.run_id, by="ann") == "cancelled"
    gone = app.operations.bulk.forget(made.run_id, by="ann", reason="it never began")
    assert (read(gone)["checkpoints"], gone.written, gone.run_id) == (0, 0, made.run_id)


@pytest.mark.parametrize("missing", [{"by": " ", "reason": "x"}, {"by": "ann", "reason": " "}])
def test_acts_without_a_person_or_a_reason_are_refused(app: App, missing: dict[str, str]) -> None:
    ops = app.operations
    [run] = ops.runs(job="settle", limit=1)
    for act in (
        lambda: ops.bulk.again(run.id, **missing),
        lambda: ops.bulk.forget(run.id, **missing),
        lambda: ops.restored.accept(unnoticed=True, **missing),
        lambda: ops.restored.as_copy(unnoticed=True, **missing),
    ):
        with pytest.raises(InvalidParameters, match="the journal keeps it"):
            act()


def test_what_is_no_run_of_a_bulk_job_is_refused(app: App) -> None:
    [failed] = app.operations.runs(states=["dead"])
    with pytest.raises(ConfigurationError, match="which is no bulk job here"):
        app.operations.bulk.show(failed.id)
    with pytest.raises(NoSuchRun):
        app.operations.bulk.show(10**30)
    with pytest.raises(ConfigurationError, match="checkpoints are where bulk jobs write to, which needs their code"):
        _ = Operations(app.ledger, Scope.direct()).bulk


def test_a_ledger_that_was_not_restored(app: App) -> None:
    seen = app.operations.restored.standing()
    assert (read(seen)["held"], seen.changed, seen.why) == (False, (), None)
    with pytest.raises(ConfigurationError, match="there is nothing to decide"):
        app.operations.restored.accept(by="ann", reason="a dump")
    with pytest.raises(InvalidParameters, match="pending='keep' is not known; there are hold, run, cancel"):
        app.operations.restored.accept(by="ann", reason="a dump", pending="keep")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameters, match="at least one id"):
        app.operations.restored.accept(by="ann", reason="a dump", id_gap=0)


def test_what_a_schedule_will_do(app: App) -> None:
    [outlook] = app.operations.schedules.preview("add", count=3, year=2026)
    assert (read(outlook)["schedule"], outlook.when, outlook.tz, outlook.dst) == ("add", "every 1h", "UTC", None)
    gaps = [after.due_at - before.due_at for before, after in pairwise(outlook.next)]  # type: ignore[operator]
    assert gaps == [timedelta(hours=1)] * 2
    berlin = OutlookRecord.of(cron("30 2 * * *", tz="Europe/Berlin"), now_us=1_767_225_600_000_000)
    assert [each["kind"] for each in read(berlin)["changes"]] == ["gap", "fold"]
    with pytest.raises(NoSuchSchedule):
        app.operations.schedules.preview("nothing")


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        ("2026-06-01", ["2026-10-25T01:00:00Z", "2027-03-28T01:00:00Z"]),
        ("2026-11-01", ["2027-03-28T01:00:00Z", "2027-10-31T01:00:00Z"]),
        ("2026-12-31T23:30", ["2027-03-28T01:00:00Z", "2027-10-31T01:00:00Z"]),
        ("2026-10-25T01:00", ["2027-03-28T01:00:00Z", "2027-10-31T01:00:00Z"]),
    ],
)
def test_the_next_two_clock_changes_are_previewed(now: str, changes: list[str]) -> None:
    now_us = microseconds(datetime.fromisoformat(now).replace(tzinfo=UTC))
    outlook = OutlookRecord.of(cron("30 2 * * *", tz="Europe/Berlin"), now_us=now_us)
    assert [each["at"] for each in read(outlook)["changes"]] == changes
    last = microseconds(datetime(2199, 12, 1, tzinfo=UTC))
    assert OutlookRecord.of(cron("30 2 * * *", tz="Europe/Berlin"), now_us=last, count=0).changes == ()


def test_words_that_the_journal_never_uses_are_refused(app: App) -> None:
    assert app.operations.journal(what="node died") == []
    with pytest.raises(InvalidParameters, match="the journal has no 'nod died'; did you mean 'node died'"):
        app.operations.journal(what="nod died")


def test_a_job_is_renamed(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/ledger.db")
    declare(app, tmp_path)
    publish(app)
    app.operations.trigger("add", by="ann")
    done = app.operations.rename_job("add", "sum", by="ann", reason="a better name")
    moved = {"schedules": 1, "runs": 1, "checkpoints": 0, "letters": 0}
    assert read(done) == {"name": "sum", "formerly": "add", **moved, "schedules_deleted": [], "permissions_taken": 0}
    with pytest.raises(ConfigurationError, match=r"name each of these databases .*effects=\[\]"):
        app.operations.rename_job("settle", "clear", by="ann")
    assert read(app.operations.rename_job("settle", "clear", by="ann", effects=[]))["name"] == "clear"
    assert [each.by for each in app.operations.journal(what="job renamed")] == ["ann", "ann"]
    app.close()


def test_locks(app: App) -> None:
    leader = app.operations.leader()
    assert leader is not None
    assert read(leader)["held"] is False
    at_us = 1_767_225_600_000_000
    shown = read(LockRecord.of(LeaseRecord("nightly", 7, "here", "g", "s", at_us, 3.5, at_us)))
    assert shown["acquired_at"] == shown["last_tick_at"] == "2026-01-01T00:00:00Z"
    read(PastLockRecord.of(PastGrant("nightly", "here", 7, at_us, at_us + 5, "released")))


def test_what_a_later_release_has_written_is_shown_all_the_same(app: App) -> None:
    from fencepost.app.records import ScheduleRecord
    from fencepost.ledger import schedules

    row = schedules.schedule(app.ledger, "add")._replace(spec='{"tide":"high"}')
    assert read(ScheduleRecord.of(row))["when"] == '{"tide":"high"}'


def test_figures(app: App) -> None:
    found = {each.job: read(each) for each in app.operations.figures()}
    assert list(found) == sorted(each.name for each in app.operations.jobs())
    assert (found["add"]["outcomes"]["succeeded"], found["add"]["run_times"]["count"]) == (1, 1)
    assert (found["boom"]["outcomes"]["failed"], found["boom"]["outcomes"]["dead"]) == (1, 1)
    assert found["add"]["hours"][0]["run_times"] is None
    [one] = app.operations.figures("add")
    assert read(one)["hours"][0]["run_times"] == found["add"]["run_times"]
    assert found["settle"]["not_counting"] == 0
    assert app.operations.figures("add", since="2099-01-01T00:00Z")[0].hours == ()

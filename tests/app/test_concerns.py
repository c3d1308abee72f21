"""What needs a person, on each database: every kind is found, in its order; acknowledging hides what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from fencepost import App, every
from fencepost.access import Authentication, Authorized, HostPrincipal
from fencepost.app.composing import publish
from fencepost.app.concerns import Concerns
from fencepost.app.finding_concerns import ConcernFinder
from fencepost.app.looking import Looking
from fencepost.app.records.concerns import ConcernRecord
from fencepost.core.concerns import ConcernKind, Occurrence, concern_id, covers, parsed_id
from fencepost.core.noted import Noted
from fencepost.errors import InvalidParameters, NotInLedger
from fencepost.ledger import journal, nodes
from fencepost.ledger.acknowledging import acknowledge, acknowledged
from fencepost.ledger.journal import About
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.pruning import Retention, prune
from tests.access.scene import set_run

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
NODE = {"grant_id": "g", "token": 1, "generation": 3, "version": "1", "slots": 4, "queues": ("default",)}


@pytest.fixture
def app(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setattr(Looking, "_sights", lambda *_: None)  # as of a store that shows no sessions: there are none
    app = App(url)
    for name in ("settle", "settle-eu"):
        app.job(every("1h"), name=name, timeout="10m")(_nothing)
    publish(app)
    nodes.join(app.ledger, NewNode(id="n1", name="node-1", jobs=("settle", "settle-eu"), **NODE))
    yield app
    app.close()


def _nothing(account: int = 1) -> None: ...


def change(app: App, table: str, which: Any, **values: Any) -> None:
    rows = getattr(app.ledger.tables, table)
    key = rows.c.id
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(rows).where(key == which).values(values)))


def run_as(app: App, job: str, **values: Any) -> int:
    run_id = app.operations.trigger(job, by="ann", again=True).run_id
    set_run(app, run_id, **values)
    return run_id


def dead(app: App, job: str = "settle", ago_us: int = MINUTE_US) -> int:
    ended_at = app.ledger.now_us() - ago_us
    return run_as(app, job, state="dead", attempts=2, started_at=1, ended_at=ended_at, error="boom", error_code="E")


def plant_everything(app: App, job: str) -> dict[str, int]:
    """Plant each kind of trouble with a job; return the runs."""
    now_us = app.ledger.now_us()
    late = run_as(app, job, state="running", started_at=now_us - MINUTE_US, sla_at=now_us - MINUTE_US)
    journal.journal(app.ledger, what=Noted.SLA_MISSED, job=job, run_id=late, reason="it is late")
    journal.journal(app.ledger, what=Noted.REFUSED_WRITE, job=job, run_id=late)
    change(app, "schedule", job, next_due_at=now_us - 2 * MINUTE_US)
    app.schedules.put(f"{job}:extra", job, every("1h"), by="ann")
    change(app, "schedule", f"{job}:extra", no_node_since=now_us - MINUTE_US)
    return {
        "late": late,
        "held": run_as(app, job, state="waiting", waits_for="person", why="it was lost"),
        "given-up": dead(app, job),
        "near": run_as(app, job, state="running", started_at=now_us - 9 * MINUTE_US - MINUTE_US // 2),
        "early": run_as(app, job, state="running", started_at=now_us - 8 * MINUTE_US),
        "queued": run_as(app, job, available_at=now_us - 3 * MINUTE_US),
    }


def needing(found: list[ConcernRecord]) -> list[ConcernRecord]:
    return [each for each in found if each.acknowledged is None]


def as_viewer(app: App, **roles: str) -> Authorized:
    return Authentication(app.operations).by_host(HostPrincipal("vic", roles), address="192.0.2.7", request_id="r")


def test_every_kind_is_found_worst_first_and_within_the_callers_jobs(app: App) -> None:
    ops = app.operations
    assert ops.concerns.list() == []
    made = plant_everything(app, "settle")
    others = plant_everything(app, "settle-eu")
    nodes.join(app.ledger, NewNode(id="n2", name="node-2", jobs=("settle-eu",), **NODE))
    app.ledger.write(lambda cursor: nodes.died(app.ledger, cursor, "n2", "its lease ended"))
    whole = ops.concerns.list()
    kinds = [each.what for each in whole if each.job in ("settle", None)]
    assert kinds == [
        "not-planned", "job-without-node", "held", "sla-missed", "given-up", "late", "near-timeout", "node-died",
        "refused-write",
    ]  # fmt: skip
    assert [each.level for each in whole] == sorted(each.level for each in whole)
    by_kind = {each.what: each for each in whole if each.job == "settle"}
    assert "should have ended 1m" in by_kind["sla-missed"].sentence
    unserved = "no living node has job settle and takes runs from its queue: its schedule settle:extra is not planned"
    assert by_kind["job-without-node"].sentence == unserved
    assert by_kind["given-up"].sentence == f"run {made['given-up']} of settle was given up after 2 attempts: E: boom"
    assert (by_kind["given-up"].act, by_kind["held"].act, by_kind["late"].act) == ("retry", "release", "look")
    assert by_kind["near-timeout"].run_id == made["near"]
    [died] = [each.sentence for each in whole if each.what == "node-died"]
    left = "its runs, if it had any, are left to living nodes"
    assert died == f"node node-2 ended without leaving, and was found dead: its lease ended; {left}"
    assert "95% of its timeout" in by_kind["near-timeout"].sentence
    assert all(each.consequence and each.command and each.sentence for each in whole)
    seen = as_viewer(app, settle="viewer").concerns
    assert {each.job for each in seen.list()} == {"settle"}
    text = repr((seen.list(), seen.changes()))
    assert "settle-eu" not in text
    assert not [each for each in others.values() if str(each) in text.split()]
    assert {each.job for each in seen.changes()} == {"settle"}
    assert "run triggered" in {each.what for each in ops.concerns.changes()}


def test_without_a_node_nothing_runs_and_a_deploy_is_a_change(app: App) -> None:
    table = app.ledger.tables.deploy
    row = {"fingerprint": "f1", "first_seen_at": app.ledger.now_us()}
    app.ledger.write(lambda cursor: app.ledger.change(cursor, insert(table).values(row).inline()))
    change(app, "node", "n1", fingerprint="f1")
    nodes.leave(app.ledger, "n1")
    [first] = [each for each in app.operations.concerns.list() if each.what == "no-node"]
    assert (first.level, first.since_at is not None) == ("bad", True)
    mine = as_viewer(app, settle="viewer").concerns
    assert "one of your jobs" in mine.list()[0].sentence
    deploys = [each.reason for each in app.operations.concerns.changes() if each.what == "deploy"]
    assert deploys == ["generation 3, fencepost 1, on node-1", None]  # this one, and the one that was published
    assert not [each for each in mine.changes() if each.what == "deploy"]


def test_acknowledged_is_known_until_it_happens_anew(app: App) -> None:
    ops = app.operations
    first, second = dead(app, ago_us=2 * HOUR_US), dead(app, ago_us=HOUR_US)
    [row] = ops.concerns.list()
    assert row.id == concern_id("settle", parsed_id(row.id)[1])  # type: ignore[index]
    assert (row.run_id, row.sentence.endswith("and 1 more of this kind")) == (second, True)
    ops.concerns.acknowledge(row.what, row.id, by="ann", note="the bank is down")
    [known] = ops.concerns.list()
    assert known.acknowledged is not None
    assert (known.acknowledged.by, known.acknowledged.note) == ("ann", "the bank is down")
    third = dead(app)
    fresh, old = ops.concerns.list()
    assert (fresh.acknowledged, fresh.run_id, old.run_id) == (None, third, second)
    assert "more" not in fresh.sentence
    [entry] = ops.audit.entries(act="acknowledged")
    assert (entry.who, entry.job, entry.run_id, entry.reason) == ("ann", "settle", second, "the bank is down")
    with pytest.raises(NotInLedger):
        ops.concerns.acknowledge("given-up", concern_id("settle", Occurrence(1, first)), by="ann")
    ops.concerns.unacknowledge(old.what, old.id, by="bob", reason="it is back")
    [again] = ops.concerns.list()
    assert again.sentence.endswith("and 2 more of this kind")
    with pytest.raises(NotInLedger, match=f"^given-up {again.id} is not acknowledged; nothing was done$"):
        ops.concerns.unacknowledge(again.what, again.id, by="bob")
    assert ops.audit.entries(act="acknowledgement withdrawn")[0].who == "bob"
    ops.retry(third, by="ann")
    assert ops.concerns.list()[0].run_id == second
    ops.cancel(ops.runs(retry_of=third)[0].id, by="ann")
    assert ops.concerns.list()[0].run_id == third  # its repetition was called off


def test_acknowledgement_is_of_the_runs_that_were_shown_and_of_no_other(app: App) -> None:
    ops = app.operations
    hidden, first, shown = dead(app, ago_us=4 * HOUR_US), dead(app, ago_us=3 * HOUR_US), dead(app, ago_us=HOUR_US)
    repetition = ops.retry(hidden, by="ann")
    [row] = ops.concerns.list()
    ops.concerns.acknowledge(row.what, row.id, by="ann")
    ops.cancel(repetition, by="bob")
    assert [(each.run_id, each.acknowledged is None) for each in ops.concerns.list()] == [
        (hidden, True),
        (shown, False),
    ]
    earlier = dead(app, ago_us=2 * HOUR_US)  # by a clock that was set back
    [row] = needing(ops.concerns.list())
    assert (row.run_id, row.sentence.endswith("and 1 more of this kind")) == (earlier, True)
    ops.concerns.acknowledge(row.what, row.id, by="bob")
    known = {each.acknowledged.by: each for each in ops.concerns.list() if each.acknowledged}
    assert {by: each.run_id for by, each in known.items()} == {"ann": shown, "bob": earlier}
    ops.concerns.unacknowledge("given-up", known["ann"].id, by="bob")
    [row] = needing(ops.concerns.list())
    assert (row.run_id, row.sentence.endswith("and 1 more of this kind")) == (shown, True)
    assert first not in {each.run_id for each in ops.concerns.list()}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_late_runs_that_could_have_begun_before_the_acknowledged_one_are_known(app: App) -> None:
    ops, now_us = app.operations, app.ledger.now_us()
    runs = [run_as(app, "settle", available_at=now_us - minutes * MINUTE_US) for minutes in (5, 4)]
    [row] = ops.concerns.list()
    assert (row.what, row.run_id) == ("late", runs[1])
    ops.concerns.acknowledge(row.what, row.id, by="ann")
    assert len(acknowledged(app.ledger)) == 1
    run_as(app, "settle", available_at=now_us - 6 * MINUTE_US)  # one of those that were not looked at
    assert needing(ops.concerns.list()) == []
    ops.concerns.unacknowledge(row.what, row.id, by="ann")
    assert len(needing(ops.concerns.list())) == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_others_know_about_having_no_node_is_of_their_jobs(app: App) -> None:
    nodes.leave(app.ledger, "n1")
    [row] = [each for each in app.operations.concerns.list() if each.what == "no-node"]
    assert row.command == "fencepost nodes --all"  # without it, only the living are shown
    app.operations.concerns.acknowledge(row.what, row.id, by="ann", note="settle-eu moves")
    assert [each.what for each in needing(app.operations.concerns.list())] == []
    for job in ("settle", "settle-eu"):
        mine = as_viewer(app, **{job: "operator"}).concerns.list()
        assert [(each.what, each.acknowledged) for each in mine] == [("no-node", None)]
        assert len(mine[0].id) < 80
    ids = {as_viewer(app, **{job: "viewer"}).concerns.list()[0].id for job in ("settle", "settle-eu")}
    assert len(ids) == 2


@pytest.mark.parametrize("kind", ["sqlite"])
def test_acknowledged_until_a_time_comes_back_after_it(app: App) -> None:
    ops = app.operations
    dead(app)
    [row] = ops.concerns.list()
    with pytest.raises(InvalidParameters):
        ops.concerns.acknowledge(row.what, row.id, by="ann", until="2020-01-01T00:00Z")
    known = ops.concerns.acknowledge(row.what, row.id, by="ann", duration="2h")
    assert known.acknowledged is not None
    assert known.acknowledged.until_at is not None
    assert needing(ops.concerns.list()) == []
    table = app.ledger.tables.operating["acknowledged"]
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(table).values(until=app.ledger.now_us())))
    assert [each.id for each in needing(ops.concerns.list())] == [row.id]


def test_acknowledgements_are_pruned_with_what_they_speak_of(app: App) -> None:
    made = plant_everything(app, "settle")
    found = app.operations.concerns.list()
    for each in found:
        app.operations.concerns.acknowledge(each.what, each.id, by="ann")
    acknowledge(app.ledger, "of-a-newer-version", "x", until_us=None, about=About(by="ann"), text=None)
    kept = {each.what for each in acknowledged(app.ledger)}
    prune(app.ledger, None, Retention())
    assert (
        {each.what for each in acknowledged(app.ledger)}
        == kept
        == {*(each.what for each in found), "of-a-newer-version"}
    )
    now_us = app.ledger.now_us()
    for run_id in (made["held"], made["near"], made["queued"]):
        set_run(app, run_id, state="succeeded", ended_at=now_us)
    change(app, "schedule", "settle", next_due_at=now_us + HOUR_US)
    change(app, "schedule", "settle:extra", no_node_since=None)
    for rows in (app.ledger.tables.journal, app.ledger.tables.run):
        gone = delete(rows) if rows is app.ledger.tables.journal else delete(rows).where(rows.c.id == made["given-up"])
        app.ledger.write(lambda cursor, gone=gone: app.ledger.change(cursor, gone))
    prune(app.ledger, None, Retention())
    assert {each.what for each in acknowledged(app.ledger)} == {"sla-missed", "of-a-newer-version"}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_acknowledgements_of_pauses_and_of_draining_nodes_are_pruned_with_these(app: App) -> None:
    ops = app.operations
    ops.pauses.pause(None, by="ann", reason="why")
    ops.pauses.pause("default", by="ann", reason="why")
    change(app, "node", "n1", drain_asked_at=app.ledger.now_us() - 2 * HOUR_US, drain_by="ann")
    for each in ops.concerns.list():
        ops.concerns.acknowledge(each.what, each.id, by="ann")
    prune(app.ledger, None, Retention())
    assert sorted(each.what for each in acknowledged(app.ledger)) == ["node-drains", "paused", "paused"]
    ops.pauses.resume(None, by="ann")
    ops.pauses.pause(None, by="ann", reason="another one")
    nodes.leave(app.ledger, "n1")
    prune(app.ledger, None, Retention())
    assert [(each.what, each.id.partition("@")[0]) for each in acknowledged(app.ledger)] == [("paused", "default")]


def test_schedule_that_is_paused_for_long_without_an_end_is_shown_until_it_is_resumed(app: App) -> None:
    ops, long_ago = app.operations, app.ledger.now_us() - 25 * HOUR_US
    app.schedules.put("settle:extra", "settle", every("1h"), by="ann")
    for schedule, duration in (("settle", None), ("settle-eu", "400d"), ("settle:extra", None)):
        ops.schedules.pause(schedule, by="ann", reason="the bank moves", duration=duration)
    assert ops.concerns.list() == []
    for schedule in ("settle", "settle-eu"):
        change(app, "schedule", schedule, paused_at=long_ago)
    [row] = ops.concerns.list()
    assert (row.what, row.level, row.schedule, row.act) == ("schedule-paused", "warn", "settle", "look")
    words = "schedule settle of settle has been paused for 1d1h by ann, until it is resumed: the bank moves"
    assert row.sentence == words
    assert row.command == "fencepost schedules show settle"
    assert as_viewer(app, **{"settle-eu": "viewer"}).concerns.list() == []
    ops.concerns.acknowledge(row.what, row.id, by="ann")
    prune(app.ledger, None, Retention())
    assert needing(ops.concerns.list()) == []
    ops.schedules.resume("settle", by="ann")
    prune(app.ledger, None, Retention())
    assert acknowledged(app.ledger) == ops.concerns.list() == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_node_that_renews_late_is_a_concern(app: App) -> None:
    finder = ConcernFinder(app.ledger, app.operations._scope, app.operations, list)
    node = {"id": "n1", "name": "node-1", "lease_mark": 7, "lease_ttl_s": 10.0}
    node |= {"state": "living"}
    found = [list(finder._renewing_late(SimpleNamespace(**node, lease_age_s=age))) for age in (None, 3.0, 6.5, 6.7)]
    assert [len(each) for each in found] == [0, 0, 0, 1]
    assert found[3][0].kind is ConcernKind.NODE_LATE
    assert isinstance(app.operations.concerns, Concerns)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_acknowledging_what_no_job_has_needs_the_role_for_all_jobs(app: App) -> None:
    from fencepost.errors import NotAllowed

    nodes.leave(app.ledger, "n1")
    mine = as_viewer(app, settle="operator").concerns
    [row] = [each for each in mine.list() if each.what == "no-node"]
    with pytest.raises(NotAllowed, match="for all jobs"):
        mine.acknowledge(row.what, row.id)


def test_ids_fit_their_column_and_cover_what_came_before() -> None:
    long = concern_id("s" * 160, Occurrence(10**16, 2**63 - 1))
    assert len(long) <= 160
    assert parsed_id(long) is not None
    assert concern_id("s" * 159 + "t", Occurrence(10**16, 1)) != concern_id("s" * 160, Occurrence(10**16, 1))
    ids = [concern_id("settle", Occurrence(*each)) for each in ((1, 5), (2, 3), (2, 4))]
    assert [covers(ids[1], each) for each in ids] == [True, True, False]
    assert not covers(ids[1], concern_id("settle-eu", Occurrence(1, 5)))
    assert parsed_id("x@1.2.3") is parsed_id("settle") is None

"""Pages and exports of a ledger that has more schedules than one question returns."""

import json

import pytest

from fencepost import every
from tests.access.scene import set_run

MANY = 1_100  # one question returns 1,000 if no other limit is given


@pytest.fixture
def crowded(app):
    """The application with many schedules of one job, whose ids stand before those of the others."""
    app.schedules.put("a:0", "report/part", every("1h"), params={"account": 7}, by="ann")
    columns = [each.name for each in app.ledger.tables.schedule.columns if each.name != "id"]
    names = ", ".join(columns)
    table = app.ledger.tables.name("schedule")
    copy = f"INSERT INTO {table} (id, {names}) SELECT 'a:' || ?, {names} FROM {table} WHERE id = 'a:0'"
    app.ledger.write(lambda cursor: cursor.executemany(copy, [(number,) for number in range(1, MANY)]))
    return app


def test_jobs_show_when_they_are_due_and_paused_however_many_schedules_one_of_them_has(crowded, browser):
    crowded.schedules.pause("nightly:7", by="ann", reason="the bank is closed")
    rows = browser.get("/jobs").text.split("<tr ")
    [settle] = [row for row in rows if ">settle</a>" in row]
    assert "<time" in settle.partition('data-name="next due"')[2].partition("</td>")[0]
    [report] = [row for row in rows if ">report/part</a>" in row]
    assert "paused</span>" in report


def test_runs_show_times_in_the_zone_of_their_schedule_however_many_there_are(crowded, browser, dead_run):
    set_run(crowded, dead_run, schedule="settle", due_at=1_788_000_000_000_000)
    row = browser.get("/runs?tz=own").text.partition('data-name="due"')[2].partition("</td>")[0]
    assert "12:40:00+02:00" in row  # 10:40 in UTC


def test_schedules_can_be_asked_for_by_jobs_and_by_ids(crowded):
    ids = [each.id for each in crowded.schedules.list(ids=("settle", "nightly:7", "unknown"))]
    assert ids == ["nightly:7", "settle"]
    assert {each.job for each in crowded.schedules.list(jobs=("settle",))} == {"settle"}
    assert crowded.schedules.list(jobs=()) == crowded.schedules.list(ids=()) == []


def test_exports_give_all_schedules_up_to_the_bound_that_is_promised(crowded, browser):
    answer = browser.get("/schedules.json")
    assert len(json.loads(answer.text)) == MANY + 2
    assert answer.header("fencepost-truncated") == "false"

"""Every page on each database: what they ask is spelled differently there."""

import json

import pytest

from fencepost.access import Authentication
from tests.access.scene import set_run
from tests.web.test_pages import targets


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_page_is_drawn(browser, dead_run):
    for target in targets(dead_run):
        answer = browser.get(target)
        assert answer.status == 200, (target, answer.text)
        assert answer.text.startswith("<!doctype html>")
    fragment = browser.get("/runs", ("Fencepost-Fragment", "1"))
    assert fragment.status == 200
    assert "<html" not in fragment.text
    for name in ("runs", "jobs", "schedules", "nodes", "audit"):
        assert json.loads(browser.get(f"/{name}.json").text) is not None
        assert browser.get(f"/{name}.csv").header("content-type").startswith("text/csv")


def test_mark_of_changes_is_another_one_after_a_change(app, dead_run):
    known = Authentication(app.operations)
    first = known.changes()
    assert known.changes() == first
    made = app.operations.trigger("settle", {"account": 9}, by="ann").run_id
    second = known.changes()
    set_run(app, made, state="running", token=7, progress=0.5)
    third = known.changes()
    set_run(app, made, progress=0.6)
    fourth = known.changes()
    set_run(app, made, state="succeeded", ended_at=app.ledger.now_us())  # as if it had run between two looks
    assert len({first, second, third, fourth, known.changes()}) == 5

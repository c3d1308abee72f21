"""Now: what needs a person, acknowledging it, and a retry with other parameters, all without scripts."""

import html
import re

import pytest

from fencepost.access import HostPrincipal
from fencepost.web import web
from tests.access.scene import set_run
from tests.web.asking import Browser


def hidden(page, action, *names):
    """The hidden fields of the first form that posts to this path."""
    form = re.search(rf'<form[^>]*method="post" action="{re.escape(action)}".*?</form>', page, re.DOTALL)[0]
    found = dict(re.findall(r'name="([\w.]+)" value="([^"]*)"', form))
    return {name: html.unescape(found[name]) for name in names}


def test_row_is_acknowledged_and_comes_back_when_it_is_withdrawn(app, browser, dead_run):
    page = browser.get("/").text
    form = hidden(page[page.index("given up") :], "/now/acknowledge", "what", "id")
    answer = browser.post("/now/acknowledge", {**form, "reason": "the bank <b>is</b> down", "for": "2h"})
    after = browser.get(answer.header("location")).text
    assert "You know of it" in after
    known = after[after.index("<h2>Known</h2>") :]
    assert "host:ann" in known
    assert "the bank &lt;b&gt;is&lt;/b&gt; down" in known
    assert f"run {dead_run} of settle was given up" in known
    assert f"run {dead_run} of settle was given up" not in after[: after.index("<h2>Known</h2>")]
    again = browser.post("/now/acknowledge", {**form, "id": form["id"] + "0"})
    assert again.status == 409
    assert "Nothing was done" in again.text
    assert browser.post("/now/unacknowledge", hidden(known, "/now/unacknowledge", "what", "id")).status == 303
    assert "<h2>Known</h2>" not in browser.get("/").text


def test_viewer_sees_the_row_and_no_form(app, dead_run):
    viewer = Browser(web(app, auth=lambda _: HostPrincipal("vic", {"settle": "viewer"})))
    page = viewer.get("/").text
    assert "was given up" in page
    assert "/now/acknowledge" not in page
    assert viewer.post("/now/acknowledge", {"what": "given-up", "id": "settle@1.1"}).status == 403


def test_run_is_repeated_with_other_parameters(app, browser, dead_run):
    page = browser.get(f"/runs/{dead_run}").text
    action = f"/runs/{dead_run}/change"
    form = hidden(page, action, "state", "attempt", "p.account")
    assert form.pop("p.account") == "8"
    wrong = browser.post(action, {**form, "p.account": "nine"})
    assert wrong.status == 400
    assert 'value="nine"' in wrong.text
    assert hidden(wrong.text, action, "state", "attempt") == form
    answer = browser.post(action, {**form, "p.account": "9", "reason": "the wrong account"})
    [made] = app.operations.runs(retry_of=dead_run)
    assert (made.params, made.reason, made.requested_by) == ({"account": 9}, "the wrong account", "host:ann")
    assert answer.header("location") == f"/runs/{dead_run}?did=retried&n={made.id}"
    assert browser.post(action, {**form, "p.account": "10"}).status == 409
    assert browser.get(action).status == 200
    set_run(app, dead_run, state="succeeded")
    assert browser.post(action, {**form, "p.account": "10", "again": "on"}).status == 409


@pytest.mark.parametrize("act", ["retry", "cancel", "release", "change"])
def test_change_between_the_comparison_and_the_act_is_noticed_in_its_transaction(
    app, browser, dead_run, act, monkeypatch
):
    """A page compares what it was drawn from with the run; the act itself compares once more."""
    states = {"cancel": "queued", "release": "waiting"}
    state = states.get(act, "dead")
    waits = "person" if act == "release" else None
    set_run(app, dead_run, state=state, waits_for=waits, ended_at=None if act in states else 1)
    from fencepost.access import Authorized

    read = Authorized.run

    def reading(self, *about, **more):
        found = read(self, *about, **more)
        set_run(app, dead_run, attempts=3)  # another one was quicker
        return found

    monkeypatch.setattr(Authorized, "run", reading)
    answer = browser.post(f"/runs/{dead_run}/{act}", {"state": state, "attempt": "2", "p.account": "9"})
    assert answer.status == 409
    assert "has changed since" in answer.text
    assert app.operations.run(dead_run).state == state
    assert app.operations.runs(retry_of=dead_run) == []


def test_schedule_is_compared_in_the_transaction_of_the_act(app, browser, monkeypatch):
    drawn = hidden(browser.get("/schedules/nightly:7").text, "/schedules/nightly%3A7/pause", "drawn")
    from fencepost.access.authorized_schedules import AuthorizedSchedules

    read = AuthorizedSchedules.get

    def reading(self, *about, **more):
        found = read(self, *about, **more)
        if found.paused_at is None:
            app.schedules.pause("nightly:7", by="bob", reason="first")
        return found

    monkeypatch.setattr(AuthorizedSchedules, "get", reading)
    assert browser.post("/schedules/nightly:7/pause", {**drawn, "reason": "second"}).status == 409
    assert app.schedules.get("nightly:7").pause_reason == "first"

"""Pauses and draining on the pages: the banner on each of them, forms without scripts, and who may."""

import html
import re

import pytest

from fencepost.access import HostPrincipal
from fencepost.access.authorized_nodes import AuthorizedPauses
from fencepost.app.looking import Looking
from fencepost.app.records import spelled
from fencepost.ledger import nodes
from fencepost.ledger.nodes import NewNode
from fencepost.web import web
from tests.web.asking import Browser
from tests.web.test_pages import HOSTILE, targets


@pytest.fixture
def node(app, monkeypatch):
    monkeypatch.setattr(Looking, "_sights", lambda *_: None)  # as of a store that shows no sessions: it has none here
    jobs = ("settle", "report/part")
    nodes.join(app.ledger, NewNode("n1", "host-1", "g", 1, 0, "1.0/0005/0001", 4, ("default", "mail"), jobs))
    return "n1"


def drawn(page, after=""):
    return html.unescape(re.search(r'name="drawn" value="([^"]*)"', page[page.index(after) :])[1])


def test_reason_is_shown_on_every_page_and_on_now_as_something_to_do(app, browser, dead_run):
    app.operations.pauses.pause(None, by="ann", reason=f"the bank {HOSTILE}", duration="2h")
    for target in targets(dead_run):
        text = browser.get(target).text
        assert "Everything has been paused" in text, target
        assert "the bank &#34;" in text, target
        assert "<script>alert" not in text, target
    assert "everything is paused by ann, until 20" in browser.get("/").text
    app.operations.pauses.resume(None, by="ann")
    assert "paused" not in browser.get("/runs").text


def test_queue_is_paused_and_resumed_by_forms_and_not_if_somebody_was_quicker(app, browser, node):
    before = drawn(browser.get("/nodes").text, 'action="/pauses"')
    form = {"what": "queue:mail", "drawn": before, "reason": "the relay is down", "for": "2h"}
    assert browser.post("/pauses", {**form, "reason": ""}).status == 400
    assert browser.post("/pauses", {**form, "what": "queue:mial"}).status == 400
    answer = browser.post("/pauses", form)
    assert answer.header("location") == "/nodes?did=paused-queue"
    [found] = app.operations.pauses.list()
    assert (found.queue, found.paused_by, found.reason) == ("mail", "host:ann", "the relay is down")
    assert found.paused_until is not None
    assert browser.post("/pauses", {**form, "what": "everything"}).status == 409
    resume = {"queue": "mail", "drawn": drawn(browser.get("/nodes").text, "/pauses/resume")}
    app.operations.pauses.pause("mail", by="bob", reason="still")
    assert browser.post("/pauses/resume", resume).status == 409
    resume["drawn"] = drawn(browser.get("/nodes").text, "/pauses/resume")
    assert browser.post("/pauses/resume", resume).status == 303
    assert app.operations.pauses.list() == []
    acts = [each.act for each in app.operations.audit.entries(who="host:ann")]
    assert acts == ["queue resumed", "queue paused"]


def test_pause_is_resumed_on_now_by_those_who_may_if_it_is_still_the_one_that_was_shown(app, browser, node):
    app.operations.pauses.pause("mail", by="ann", reason="the relay is down")
    page = browser.get("/").text
    assert "Resume: nodes claim what waits, in its order" in page
    form = {"queue": "mail", "drawn": drawn(page, "/pauses/resume")}
    limited = Browser(web(app, auth=lambda _: HostPrincipal("bob", {"": "operator"})))
    assert "Resume: nodes claim" in limited.get("/").text
    assert "/pauses/resume" not in limited.get("/").text
    app.operations.pauses.pause("mail", by="bob", reason="still")
    assert browser.post("/pauses/resume", form).status == 409
    form["drawn"] = drawn(browser.get("/").text, "/pauses/resume")
    assert browser.post("/pauses/resume", form).status == 303
    assert app.operations.pauses.list() == []


def test_what_changed_names_the_queue_the_end_and_the_node(app, browser, node):
    ends = app.operations.pauses.pause("mail", by="ann", reason="the relay is down", duration="2h").paused_until
    app.operations.pauses.pause(None, by="ann", reason="the bank is closed")
    app.operations.drain_node("n1", by="ann", reason="it is replaced")
    found = {each.what: each.details for each in app.operations.concerns.changes() if each.by == "ann"}
    assert found["queue paused"] == f"queue mail, until {spelled(ends)}"
    assert (found["everything paused"], found["node asked to drain"]) == (None, "node host-1")
    assert "queue mail, until 20" in browser.get("/").text


def test_one_who_may_see_some_jobs_is_told_that_nothing_needs_a_person_in_these(app, browser, node):
    limited = Browser(web(app, auth=lambda _: HostPrincipal("bob", {"settle": "viewer"})))
    assert "Nothing needs a person in the jobs that you may see." in limited.get("/").text
    assert "Nothing needs a person." in browser.get("/").text


def test_pause_between_the_look_and_the_act_is_noticed_in_its_transaction(app, browser, monkeypatch):
    pause = AuthorizedPauses.pause

    def quicker(*args, **given):
        app.operations.pauses.pause(None, by="bob", reason="do not resume")
        return pause(*args, **given)

    monkeypatch.setattr(AuthorizedPauses, "pause", quicker)
    assert browser.post("/pauses", {"what": "everything", "drawn": "", "reason": "a break", "for": "1m"}).status == 409
    assert [(each.paused_by, each.reason) for each in app.operations.pauses.list()] == [("bob", "do not resume")]


def test_node_is_drained_if_its_name_was_typed(app, browser, node):
    assert browser.post(f"/nodes/{node}/drain", {"confirm": "yes", "reason": "why"}).status == 400
    assert app.operations.nodes()[0].state == "living"
    answer = browser.post(f"/nodes/{node}/drain", {"confirm": "host-1", "reason": "why"})
    assert answer.header("location") == "/nodes?did=drained"
    [found] = app.operations.nodes()
    assert (found.state, found.drain_by) == ("draining", "host:ann")
    page = browser.get("/nodes").text
    assert "asked by host:ann" in page
    assert "Drain host-1" not in page


def test_one_without_the_role_for_all_jobs_sees_what_concerns_it_and_may_do_neither(app, node):
    limited = Browser(web(app, auth=lambda _: HostPrincipal("bob", {"settle": "admin"})))
    app.operations.pauses.pause("mail", by="ann", reason="the relay is down")
    app.operations.pauses.pause("default", by="ann", reason="the bank is closed")
    page = limited.get("/nodes").text
    assert "the bank is closed" in page
    assert "relay" not in page
    assert 'action="/pauses' not in page
    assert "Drain host-1" not in page
    form = {"what": "everything", "drawn": "", "reason": "why"}
    assert limited.post("/pauses", form).status == 403
    assert limited.post("/pauses/resume", {"queue": "default"}).status == 403
    assert limited.post(f"/nodes/{node}/drain", {"confirm": "host-1", "reason": "why"}).status == 403
    assert len(app.operations.pauses.list()) == 2


def test_node_of_an_older_version_is_named_where_it_ignores_the_pause(app, browser, node):
    old = NewNode("n0", "old-1", "g", 1, 0, "0.9/0004/0001", 4, ("mail",), ("settle",))
    nodes.join(app.ledger, old)
    assert app.operations.pauses.pause("mail", by="ann", reason="why").ignored_by == ("old-1",)
    assert app.operations.pauses.pause("default", by="ann", reason="why").ignored_by == ()
    assert "go on: old-1." in browser.get("/runs").text
    refused = browser.post("/nodes/n0/drain", {"confirm": "old-1", "reason": "why"})
    assert refused.status == 400
    assert "SIGTERM" in refused.text


def test_why_and_what_a_run_waits_for_name_the_pause(app, node):
    ops = app.operations
    run_id = ops.trigger("settle", by="ann").run_id
    ops.pauses.pause(None, by="ann", reason="the bank is closed")
    sentence = "everything has been paused since"
    assert ops.waits(run_id).startswith(sentence)
    due_us = app.ledger.now_us() - 60_000_000
    from tests.access.scene import set_run

    set_run(app, run_id, schedule="settle", due_at=due_us, first_due_at=due_us)
    [answer] = ops.why("settle", app.operations.run(run_id).due_at)
    assert sentence in answer.sentence
    assert answer.sentence.endswith("by ann: the bank is closed")


def test_the_page_why_ends_with_the_pause_and_the_command_unless_a_time_was_asked_for(app, browser):
    app.operations.pauses.pause(None, by="ann", reason="lunch")
    app.schedules.pause("settle", by="root", reason="month-end")
    page = html.unescape(browser.get("/why?job=settle").text)
    assert "by root: month-end" in page
    assert "fencepost schedules resume settle" in page
    assert "by ann: lunch. fencepost resume --all" in page
    assert "fencepost resume --all" not in html.unescape(browser.get("/why?job=settle&at=2099-01-01T00:00Z").text)

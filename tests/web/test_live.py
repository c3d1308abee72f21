"""Streams of hints: they end when the login does, and one thread asks for all of them."""

import asyncio

import pytest

from fencepost.access import Access
from fencepost.core.rights import Scope
from fencepost.web import live, web
from tests.web.asking import Browser
from tests.web.conftest import PASSWORD, admin

DEADLINE_S = 30.0


class Stream:
    """An open stream, which collects what was sent."""

    def __init__(self, browser, headers):
        self.text = ""
        self.status = 0
        self.changed = asyncio.Event()
        scope = browser.scope("GET", "/events", [("Host", "127.0.0.1"), *headers])
        self.gone = asyncio.Event()
        self.task = asyncio.ensure_future(browser.app(scope, self._receive, self._send))

    async def _receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()
        self.changed.set()

    async def until(self, word):
        while word not in self.text:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), DEADLINE_S)

    async def close(self):
        self.gone.set()
        await asyncio.wait_for(self.task, DEADLINE_S)


def test_stream_carries_hints_only_and_one_thread_asks_for_all(app, monkeypatch):
    monkeypatch.setattr(live, "ASK_EVERY_S", 0.05)
    begun = []
    spawn = app.runtime.spawn
    monkeypatch.setattr(app.runtime, "spawn", lambda name, work: (begun.append(name), spawn(name, work))[1])
    browser = Browser(web(app, auth=admin))

    async def play():
        streams = [Stream(browser, []) for _ in range(5)]
        for each in streams:
            await each.until("hints only")
        app.operations.trigger("settle", {"account": 9}, by="ann")
        for each in streams:
            await each.until("event: changed")
            assert "settle" not in each.text
            await each.close()

    asyncio.run(play())
    assert begun.count("fencepost-web-hints") == 1


REVOKED = {
    "logins ended": lambda access: access.end_logins("user:ann"),
    "permission taken": lambda access: access.take("user:ann"),
    "account disabled": lambda access: access.disable_account("ann"),
    "account removed": lambda access: access.remove_account("ann"),
    "another password": lambda access: access.set_password("ann", PASSWORD + "!"),
    "API token revoked": lambda access: access.revoke_api_token(access.api_tokens()[0].id),
    "permission of the API token taken": lambda access: access.take(f"token:{access.api_tokens()[0].id}"),
}


@pytest.mark.parametrize("how", REVOKED)
def test_stream_ends_when_its_caller_may_look_no_longer(app, monkeypatch, how):
    monkeypatch.setattr(live, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(live, "CHECK_EVERY_S", 0.1)
    monkeypatch.setattr("fencepost.access.identity.TRUSTED_S", 0.0)
    access = Access(app.ledger, Scope.direct("root"))
    access.put_account("ann", PASSWORD)
    access.give("user:ann", "viewer")
    token = access.add_api_token("ci", "viewer", expires_in="1h")
    browser = Browser(web(app))
    browser.post("/login", {"name": "ann", "password": PASSWORD})
    by_token = [("Authorization", f"Bearer {token.secret}")]

    async def play():
        stream = Stream(browser, by_token if "token" in how.lower() else [("Cookie", browser.cookie)])
        await stream.until("hints only")
        REVOKED[how](access)
        await stream.until("event: ended")
        await asyncio.wait_for(stream.task, DEADLINE_S)

    asyncio.run(play())


def test_checks_come_often_enough_for_a_stream_to_end_within_five_seconds():
    from fencepost.access.identity import TRUSTED_S

    assert live.CHECK_EVERY_S + 2 * TRUSTED_S <= 5  # two: while what was read is confirmed by looks for changes


def test_stream_under_a_host_application_ends_after_its_time(app, monkeypatch):
    monkeypatch.setattr(live, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr("fencepost.web.doors.HOST_STREAM_S", 0.2)
    browser = Browser(web(app, auth=admin))

    async def play():
        stream = Stream(browser, [])
        await stream.until("hints only")
        await asyncio.wait_for(stream.task, DEADLINE_S)

    asyncio.run(play())


def test_too_many_streams_of_one_are_refused(app, monkeypatch):
    monkeypatch.setattr(live, "MOST_FOR_ONE", 1)
    browser = Browser(web(app, auth=admin))

    async def play():
        first = Stream(browser, [])
        await first.until("hints only")
        second = Stream(browser, [])
        await asyncio.wait_for(second.task, DEADLINE_S)
        assert second.status == 503
        await first.close()

    asyncio.run(play())


@pytest.mark.parametrize("headers", [[], [("Authorization", "Bearer fp_x")]])
def test_stream_needs_a_credential(app, headers):
    assert Browser(web(app)).get("/events", ("Accept", "application/json"), *headers).status == 401


def test_part_is_shared_by_those_who_may_see_the_same_until_the_next_hint(app):
    from types import SimpleNamespace

    from starlette.responses import HTMLResponse

    from fencepost.web.fragments import Fragments

    version, drawn = [1], []
    fragments = Fragments(app.runtime, lambda: version[0])

    def get(jobs, q=""):
        ask = SimpleNamespace(scope_key=frozenset(jobs))
        visit = SimpleNamespace(root_path="", path="/runs", query={"q": q}, ask=ask)
        draw = lambda: (drawn.append(jobs), HTMLResponse(f"{len(drawn)}"))[1]  # noqa: E731
        return fragments.get(visit, draw).body

    ann, bob = [("settle", "viewer")], [("report", "viewer")]
    assert get(bob) == b"1"
    assert get(ann) == b"2"
    assert get(ann) == b"2"
    assert get(ann, q="x") == b"3"
    version[0] = 2  # what was drawn before a hint does not answer it
    assert get(ann) == b"4"

"""The page of nodes, leaders and locks; and a real process that loses its lock by it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from fencepost import locks
from fencepost.access import HostPrincipal
from fencepost.ledger import nodes
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.urls import lease_url
from fencepost.web import web
from tests.access.scene import set_run
from tests.servers import RUNTIME
from tests.web.asking import Browser

HOSTILE = "<img src=x onerror=alert(2)>"
HOLDER = """
import sys, threading
from fencepost.locks import connect
lost = threading.Event()
with connect(sys.argv[1], holder="<img src=x onerror=alert(2)>") as store:
    lease = store.lock(sys.argv[2], ttl="6s").acquire()
    lease.on_lost(lambda _: lost.set())
    print(lease.token, flush=True)
    print("lost" if lost.wait(60) else "kept", flush=True)
"""


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"<script>alert(1)</script>/{RUNTIME.new_id()[:8]}"


@contextmanager
def holding(url: str, name: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process of its own that holds a lock, and its token."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, url, name], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_lock_is_taken_away_from_a_process_that_holds_it(app, browser, ledger_url, name):
    target = f"/lock?name={quote(name, safe='')}"
    with holding(lease_url(ledger_url), name) as (process, token):
        listed = browser.get("/nodes").text
        assert quote(name, safe="") in listed
        assert "of 6s" in listed
        page = browser.get(target).text
        for text in (listed, page):
            assert "<script>alert" not in text
            assert "<img src=x" not in text
        assert "&lt;img src=x" in page
        assert f"The next holder gets a token above {token}." in page
        assert "so it is alive" in page
        form = dict(re.findall(r'<input type="hidden" name="(store|token)" value="(\w+)">', page))
        form |= {"name": name, "confirm": name, "reason": "its host is gone"}
        assert form["token"] == str(token)
        for wrong, status in (({"confirm": "it"}, 400), ({"reason": ""}, 400), ({"token": str(token + 1)}, 409)):
            assert browser.post("/lock/release", form | wrong).status == status
        viewer = Browser(web(app, auth=lambda _: HostPrincipal("eve", {"": "operator"})))
        assert viewer.post("/lock/release", form).status == 403
        assert "Take it away" not in viewer.get(target).text
        assert app.operations.locks.show(name).token == token
        answer = browser.post("/lock/release", form)
        assert answer.status == 303
        assert "was taken away" in browser.get(answer.header("location")).text
        assert process.stdout.readline() == "lost\n"
    [entry] = app.operations.audit.entries(act="lock released")
    assert (entry.who, entry.how, entry.reason) == ("host:ann", "host", "its host is gone")
    assert "lock-was-free" in browser.post("/lock/release", form).header("location")
    with locks.connect(lease_url(ledger_url)) as store, store.lock(name) as lease:
        assert lease.token > token
        again = browser.post("/lock/release", form)
        assert again.status == 409
        assert "Nothing was done" in again.text
        assert app.operations.locks.show(name).token == lease.token


class TestOnOneDatabase:
    @pytest.fixture
    def kind(self) -> str:
        return "sqlite"

    def test_keys_lead_to_the_run_that_has_them_and_to_those_that_wait(self, app, browser, dead_run):
        set_run(app, dead_run, state="running", ended_at=None, exclusive_key=HOSTILE, token=5)
        waits = app.operations.trigger("settle", {"account": 9}, by="ann").run_id
        set_run(app, waits, state="waiting", waits_for="key", exclusive_key=HOSTILE)
        page = browser.get("/nodes").text
        assert HOSTILE not in page
        assert f'href="/runs/{dead_run}#acts">Stop run {dead_run}</a>' in page
        assert f'<a href="/runs/{waits}">{waits}</a>' in page

    def test_overdue_node_is_marked_and_is_on_the_page_now(self, app, browser):
        common = {"token": 1, "generation": 0, "version": "1", "slots": 4, "queues": ("default",), "jobs": ("settle",)}
        with locks.connect(lease_url(str(app.settings.url)), holder="h") as store:
            lease = store.lock("fencepost/node/n1", ttl="30s").acquire()
            nodes.join(app.ledger, NewNode(id="n1", name="node-1", grant_id=lease.grant_id, **common))
            nodes.join(app.ledger, NewNode(id="n2", name="node-2", grant_id="gone", **common))
            page, now = browser.get("/nodes").text, browser.get("/").text
            lease.release()
        assert re.findall(r'<span class="state \w+">(\w+)</span>', page) == ["living", "overdue"]
        assert "ttl 30s" in page
        assert "trust left" in page
        assert "node node-2 has not renewed its lease for its ttl" in now
        assert "node-1 has not renewed" not in now

    def test_a_viewer_of_one_job_sees_keys_of_its_runs_and_no_lock(self, app, dead_run):
        set_run(app, dead_run, state="running", ended_at=None, exclusive_key="k7", token=5)
        with locks.connect(lease_url(str(app.settings.url))) as store, store.lock("month-end"):
            seen = Browser(web(app, auth=lambda _: HostPrincipal("bob", {"report/part": "viewer"})))
            assert "k7" not in seen.get("/nodes").text
            assert "month-end" not in seen.get("/nodes").text
            assert seen.get("/lock?name=month-end").status == 403
            both = Browser(web(app, auth=lambda _: HostPrincipal("bob", {"settle": "viewer"})))
            assert "k7" in both.get("/nodes").text
            assert "Stop run" not in both.get("/nodes").text

"""What is refused before it is known who asks is refused, and in the audit: counted, with the address it came from."""

import asyncio

import pytest
from sqlalchemy import update

from fencepost.access import Access
from fencepost.access.identity import API_TOKEN, PROXY
from fencepost.access.tries import FREE_FOR_ADDRESS, FREE_FOR_PAIR
from fencepost.core import audit_words
from fencepost.core.rights import Scope
from fencepost.web import guard, web
from fencepost.web.doors import ProxyHeader
from tests.web.asking import FROM_OUR_PAGES, Browser
from tests.web.conftest import PASSWORD

FORM = {"state": "dead", "attempt": "2"}
SECRET = "a secret of the proxy"


def on_record(app, browser):
    """The refused tries of those who are not known: act, how, from where, how often."""
    browser.app._door.authentication.close()  # what was counted is written
    found = app.operations.audit.entries(limit=50)
    return [
        (e.act, e.how, e.address, e.detail["count"]) for e in found if e.outcome == "refused" and e.who == "unknown"
    ]


@pytest.mark.parametrize(
    ("headers", "host", "refused"),
    [
        ([("Sec-Fetch-Site", "cross-site")], None, (403, audit_words.CROSS_SITE)),
        ([("Origin", "https://evil.example")], None, (403, audit_words.CROSS_SITE)),
        ([], None, (403, audit_words.CROSS_SITE)),
        ([FROM_OUR_PAGES], "evil.example", (421, audit_words.OTHER_HOST)),
        ([FROM_OUR_PAGES, ("Cookie", "a=b"), ("Cookie", "a=c")], None, (400, audit_words.REPEATED)),
    ],
)
def test_forms_of_other_sites_other_hosts_and_double_headers(app, dead_run, headers, host, refused):
    access, (status, act) = Access(app.ledger, Scope.direct("root")), refused
    access.put_account("ann", PASSWORD)
    access.give("user:ann", "admin")
    browser = Browser(web(app), address="192.0.2.7")
    browser.post("/login", {"name": "ann", "password": PASSWORD})
    for _ in range(2):
        assert browser.ask("POST", f"/runs/{dead_run}/retry", headers, form=FORM, host=host).status == status
    assert app.operations.runs(retry_of=dead_run) == []
    assert sum(count for *said, count in on_record(app, browser) if said == [act, "unknown", "192.0.2.7"]) == 2


def test_probe_that_names_another_host_is_refused_and_not_on_record(app):
    browser = Browser(web(app))
    assert browser.ask("GET", "/health", host="10.1.2.3").status == 421
    assert on_record(app, browser) == []


def test_forged_and_expired_api_tokens(app, access):
    token, browser = access.add_api_token("ci", "viewer", expires_in="1h"), Browser(web(app), address="192.0.2.7")
    table = app.ledger.tables.operating["api_token"]
    bearer = [("Authorization", f"Bearer {token.secret}")]
    assert browser.ask("GET", "/api/v1/runs", bearer).status == 200
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(table).values(expires_at=1)))
    late = Browser(web(app), address="192.0.2.7")
    for wrong in (token.secret, token.secret[:-1] + "x", "fp_", "fp_" + "0" * 64):
        assert late.ask("GET", "/api/v1/runs", [("Authorization", f"Bearer {wrong}")]).status == 401
    assert sum(count for *said, count in on_record(app, late) if said == ["log in", API_TOKEN, "192.0.2.7"]) == 4


def test_cookie_that_was_kept_over_the_log_out_lets_nobody_in(app, access):
    access.put_account("ann", PASSWORD)
    access.give("user:ann", "viewer")
    browser = Browser(web(app), address="192.0.2.7")
    browser.post("/login", {"name": "ann", "password": PASSWORD})
    kept = browser.cookie
    assert browser.get("/runs").status == 200
    browser.post("/logout")
    replayed = Browser(browser.app, address="198.51.100.9")
    assert replayed.ask("GET", "/runs", [("Cookie", kept), ("Accept", "application/json")]).status == 401
    assert ("log in", "login", "198.51.100.9", 1) in on_record(app, browser)


@pytest.mark.parametrize("wrong", ["address", "secret"])
def test_header_of_a_proxy_that_is_not_ours(app, access, wrong):
    access.give("proxy:ann", "admin")
    proxy = ProxyHeader.of(["192.0.2.1"], SECRET)
    browser = Browser(web(app, proxy=proxy), address="192.0.2.1" if wrong == "secret" else "203.0.113.5")
    said = [("X-Fencepost-User", "ann"), ("X-Fencepost-Secret", SECRET if wrong == "address" else "a guess of it")]
    assert browser.ask("GET", "/access", [*said, ("Accept", "application/json")]).status == 401
    assert on_record(app, browser) == [("log in", PROXY, browser.address, 1)]


def test_guesses_through_a_proxy_lock_the_guessed_account_and_nobody_else(app, access):
    for name in ("ann", "bob"):
        access.put_account(name, PASSWORD)
        access.give(f"user:{name}", "viewer")
    browser = Browser(web(app, is_https=True), address="10.0.0.1")

    def log_in(name, password):
        return browser.post("/login", {"name": name, "password": password}).status

    assert {log_in("ann", f"guess {n}") for n in range(FREE_FOR_PAIR)} == {401}
    assert {log_in(f"nobody-{n}", "guess") for n in range(2 * FREE_FOR_ADDRESS)} == {401}
    assert log_in("ann", PASSWORD) == 429
    assert log_in("bob", PASSWORD) == 303


def test_body_that_does_not_come_to_its_end_is_given_up(app, browser, monkeypatch):
    monkeypatch.setattr(guard, "BODY_WITHIN_S", 0.05)
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    headers = [("Host", "127.0.0.1"), FROM_OUR_PAGES, kind, ("Content-Length", "100")]
    first, sent = [{"type": "http.request", "body": b"role=", "more_body": True}], []

    async def receive():
        if first:
            return first.pop()
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    asyncio.run(browser.app(browser.scope("POST", "/access/give", headers), receive, send))
    assert sent[0]["status"] == 408

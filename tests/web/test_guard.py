"""The guard: what gets through without a credential (a list), and what is refused before anything is asked."""

import re

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError
from fencepost.web import HostPrincipal, web
from fencepost.web.open_routes import OPEN_ROUTES
from fencepost.web.routes import is_open, refuse_undeclared, right_of, spelled_routes
from tests.web.asking import FROM_OUR_PAGES, Browser

EXPECTED_OPEN = {"GET /health", "GET /login", "POST /login", "GET /enter", "POST /enter", "GET /static/{name}"}
POLICY = re.compile(
    r"default-src 'none'; script-src 'nonce-[0-9a-f]{32}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    r"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    r"trusted-types fencepost"
)


@pytest.fixture
def closed(app):
    """The pages as they are stand-alone: nobody is logged in."""
    return Browser(web(app))


def routes_of(browser):
    return browser.app._routes


def filled(path):
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: "json" if match[1] == "form" else "1", path)


def test_open_routes_are_exactly_the_listed_ones(closed):
    declared = {each for route in routes_of(closed) for each in spelled_routes(route)}
    assert OPEN_ROUTES == EXPECTED_OPEN
    assert declared >= EXPECTED_OPEN
    assert {each for route in routes_of(closed) if is_open(route) for each in spelled_routes(route)} == EXPECTED_OPEN
    assert len(declared) > 30


def test_every_other_route_declares_its_right_and_refuses_without_a_credential(closed):
    for route in routes_of(closed):
        for each in spelled_routes(route):
            method, path = each.split(" ")
            if each in EXPECTED_OPEN:
                continue
            assert isinstance(right_of(route), HumanAct), each
            answer = closed.ask(method, filled(path), [FROM_OUR_PAGES, ("Accept", "application/json")])
            assert answer.status == 401, (each, answer.status)
            assert b"settle" not in answer.body


def test_address_that_does_not_exist_is_401_without_a_credential_and_404_with_one(closed, browser):
    for path in ("/nothing", "/health/", "/xhealth", "/static/../runs", "/openapi.json", "/docs", "/api/v1/nothing"):
        assert closed.get(path, ("Accept", "application/json")).status == 401, path
        assert browser.get(path).status == 404, path
    assert browser.ask("DELETE", "/runs", [FROM_OUR_PAGES]).status == 405


def test_route_without_a_right_cannot_be_built():
    def bare(request):
        return PlainTextResponse("open")

    with pytest.raises(ConfigurationError, match="GET /bare"):
        refuse_undeclared([Route("/bare", bare)])
    with pytest.raises(ConfigurationError, match=r"openapi\.json"):
        refuse_undeclared(FastAPI().routes)


def test_right_that_the_caller_has_for_no_job_is_refused(app, dead_run):
    viewer = Browser(web(app, auth=lambda request: HostPrincipal("vic", {"settle": "viewer"})))
    assert viewer.get("/runs").status == 200
    assert viewer.get("/audit").status == 403
    assert viewer.get("/access").status == 403
    answer = viewer.post(f"/runs/{dead_run}/retry", {"state": "dead", "attempt": "2"})
    assert answer.status == 403
    nobody = Browser(web(app, auth=lambda request: HostPrincipal("nil", {})))
    assert nobody.get("/").status == 403


def test_refused_acts_are_on_record_wherever_they_are_refused(app, dead_run):
    def refused(role, path, form):
        before = app.operations.audit.entries(limit=1)[0].n
        operator = Browser(web(app, auth=lambda request: HostPrincipal(f"vic-{role}", {"report/part": role})))
        assert operator.post(path, form).status in (403, 404)
        [said] = [each for each in app.operations.audit.entries(limit=5) if each.n > before]
        assert (said.who, said.outcome) == (f"host:vic-{role}", "refused")
        return said.act, said.detail

    drawn = {"state": "dead", "attempt": "2"}
    assert refused("viewer", f"/runs/{dead_run}/retry", drawn)[1]["path"] == f"/runs/{dead_run}/retry"
    assert refused("operator", f"/runs/{dead_run}/retry", drawn) == ("retry", {"why": "NoSuchRun", "run": dead_run})
    assert refused("operator", "/runs/999999/cancel", drawn) == ("cancel", {"why": "NoSuchRun", "run": 999999})
    assert refused("operator", "/schedules/settle/pause", {})[0] == "pause schedule"
    assert refused("operator", "/jobs/settle/trigger", {})[0] == "trigger"
    assert (
        refused("operator", "/access/give", {"principal": "host:vic-operator", "role": "admin"})[0] == "change access"
    )
    stretch = {"first": "48h", "last": "24h", "count": "1"}
    assert refused("operator", "/jobs/settle/backfill", stretch)[0] == "backfill"


@pytest.mark.parametrize("target", ["/", "/login", "/static/fencepost.css", "/nothing", "/runs?q=bad:x", "/runs.json"])
def test_every_response_has_the_headers(browser, target):
    answer = browser.get(target)
    assert POLICY.fullmatch(answer.header("content-security-policy"))
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("cross-origin-opener-policy") == "same-origin"
    assert answer.header("access-control-allow-origin") == ""
    expected = "public, max-age=31536000, immutable" if "static" in target else "no-store"
    assert answer.header("cache-control") == expected


def test_refusals_have_the_headers_too_and_no_nonce_comes_twice(browser):
    seen = {browser.get("/login").header("content-security-policy") for _ in range(3)}
    assert len(seen) == 3
    assert POLICY.fullmatch(browser.ask("GET", "/", host="evil.example").header("content-security-policy"))


def test_pages_have_no_inline_script_or_style(browser, dead_run):
    for target in ("/", "/runs", f"/runs/{dead_run}", "/schedules/settle", "/nodes", "/access", "/login"):
        text = browser.get(target).text
        assert " style=" not in text
        assert "<style" not in text
        assert "javascript:" not in text
        assert re.findall(r"\son\w+=", text) == []
        assert all("src=" in tag and "nonce=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:99999999", "a b", "127.0.0.1@x"]
)
def test_host_that_is_not_allowed_is_refused_even_for_open_routes(browser, host):
    assert browser.ask("GET", "/", host=host).status == 421
    assert browser.ask("GET", "/health", host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8600", "LOCALHOST:80", "[::1]:8600", "jobs.example.com"])
def test_host_that_is_allowed_gets_through(app, host):
    pages = Browser(web(app, allowed_hosts=["Jobs.Example.com"]), host=host)
    assert pages.get("/health").status == 200


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ([("Sec-Fetch-Site", "same-origin")], True),
        ([("Origin", "http://127.0.0.1")], True),
        ([("Sec-Fetch-Site", "same-site")], False),
        ([("Sec-Fetch-Site", "cross-site")], False),
        ([("Sec-Fetch-Site", "none")], False),
        ([("Sec-Fetch-Site", "cross-site"), ("Origin", "http://127.0.0.1")], False),
        ([("Origin", "http://evil.example")], False),
        ([("Origin", "http://127.0.0.1:1")], False),
        ([("Origin", "null")], False),
        ([("Origin", "http://[")], False),
        ([], False),
    ],
)
def test_form_of_another_site_does_nothing(app, browser, dead_run, headers, is_ours):
    form = {"state": "dead", "attempt": "2"}
    answer = browser.ask("POST", f"/runs/{dead_run}/retry", headers, form=form)
    assert answer.status == (303 if is_ours else 403)
    assert len(app.operations.runs(retry_of=dead_run)) == is_ours


def test_login_form_of_another_site_is_refused(closed):
    answer = closed.ask("POST", "/login", [("Sec-Fetch-Site", "cross-site")], form={"name": "a", "password": "b"})
    assert answer.status == 403


def test_api_token_needs_no_page_of_ours_and_ignores_cookies(app, access, dead_run):
    token = access.add_api_token("ci", "operator", expires_in="1h", jobs=["settle"])
    closed = Browser(web(app))
    bearer = ("Authorization", f"Bearer {token.secret}")
    form = {"state": "dead", "attempt": "2", "reason": "by a program"}
    assert closed.ask("POST", f"/runs/{dead_run}/retry", [bearer], form=form).status == 303
    assert app.operations.runs(retry_of=dead_run)[0].requested_by == f"token:{token.id}"
    wrong = ("Authorization", "Bearer fp_" + "0" * 64)
    answer = closed.ask("GET", "/runs", [wrong, ("Cookie", "fencepost-login=x")])
    assert answer.status == 401
    assert answer.header("www-authenticate").startswith("Bearer")
    assert answer.header("content-type") == "application/problem+json"
    access.revoke_api_token(token.id)
    assert Browser(web(app)).ask("GET", "/runs", [bearer]).status == 401


@pytest.mark.parametrize("name", ["Host", "Authorization", "Cookie", "Origin", "Sec-Fetch-Site", "X-Fencepost-User"])
def test_headers_that_count_may_come_once(browser, name):
    answer = browser.ask("GET", "/runs", [(name, "127.0.0.1"), (name, "127.0.0.1")])
    assert answer.status == 400
    assert name.lower() in answer.text


def test_large_bodies_are_refused_announced_or_not(browser):
    big = b"x" * 300_000
    length, kind = ("Content-Length", str(len(big))), ("Content-Type", "application/x-www-form-urlencoded")
    assert browser.ask("POST", "/access/give", [FROM_OUR_PAGES, kind, length], chunks=[big]).status == 413
    assert browser.ask("POST", "/access/give", [FROM_OUR_PAGES, kind], chunks=[big[:200_000]] * 2).status == 413
    assert browser.ask("POST", "/access/give", [FROM_OUR_PAGES, ("Content-Length", "-1")]).status == 413
    assert browser.get("/runs?q=" + "x" * 9000).status == 414


def test_form_of_another_kind_is_refused(browser):
    kind = ("Content-Type", "text/plain")
    assert browser.ask("POST", "/access/give", [FROM_OUR_PAGES, kind], chunks=[b"role=admin"]).status == 400
    fields = {f"f{n}": "x" for n in range(300)}
    assert browser.post("/access/give", fields).status == 400


def test_other_kinds_of_connection_are_refused(browser):
    import asyncio

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    asyncio.run(browser.app({"type": "websocket", "headers": [], "path": "/events"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
    with pytest.raises(RuntimeError, match="webtransport"):
        asyncio.run(browser.app({"type": "webtransport"}, receive, send))

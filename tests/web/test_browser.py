"""In a real browser, Debian's Chromium: a failed run is found, understood, repeated and seen to succeed: by mouse, by
keys alone and with scripts off; mounted at three prefixes, stand-alone, and behind a proxy that removes a prefix. What
is live keeps focus, selection and what was typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from fencepost import App
from fencepost.web import web
from fencepost.web.links import OneTimeLink
from testbed.wait import until
from tests.web.chromium import DEADLINE_MS, chromium, serving
from tests.web.conftest import admin

WIDE = {"width": 1100, "height": 700}
_BROKEN = {"payments": False}


def settle(account: int) -> str:
    """Settle an account."""
    if _BROKEN["payments"]:
        raise ConnectionError("payments-db does not answer")
    return f"settled {account}"


class Shop(NamedTuple):
    """An application with a node in this process, and where its pages are served: by the way, their address."""

    app: App
    addresses: dict[str, str]
    link: OneTimeLink


class Stripping:
    """A proxy that shows the pages under a prefix, and removes it from the path."""

    def __init__(self, inner: Any, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(self._prefix)
        await self._inner({**scope, "path": path, "raw_path": path.encode(), "root_path": ""}, receive, send)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The pages in all the ways in which they can be shown, over one ledger."""
    app = App(f"sqlite:///{tmp_path_factory.mktemp('shop')}/shop.db?accept_risk=one-machine", ttl="60s")
    app.job(type="manual", retries=0, effects="fenced")(settle)
    link = OneTimeLink(app.runtime, "ann")
    ways = {
        "mounted at /": ("", web(app, auth=admin)),
        "mounted at /fencepost": ("/fencepost", _mounted(app, "/fencepost")),
        "mounted at /a/b": ("/a/b", _mounted(app, "/a/b")),
        "behind a proxy": ("/jobs-of/shop", Stripping(web(app, auth=admin, prefix="/jobs-of/shop"), "/jobs-of/shop")),
        "stand-alone": ("", web(app, link=link)),
    }
    with app.running(), ExitStack() as stack:
        addresses = {way: stack.enter_context(serving(pages)) + root for way, (root, pages) in ways.items()}
        yield Shop(app, addresses, link)


def _mounted(app: App, prefix: str) -> FastAPI:
    site = FastAPI()
    site.mount(prefix, web(app, auth=admin))
    return site


@pytest.fixture
def failed(shop: Shop) -> int:
    """A run that was given up, because what it needs does not answer; now it would."""
    _BROKEN["payments"] = True
    account = len(shop.app.operations.runs(limit=500)) + 1
    run_id = shop.app.operations.trigger("settle", {"account": account}, by="night", reason="end of day").run_id
    until(lambda: shop.app.operations.run(run_id).state == "dead", 60, what="the run is given up")
    _BROKEN["payments"] = False
    return run_id


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Open pages; at the end, nothing has violated the policy, and nothing was asked of another origin."""
    contexts, said = [], []

    def open_at(address: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(DEADLINE_MS)
        origin = re.match(r"http://[^/]+", address)[0]
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda each: said.append(each.url) if not each.url.startswith(origin) else None)
        page.goto(f"{address}/")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert said == []


def by_mouse(page: Any, run_id: int, reason: str) -> None:
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("link", name="Given up").click()
    page.locator(f"#run-{run_id} a").first.click()
    page.get_by_text("ConnectionError: payments-db does not answer").first.wait_for()
    page.get_by_text("Traceback (most recent call last)").wait_for()
    page.get_by_label("Reason, for the record").first.fill(reason)  # the next form changes parameters
    page.get_by_role("button", name=f"Retry run {run_id}").click()


def by_keys(page: Any, run_id: int, reason: str) -> None:
    press = page.keyboard.press
    press("g")
    press("r")
    page.wait_for_url("**/runs")
    press("/")
    page.keyboard.type(f"state:dead id:{run_id}")
    press("Enter")
    page.wait_for_url("**/runs?q=*")
    press("j")
    press("Enter")
    page.wait_for_url(f"**/runs/{run_id}*")
    page.get_by_text("ConnectionError: payments-db does not answer").first.wait_for()
    press(".")
    page.keyboard.type(reason)
    press("Enter")


def seen_to_succeed(shop: Shop, page: Any, run_id: int, reason: str, *, is_live: bool = True) -> None:
    page.wait_for_url("**did=retried*")
    [made] = shop.app.operations.runs(retry_of=run_id)
    assert made.reason == reason
    ended = page.locator("#repeated", has_text="succeeded")
    if is_live:
        ended.wait_for()
    else:
        until(lambda: page.reload() is not None and ended.count(), 60, what="the page says that it has succeeded")
    page.get_by_role("link", name=f"run {made.id}").click()
    page.get_by_text(f"settled {made.params['account']}").wait_for()


@pytest.mark.parametrize("way", ["mounted at /", "mounted at /a/b"])
def test_failed_run_is_understood_and_repeated_by_mouse(shop, opened, failed, way):
    page = opened(shop.addresses[way])
    by_mouse(page, failed, "payments are back")
    seen_to_succeed(shop, page, failed, "payments are back")
    assert page.url.startswith(shop.addresses[way])


@pytest.mark.parametrize("way", ["mounted at /fencepost", "behind a proxy"])
def test_failed_run_is_understood_and_repeated_by_keys_alone(shop, opened, failed, way):
    page = opened(shop.addresses[way])
    by_keys(page, failed, "payments are back")
    seen_to_succeed(shop, page, failed, "payments are back")
    assert page.url.startswith(shop.addresses[way])


def test_failed_run_is_understood_and_repeated_with_scripts_off_after_the_one_time_link(shop, opened, failed):
    page = opened(shop.addresses["stand-alone"], java_script_enabled=False)
    page.goto(f"{shop.addresses['stand-alone']}/enter?once={shop.link.secret}")
    page.get_by_role("button", name="Log in").click()
    by_mouse(page, failed, "by hand")
    seen_to_succeed(shop, page, failed, "by hand", is_live=False)


def test_what_is_live_keeps_focus_and_selection(shop, opened, failed):
    page = opened(shop.addresses["mounted at /"])
    page.goto(f"{shop.addresses['mounted at /']}/runs")
    page.locator("#live-state", has_text="live").wait_for()
    page.locator(f"#run-{failed} a").first.focus()
    made = shop.app.operations.trigger("settle", {"account": 90_001}, by="ann").run_id
    page.locator(f"#run-{made}").wait_for()
    assert page.evaluate("document.activeElement.textContent") == str(failed)
    page.locator(f"#run-{failed} .wide").dblclick()
    selected = page.evaluate("String(getSelection())")
    assert selected.strip()
    later = shop.app.operations.trigger("settle", {"account": 90_002}, by="ann").run_id
    page.locator("#live-state", has_text="held").wait_for()
    assert page.evaluate("String(getSelection())") == selected
    page.evaluate("getSelection().removeAllRanges()")
    page.locator(f"#run-{later}").wait_for()


def test_what_was_typed_is_kept_though_the_page_has_changed(shop, opened, failed):
    page = opened(shop.addresses["mounted at /"])
    box = page.get_by_label("Reason").first
    box.fill("it was the net")
    made = shop.app.operations.trigger("settle", {"account": 90_003}, by="ann").run_id
    until(lambda: shop.app.operations.run(made).state == "succeeded", 60, what="something has changed")
    page.locator("#live-state", has_text="held").wait_for()
    assert box.input_value() == "it was the net"


def test_what_was_typed_while_the_page_fetched_its_changes_is_kept(shop, opened, failed):
    page, asked = opened(shop.addresses["mounted at /"]), []
    page.route(
        "**/*",
        lambda route, request: asked.append(route) if "fencepost-fragment" in request.headers else route.continue_(),
    )
    with page.expect_request(lambda each: "fencepost-fragment" in each.headers):
        shop.app.operations.trigger("settle", {"account": 90_004}, by="ann")
    box = page.get_by_label("Reason").first
    box.fill("it was the net")
    asked[0].continue_()
    page.locator("#live-state", has_text="held").wait_for()
    assert box.input_value() == "it was the net"


def test_keys_are_explained_and_pause_what_is_live(shop, opened):
    page = opened(shop.addresses["mounted at /fencepost"])
    page.locator("#live-state", has_text="live").wait_for()
    page.keyboard.press("?")
    assert "next and previous row" in page.locator("dialog#keys").inner_text()
    page.keyboard.press("?")
    page.locator("dialog#keys").wait_for(state="hidden")
    page.keyboard.press("p")
    page.locator("#live-state", has_text="paused").wait_for()
    for key, path in {
        "j": "/jobs",
        "s": "/schedules",
        "w": "/why",
        "o": "/nodes",
        "a": "/audit",
        "x": "/access",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/fencepost{path}")
        if key == "w":
            page.keyboard.press("Escape")  # out of the box that has the focus

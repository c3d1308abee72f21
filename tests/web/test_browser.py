"""In a real browser, where Debian's Chromium is installed: nothing violates the policy, no page is wider than a phone,
changes show by themselves, and a failed run is found and repeated by keys alone, and with scripts off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from fencepost.web import web
from fencepost.web.serving import ListenOn, _bound
from testbed.server import Missing
from tests.web.conftest import admin
from tests.web.test_pages import targets

CHROMIUM = shutil.which("chromium")
DEADLINE_MS = 60_000
HOSTILE = "<img src=x onerror=\"document.title='gone'\"><script>document.title='gone'</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        raise Missing("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def address(app) -> Iterator[str]:
    """The pages, served on a free port by a thread of this process."""
    listening = ListenOn("127.0.0.1", 0)
    with _bound(listening) as bound:
        config = uvicorn.Config(
            web(app, auth=admin), lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = app.runtime.spawn("pages", lambda: server.run(sockets=[bound]))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        task.join(30)


@pytest.fixture
def page(chromium, address) -> Iterator[Any]:
    opened = chromium.new_page(viewport={"width": 390, "height": 844}, base_url=address)
    opened.set_default_timeout(DEADLINE_MS)
    opened.said = []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.on("request", lambda each: opened.said.append(each.url) if not each.url.startswith(address) else None)
    yield opened
    opened.close()


def test_pages_fit_a_phone_and_violate_nothing_also_with_hostile_texts(app, page, dead_run):
    from tests.access.scene import set_run

    set_run(app, dead_run, error=HOSTILE * 3, error_code="x" * 60, why=HOSTILE, exclusive_key="k" * 150)
    for target in targets(dead_run)[:22]:
        page.goto(target, wait_until="load")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, (target, width)
        assert page.title() != "gone"
    assert page.said == []


def test_change_shows_by_itself_without_losing_the_focus(app, page, dead_run):
    page.goto("/runs")
    page.locator("#live-state", has_text="live").wait_for()
    page.locator(f"#run-{dead_run} a").first.focus()
    made = app.operations.trigger("settle", {"account": 99}, by="ann").run_id
    page.locator(f"#run-{made}").wait_for()
    assert page.evaluate("document.activeElement.textContent") == str(dead_run)
    assert page.said == []


def test_failed_run_is_found_and_repeated_by_keys_alone(app, page, dead_run):
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.keyboard.press("/")
    page.keyboard.type("state:dead")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=*")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{dead_run}*")
    page.keyboard.press(".")
    page.keyboard.type("it was the network")
    page.keyboard.press("Enter")
    page.wait_for_url("**did=retried*")
    [made] = app.operations.runs(retry_of=dead_run)
    assert made.reason == "it was the network"
    assert page.said == []


def test_failed_run_is_repeated_with_scripts_off(app, chromium, address, dead_run):
    context = chromium.new_context(java_script_enabled=False, base_url=address)
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.goto("/")
    page.get_by_placeholder("Reason").first.fill("by mouse")
    page.get_by_role("button", name="Retry").click()
    page.wait_for_url("**did=retried*")
    assert app.operations.runs(retry_of=dead_run)[0].reason == "by mouse"
    context.close()

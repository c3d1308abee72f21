"""Every page in a real browser, Debian's Chromium: with hostile texts in every text column no script runs, nothing
violates the policy and nothing leaves the origin; no page is wider than a phone; axe finds nothing serious, light and
dark; times in three zones.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe

from fencepost.ledger.tables import Tables
from fencepost.web import web
from fencepost.web.application import _SUBJECTS
from fencepost.web.static_files import static_files
from tests.access.scene import set_run
from tests.web import hostile
from tests.web.chromium import DEADLINE_MS, chromium, serving
from tests.web.conftest import admin
from tests.web.hostile import evil, make_hostile, text_columns
from tests.web.night import GIVEN_UP, HELD, NOW, RUNNING, night, us
from tests.web.screenshots import FOLDER, MOST_BYTES, PICTURES, Picture, taken

IS_FULL = os.environ.get("FENCEPOST_AXE") == "full"  # every state, and contrast everywhere: half a minute
PHONE, WIDE = {"width": 390, "height": 844}, {"width": 1100, "height": 700}
# Pages in another state than the one that their plain address shows.
STATES = (
    f"/runs/{HELD}", f"/runs/{RUNNING}", "/nodes?all=1", "/why?job={job}", "/why?job={job}&at=2026-11-17T02:00Z",
    "/schedules/{id}?when=0+4+*+*+*&zone=Europe/Berlin", "/jobs/{job}/backfill?first=72h&last=now",
    "/runs?q=colour:red", "/schedules/invoices:us{id_mark}", "/nothing",
)  # fmt: skip


def pages(*, job: str = "settle", schedule: str = "settle", mark: str = "", states: bool = True) -> list[str]:
    """The address of every page that the router has, and of some in another state."""
    put = {"run_id": str(GIVEN_UP), "job": quote(job, safe=""), "id": quote(schedule, safe=""), "id_mark": quote(mark)}
    routes = [page.path for subject in _SUBJECTS for page in subject.PAGES if page.method == "GET"]
    shown = [
        re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path) for path in routes if not re.search(r"\.(\{form\}|json|txt)$", path)
    ]
    return [each.format(**put) for each in (*shown, *(STATES if states else ()))]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    contexts = []

    def opened(address: str, **options: Any) -> Any:
        contexts.append(browser.new_context(base_url=address, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(DEADLINE_MS)
        return page

    yield opened
    for context in contexts:
        context.close()


def test_no_page_of_hostile_texts_runs_them_or_loads_them_or_is_wider_than_a_phone(migrated_file, tmp_path, open_page):
    file = tmp_path / "hostile.db"
    file.write_bytes(migrated_file.read_bytes())
    with night(f"sqlite:///{file}") as app, serving(web(app, auth=admin)) as address:
        set_run(app, RUNNING, cancel_requested_at=us(NOW))
        to_be_seen = make_hostile(app)
        page, said, texts, wrong = open_page(address, viewport=PHONE), [], [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda each: said.append(each.url) if not each.url.startswith(address) else None)
        job, schedule = f"settle{evil('job.name')}", f"settle{evil('schedule.id')}"
        for target in pages(job=job, schedule=schedule, mark=evil("schedule.id")):
            answer = page.goto(target, wait_until="load")
            if answer.status in (400, 404):  # which Chromium says on the console
                said[:] = [each for each in said if "Failed to load resource" not in each]
            found = page.evaluate(
                "[document.title, document.querySelectorAll('img[src=x], a[href^=javascript]').length, "
                "Math.max(document.documentElement.scrollWidth, 390)]"
            )
            wrong += [(target[:60], each) for each in said]
            if answer.status >= 500 or found[0] == "gone" or found[1:] != [0, 390]:
                wrong.append((target[:60], answer.status, found))
            said.clear()
            texts.append(page.content())
        assert wrong == []
        whole = "\n".join(texts)
        assert {each for each in to_be_seen if each not in whole} == set()


def test_columns_that_are_left_out_exist():
    """Otherwise one that was renamed would stay left out."""
    names = set(text_columns(Tables()))
    assert names >= hostile.KEPT | hostile.NOT_SHOWN | set(hostile._NAMES) | set(hostile._JSON)


def test_axe_finds_nothing_serious_light_or_dark(migrated_file, tmp_path, open_page):
    """Contrast takes most of the time, and colours are variables: it is looked at on one page, and computed below."""
    axe, file = Axe(), tmp_path / "night.db"
    file.write_bytes(migrated_file.read_bytes())
    with night(f"sqlite:///{file}") as app, serving(web(app, auth=admin)) as address, serving(web(app)) as closed:
        page, found = open_page(address, viewport=WIDE, bypass_csp=True), []
        for target in [*pages(states=IS_FULL), f"{closed}/login"]:
            page.goto(target, wait_until="load")
            page.evaluate(axe.axe_script)
            found += wrongs(
                page, target, "{type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}", "false"
            )
            for scheme in ("light", "dark") if IS_FULL or target == "/" else ():
                page.emulate_media(color_scheme=scheme)
                found += wrongs(page, f"{target} {scheme}", "{type: 'rule', values: ['color-contrast']}", "true")
        assert found == []


def wrongs(page: Any, target: str, only: str, contrast: str) -> list[tuple[str, str, str]]:
    """What axe calls serious or critical; of a long table it looks at the first rows."""
    result = page.evaluate(
        "axe.run({exclude: [['tbody tr:nth-child(n+7)']]}, {resultTypes: ['violations'], "
        f"runOnly: {only}, rules: {{'color-contrast': {{enabled: {contrast}}}}}}})"
    )
    return [
        (target, wrong["id"], node["html"][:120])
        for wrong in result["violations"]
        if wrong["impact"] in ("serious", "critical")
        for node in wrong["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_of_text_stands_out_from_every_ground_it_is_used_on(scheme):
    light, dark = re.findall(r":root \{(.*?)\}", static_files()["fencepost.css"][1].decode(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", light if scheme == "light" else dark))
    kinds = ("good", "warn", "bad", "busy", "rest")
    grounds = ["ground", "raised", *(f"{kind}-bg" for kind in kinds[:4])]
    pairs = [(kind, f"{kind}-bg") for kind in kinds] + [(kind, "ground") for kind in kinds]
    pairs += [(text, ground) for text in ("text", "faint", "link") for ground in grounds] + [("ground", "link")]
    assert {pair for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5} == set()


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_times_are_shown_in_three_zones_and_the_readers_own_is_offered(migrated_file, tmp_path, open_page):
    file = tmp_path / "night.db"
    file.write_bytes(migrated_file.read_bytes())
    with night(f"sqlite:///{file}") as app, serving(web(app, auth=admin)) as address:
        page = open_page(address, viewport=WIDE, timezone_id="America/Sao_Paulo")
        page.goto(f"/runs/{GIVEN_UP}")
        due = page.locator("dl.facts dd time").first
        seen = [due.inner_text()]
        assert page.locator("#zones option").first.get_attribute("value") == "America/Sao_Paulo"
        for zone in ("Asia/Seoul", "own"):
            page.get_by_label("Times").fill(zone)
            page.get_by_role("button", name="Show").click()
            page.wait_for_url(f"**tz={quote(zone, safe='')}*")
            seen.append(due.inner_text())
        assert seen == ["2026-11-18 02:00:00Z", "2026-11-18 11:00:00+09:00", "2026-11-18 03:00:00+01:00"]
        page.get_by_role("link", name="Runs").click()
        assert page.get_by_label("Times").input_value() == "own"


def test_pictures_of_the_docs_are_there_and_can_be_taken_anew(migrated_file, tmp_path, browser):
    names = {f"{each.name}.png" for each in PICTURES}
    files = {each.name: each.stat().st_size for each in FOLDER.glob("*")}
    assert set(files) == names
    assert sum(files.values()) < MOST_BYTES
    docs = FOLDER.parent
    assert set(re.findall(r"\]\(pictures/([\w-]+\.png)\)", (docs / "operate.md").read_text())) == names
    assert "](docs/pictures/now.png)" in (docs.parent / "README.md").read_text()
    file = tmp_path / "night.db"
    file.write_bytes(migrated_file.read_bytes())
    with night(f"sqlite:///{file}") as app, serving(web(app, auth=admin)) as address:
        size = taken(browser, address, Picture("small", "/why", size=(320, 120)), tmp_path)
    head = (tmp_path / "small.png").read_bytes()[:26]
    assert 200 < size < 20_000
    assert struct.unpack(">IIBB", head[16:26]) == (320, 120, 8, 3)  # its size; 8 bits for each pixel, from a palette

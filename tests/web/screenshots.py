"""Makes the pictures of the docs: ``python -m tests.web.screenshots [--into FOLDER] [--only NAME]`` (make screenshots).

Debian's Chromium shows the pages of the night in `tests.web.night`, whose clock stands still, so
that a picture changes with its page. The pictures together stay below a megabyte; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.access import HostPrincipal
from fencepost.web import web
from testbed.server import Missing
from tests.web.chromium import DEADLINE_MS, chromium, serving
from tests.web.night import GIVEN_UP, night
from tests.web.palette import reduce_colours

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 1_000_000
_WIDE, _PHONE = (1100, 700), (390, 780)


class Picture(NamedTuple):
    """A page as it is to be seen. What is longer than `size` is not shown to its end."""

    name: str
    target: str
    size: tuple[int, int] = _WIDE
    scheme: str = "light"


PICTURES = (
    Picture("now", "/"),
    Picture("now-dark", "/", scheme="dark"),
    Picture("now-phone", "/", size=_PHONE),
    Picture("runs", "/runs"),
    Picture("run", f"/runs/{GIVEN_UP}", size=(1100, 900)),
    Picture("run-dark", f"/runs/{GIVEN_UP}", size=(1100, 900), scheme="dark"),
    Picture("why", "/why?job=settle", size=(1100, 430)),
    Picture("schedules", "/schedules", size=(1100, 360)),
    Picture("schedule", "/schedules/invoices:eu?tz=own", size=(1100, 760)),
    Picture("nodes", "/nodes?all=1", size=(1100, 520)),
)


def take(pictures: Sequence[Picture], folder: Path) -> dict[str, int]:
    """Take these pictures; return the size of each in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        night(f"sqlite:///{place}/night.db") as app,
        serving(web(app, auth=lambda _: HostPrincipal("ann", {"": "admin"}))) as address,
        chromium() as browser,
    ):
        return {each.name: taken(browser, address, each, folder) for each in pictures}


def taken(browser: Any, address: str, picture: Picture, folder: Path) -> int:
    """Take one picture; return its size in bytes."""
    width, height = picture.size
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    answer = page.goto(picture.target, wait_until="load")
    if answer.status != 200:
        raise RuntimeError(f"{picture.target} answered {answer.status}")
    if page.locator("#live[data-live]").count():
        page.locator("#live-state", has_text="live").wait_for()
    file = folder / f"{picture.name}.png"
    page.screenshot(path=file, caret="hide", animations="disabled")
    context.close()
    reduce_colours(file)
    return file.stat().st_size


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.web.screenshots")
    parser.add_argument("--into", type=Path, default=FOLDER)
    parser.add_argument("--only", choices=[each.name for each in PICTURES])
    options = parser.parse_args(arguments)
    wanted = [each for each in PICTURES if options.only in (None, each.name)]
    try:
        sizes = take(wanted, options.into)
    except Missing as missing:
        print(f"no pictures: {missing}")
        return 2
    for name, size in sizes.items():
        print(f"{size // 1000:>5} kB  {options.into / name}.png")
    whole = sum(each.stat().st_size for each in options.into.glob("*.png"))
    print(f"{whole // 1000:>5} kB  together")
    return int(whole >= MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The log on the page of a run: text, not records; the end of the latest attempt; no control sequences."""

import html
import re
import zlib

from fencepost.core.log_chunks import LogChunk
from fencepost.ledger.log_chunks import store


def write(app, run_id, text, *, attempt=2, seq=0):
    raw = text.encode()
    rows = [LogChunk(run_id, attempt, seq, 1_700_000_000_000_000, text.count("\n"), len(raw), 0, zlib.compress(raw))]
    store(app.ledger.connect("logs"), rows)


def log_on(page):
    [found] = re.findall(r"<h2>Log of attempt (\d+)</h2>.*?<pre>(.*?)</pre>", page.text, re.DOTALL)
    return found[0], html.unescape(found[1])


def test_page_has_the_lines_of_the_latest_attempt_as_text(app, browser, dead_run):
    write(app, dead_run, "of the first attempt\n", attempt=1)
    write(app, dead_run, "reading\n\x1b[31m<b>refused</b>\x1b[0m\n")
    write(app, dead_run, "the end\n", seq=1)
    page = browser.get(f"/runs/{dead_run}")
    assert log_on(page) == ("2", "reading\n<b>refused</b>\nthe end\n")
    assert "<b>refused" not in page.text
    assert f"fencepost logs {dead_run}" in page.text


def test_page_has_the_end_of_a_long_log_and_says_where_the_rest_is(app, browser, dead_run):
    for seq in range(3):
        write(app, dead_run, "".join(f"line {seq * 100 + each}\n" for each in range(100)), seq=seq)
    page = browser.get(f"/runs/{dead_run}")
    assert log_on(page)[1] == "".join(f"line {each}\n" for each in range(100, 300))
    assert "Its last lines." in page.text


def test_page_of_a_run_that_wrote_nothing_says_so(browser, dead_run):
    assert "It wrote nothing so far, or its node keeps no logs." in browser.get(f"/runs/{dead_run}").text

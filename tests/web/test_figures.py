"""Figures on pages: what nodes have counted, as charts with words beside them, of a bounded part of all jobs."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.app import figures as reading
from fencepost.app.records.figures import HourRecord, OutcomesRecord, RunTimesRecord
from fencepost.core.figures import HOUR_US, hour_of
from fencepost.ledger import jobs as job_rows
from fencepost.ledger.figures import FigureRow, put
from fencepost.web import svg
from fencepost.web.figures import bars_of
from fencepost.web.policy_words import policy_words

NOW = datetime(2026, 11, 18, 3, 30, tzinfo=UTC)
MINUTES_6 = "152"  # the bucket of six minutes and a half, two thirds of the timeout


def store(app, *rows):
    connection = app.ledger.connect("figures")
    put(connection, [FigureRow(*row) for row in rows])
    connection.rest()


def text_of(page):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


def test_pages_show_what_all_nodes_have_counted_and_say_the_same_in_words(app, browser):
    hour = hour_of(app.ledger.now_us())
    store(
        app,
        ("settle", hour, "a", '{"succeeded":1200,"failed":2,"dead":1}', f'{{"{MINUTES_6}":1202}}'),
        ("settle", hour, "b", '{"succeeded":34}', '{"70":34}'),
        ("settle", hour - 48 * HOUR_US, "b", '{"lost":1,"misfired":3}', "{}"),
        ("report/part", hour, "b", '{"succeeded":7}', '{"70":7}'),
    )
    page = browser.get("/jobs").text
    assert 'aria-label="the last 24 hours: 1,234 succeeded, 2 failed, 1 given up"' in page
    assert "1,234 succeeded, 2 failed, 1 lost, 3 misfired, 1 given up" in text_of(page)
    assert re.search(r"p99 is \d\d% of the timeout of 10m", text_of(page))
    one = browser.get("/jobs/settle").text
    assert len(re.findall(r"<g><title>", one)) == 2  # hours in which something ended
    table = text_of(one[one.index("By hour, as a table") :])
    assert re.search(r"Z 1234 2 1 ", table)
    assert "An attempt may take 10m, and is stopped then." in text_of(one)
    assert len(re.findall(r"<g><title>", browser.get("/jobs/settle?figures=24h").text)) == 1
    assert "7 succeeded since" in text_of(browser.get("/jobs/report%2Fpart").text)


def test_rows_that_somebody_has_damaged_are_passed_over(app, browser):
    hour = hour_of(app.ledger.now_us())
    store(app, ("settle", hour, "a", "<script>", "]"), ("settle", hour, "b", '{"succeeded":"<b>"}', '{"x":1}'))
    for target in ("/jobs", "/jobs/settle"):
        got = browser.get(target)
        assert got.status == 200
        assert "othing ended" in got.text


def test_a_page_of_a_thousand_jobs_asks_once_and_shows_forty(app, browser, monkeypatch):
    names = [f"job-{number:04}" for number in range(1000)]
    job_rows.register(app.ledger, [job_rows.NewJob(name, "manual", "{}", "{}") for name in names], generation=0)
    store(app, *((name, hour_of(app.ledger.now_us()), "a", '{"succeeded":5}', "{}") for name in names))
    asked = []
    since = reading.figures_since
    monkeypatch.setattr(
        reading, "figures_since", lambda *given, **more: asked.append(len(given[1])) or since(*given, **more)
    )
    seen, target = [], "/jobs?q=JOB-"
    while target:
        page = browser.get(target).text
        seen += re.findall(r'href="/jobs/(job-\d+)"', page)
        following = re.search(r'href="([^"]*)" rel="next"', page)
        target = following and html.unescape(following[1])
        if len(asked) == 2:
            break
    assert seen == names[:80]
    assert asked == [40, 40]
    assert "40 of 1000 that match" in page
    last = browser.get("/jobs?q=job-&after=job-0989").text
    assert 'rel="next"' not in last
    assert last.count("5 succeeded") >= 10


def hour_at(hours_ago, **counts):
    words = {name: counts.get(name, 0) for name in OutcomesRecord.__slots__}
    at = NOW.replace(minute=0) - timedelta(hours=hours_ago)
    return HourRecord(at, OutcomesRecord(**words), RunTimesRecord(0, None, None, None))


def test_bars_end_with_the_present_hour_and_leave_out_what_is_older():
    found = [hour_at(24, failed=9), hour_at(23, failed=1), hour_at(1, succeeded=2), hour_at(0, succeeded=3)]
    bars = bars_of(found, until=NOW, hours=24, width=1)
    assert [each.counts["failed"] for each in bars][:2] == [1, 0]
    assert [each.counts["succeeded"] for each in bars][-3:] == [0, 2, 3]
    wide = bars_of(found, until=NOW, hours=24, width=6)
    assert [(each.counts["failed"], each.counts["succeeded"]) for each in wide] == [(1, 0), (0, 0), (0, 0), (0, 5)]


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (99_999, 0, 0, 1), (1, 1, 1, 1), (0, 0, 0, 3)])
def test_one_failure_among_thousands_can_be_seen_and_no_bar_leaves_the_chart(counts):
    stack = svg.Stack(tuple(zip(("good", "rest", "warn", "bad"), counts, strict=True)), "")
    heights = [float(each) for each in re.findall(r"v(\d+\.\d)h-4z", str(svg.stacks([stack], title="t")))]
    assert len(heights) == sum(map(bool, counts))
    assert min(heights) >= 2
    assert sum(heights) <= 20.05


def test_a_policy_that_is_damaged_or_of_a_later_release_is_said_as_far_as_it_is_known():
    assert policy_words("damaged") == []
    assert policy_words({"timeout": "x", "retries": True, "overlap": ["a"], "misfire": None, "later": 1}) == []
    assert policy_words({"retries": 0, "overlap": "later", "misfire": "all:3"}) == [
        "A failed attempt is not repeated.",
        "Due times that no node planned in time each get a late run.",
        "At most the newest 3 of them do.",
    ]

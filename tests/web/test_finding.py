"""The find box, searches that no index answers, zones, and what an edit of a schedule changes."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from fencepost.core.schedule import cron
from fencepost.core.tick import microseconds
from fencepost.errors import InvalidParameters
from fencepost.web.editing import due_changes
from fencepost.web.finding import MOST_READ, find_runs, read_find, read_instant
from fencepost.web.zones import ZoneChoice, ago

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("settle", {"job": "settle"}),
        ("42", {"ids": (42,)}),
        ("job:settle state:dead,running", {"job": "settle", "states": ("dead", "running")}),
        ("'key:a b' by:ann", {"exclusive_key": "a b", "requested_by": "ann"}),
        ("waits:person", {"waits_for": "person", "states": ("waiting",)}),
        ("since:24h until:2026-11-18T01:00Z", {"since": NOW - timedelta(days=1), "until": NOW - timedelta(hours=2)}),
    ],
)
def test_words_are_read(text, wanted):
    assert read_find(text, now=NOW).wanted == wanted


@pytest.mark.parametrize(
    "text",
    ["stat:dead", "state:deaf", "waits:godot", "id:x", "id:99999999999999999999", "since:soon", "since:2026-01-01",
     "job:", "'open", "x" * 1001, "since:99999999999d", "id:-1", "retry-of:1e3"],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused_with_a_sentence(text):
    with pytest.raises(InvalidParameters):
        read_find(text, now=NOW)


@pytest.mark.parametrize(
    ("text", "is_indexed"),
    [("", True), ("job:a", True), ("state:running node:x", True), ("state:dead", True), ("state:succeeded", False),
     ("node:x", False), ("job:a state:dead", False), ("by:ann since:1h", False), ("retry-of:7", True)],
)  # fmt: skip
def test_it_is_known_what_an_index_answers(text, is_indexed):
    assert read_find(text, now=NOW).is_indexed is is_indexed


class History:
    """A million runs, of which every so many has what is looked for; counts what is read."""

    def __init__(self, number, every):
        self.number, self.every, self.reads = number, every, []

    def __call__(self, *, before_id=None, after_id=None, limit=100, **wanted):
        low, high = (after_id or 0) + 1, min(self.number + 1, before_id or self.number + 1)
        if not wanted.get("node"):
            ids = range(low, high)[:limit] if after_id is not None else range(low, high)[::-1][:limit]
        else:
            self.reads.append(high - low)
            ids = [each for each in range(low, high) if each % self.every == 0][:limit]
        return [SimpleNamespace(id=each, created_at=NOW) for each in ids]


def pages(history, text="node:x", clock=lambda: 0.0):
    before, found = None, []
    while True:
        page = find_runs(history, read_find(text, now=NOW), before_id=before, size=50, clock=clock)
        found += [each.id for each in page.runs]
        before = page.next_before
        if before is None:
            return found


@pytest.mark.parametrize("every", [1, 7, 499, 500, 501, 60_000])
def test_search_without_an_index_finds_all_in_order_page_by_page(every):
    history = History(130_000, every)
    if every == 1:
        first = find_runs(history, read_find("node:x", now=NOW), before_id=None, size=50, clock=lambda: 0.0)
        assert [each.id for each in first.runs] == list(range(130_000, 129_950, -1))
        assert sum(history.reads) <= 1000
    else:
        assert pages(history) == [each for each in range(130_000, 0, -1) if each % every == 0]


def test_search_without_an_index_reads_no_more_than_its_bound_and_says_how_far_it_came():
    history = History(1_000_000, 10**9)
    found = find_runs(history, read_find("node:x", now=NOW), before_id=None, size=50, clock=lambda: 0.0)
    assert found.runs == []
    assert MOST_READ <= found.looked_through <= MOST_READ + 8_000
    assert found.looked_back_to == found.next_before == 1_000_001 - found.looked_through


def test_search_without_an_index_ends_when_its_time_is_up():
    times = iter(range(1000))
    history = History(1_000_000, 10**9)
    found = find_runs(history, read_find("node:x", now=NOW), before_id=None, size=50, clock=lambda: float(next(times)))
    assert len(history.reads) <= 1
    assert found.looked_back_to is not None


def test_times_are_shown_with_their_offset_in_the_zone_that_was_chosen():
    at = datetime(2026, 7, 1, 22, 30, 5, 123456, tzinfo=UTC)
    assert ZoneChoice.named("").spelled(at) == "2026-07-01 22:30:05Z"
    assert ZoneChoice.named("Asia/Seoul").spelled(at) == "2026-07-02 07:30:05+09:00"
    assert ZoneChoice.named("own").spelled(at, own="Europe/Berlin", exact=True) == "2026-07-02 00:30:05.123+02:00"
    assert ZoneChoice.named("own").spelled(at) == "2026-07-01 22:30:05Z"
    with pytest.raises(InvalidParameters):
        ZoneChoice.named("../../etc/passwd")
    assert ago(NOW - timedelta(minutes=5), NOW) == "5 min ago"
    assert ago(NOW + timedelta(hours=3), NOW) == "in 3 h"
    assert read_instant("now", now=NOW, what="at") == NOW


def test_edit_shows_due_times_gained_and_lost():
    changes = due_changes(cron("0 3 * * *"), cron("0 4 * * 1-5"), now_us=microseconds(NOW))
    assert len(changes.lost) == 30
    assert len(changes.gained) == 22
    assert changes.kept == 0
    many = due_changes(cron("* * * * *"), cron("*/2 * * * *"), now_us=microseconds(NOW))
    assert many.is_cut
    assert many.gained == []
    assert len(many.lost) == 250

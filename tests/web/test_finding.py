"""The find box, zones, and what an edit of a schedule changes."""

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.core.schedule import cron
from fencepost.core.tick import microseconds
from fencepost.errors import InvalidParameters
from fencepost.web.editing import due_changes
from fencepost.web.finding import read_find, read_instant
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
        (
            "param.customer:7 'param.note:a:b c' param.empty:",
            {"params": {"customer": "7", "note": "a:b c", "empty": ""}},
        ),
        ("waits:person", {"waits_for": "person", "states": ("waiting",)}),
        ("since:24h until:2026-11-18T01:00Z", {"since": NOW - timedelta(days=1), "until": NOW - timedelta(hours=2)}),
    ],
)
def test_words_are_read(text, wanted):
    assert read_find(text, now=NOW).wanted == wanted


@pytest.mark.parametrize(
    "text",
    ["stat:dead", "state:deaf", "waits:godot", "id:x", "id:99999999999999999999", "since:soon", "since:2026-01-01",
     "job:", "'open", "param.:7", "param.no-name:7", "param.a:1 param.a:2", "Param.a:1",
     "x" * 1001, "since:99999999999d", "id:-1", "retry-of:1e3",
     "since:0001-01-01T00:00+23:59", "until:9999-12-31T23:59:59-23:59"],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused_with_a_sentence(text):
    with pytest.raises(InvalidParameters):
        read_find(text, now=NOW)


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


def test_instant_that_a_zone_puts_beyond_all_dates_is_shown_in_utc():
    last, first = datetime(9999, 12, 31, 23, 59, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)
    assert ZoneChoice("Asia/Seoul").spelled(last) == "9999-12-31 23:59:00Z"
    assert ZoneChoice("America/New_York").spelled(first) == "0001-01-01 00:00:00Z"

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from fencepost.core.grants import next_token
from fencepost.core.names import holder_name, lock_name
from fencepost.core.schedule import cron
from fencepost.core.schedules.latest import last_due
from fencepost.core.tick import Tick, instant, microseconds
from fencepost.errors import InvalidName, InvalidTick


@pytest.mark.parametrize("name", ["a", "report:42", "a b", "名前🔒", "x" * 200, "a/b%2F"])
def test_printable_names_are_taken_as_they_are(name: str) -> None:
    assert lock_name(name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "must not be empty"),
        (" a", "white space"),
        ("a\n", "white space"),
        ("a\x00b", "cannot be printed"),
        ("a\ud800b", "cannot be printed"),
        ("x" * 10240, "has 10240 characters; the limit is 200"),
        (7, "must be a text, not int"),
        (None, "must be a text, not NoneType"),
    ],
)
def test_odd_names_are_refused_in_one_short_sentence(name: object, says: str) -> None:
    with pytest.raises(InvalidName, match=says) as error:
        lock_name(name)
    assert len(str(error.value)) < 200


def test_two_starts_of_a_process_have_two_names() -> None:
    assert holder_name(host="h", pid=1, start_id="a" * 32) != holder_name(host="h", pid=1, start_id="b" * 32)


def test_ticks_are_instants() -> None:
    seoul = datetime(2026, 1, 1, 9, 0, tzinfo=ZoneInfo("Asia/Seoul"))
    assert Tick.of(seoul) == Tick.of("2026-01-01T00:00Z")
    assert str(Tick.of(seoul)) == "2026-01-01T00:00:00Z"
    assert instant(microseconds(seoul)) == seoul


@pytest.mark.parametrize(
    ("due", "says"),
    [
        ("2026-01-01T00:00", "has no time zone"),
        (datetime(2026, 1, 1), "has no time zone"),
        ("yesterday", "is not a valid time"),
        (42, "is not a valid time"),
    ],
)
def test_what_is_no_instant_is_refused(due: object, says: str) -> None:
    with pytest.raises(InvalidTick, match=says):
        Tick.of(due)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cron", "now", "due"),
    [
        ("0 12 * * *", "2026-01-01T12:00:00+00:00", "2026-01-01T12:00:00+00:00"),
        ("0 12 * * *", "2026-01-01T11:59:59.999999+00:00", "2025-12-31T12:00:00+00:00"),
        ("*/5 * * * *", "2026-01-01T00:07:03+00:00", "2026-01-01T00:05:00+00:00"),
        ("@daily", "2026-01-01T00:00:01+00:00", "2026-01-01T00:00:00+00:00"),
    ],
)
def test_last_due_is_never_in_the_future(cron: str, now: str, due: str) -> None:
    assert _last_due(cron, datetime.fromisoformat(now)) == datetime.fromisoformat(due)


def test_last_due_is_counted_in_the_zone_asked_for() -> None:
    now = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert _last_due("0 9 * * *", now, "Asia/Seoul") == datetime(2026, 7, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01"])
@pytest.mark.parametrize("expression", ["*/15 * * * *", "* * * * *", "30 1 * * *", "30 2 * * *"])
def test_last_due_goes_forward_and_leaves_none_out_when_the_clock_is_changed(expression: str, day: str) -> None:
    """As cron would ask, once a minute."""
    begin_us, minute_us = microseconds(datetime.fromisoformat(f"{day}T00:00Z")), 60_000_000
    zone = "America/New_York"
    seen = [last_due(expression, begin_us + n * minute_us, zone) for n in range(24 * 60)]
    assert seen == sorted(seen)
    wanted = cron(expression, tz=zone).dues(begin_us, begin_us + (24 * 60 - 1) * minute_us, limit=2000)
    assert set(wanted) <= set(seen)
    assert set(seen) - {seen[0]} <= set(wanted)


@pytest.mark.parametrize("cron", ["", "* * *", "61 * * * *", "0 0 31 4 *", "@sometimes"])
def test_what_is_no_cron_is_refused(cron: str) -> None:
    with pytest.raises(InvalidTick, match="cron"):
        _last_due(cron, datetime(2026, 1, 1, tzinfo=UTC))


def test_what_is_no_zone_is_refused() -> None:
    with pytest.raises(InvalidTick, match="'Mars/Olympus'"):
        _last_due("* * * * *", datetime(2026, 1, 1, tzinfo=UTC), "Mars/Olympus")


def _last_due(cron: str, now: datetime, zone: str = "UTC") -> datetime:
    return instant(last_due(cron, microseconds(now), zone))


def test_token_follows_whichever_is_furthest() -> None:
    assert next_token(previous=5, floor=0, store_time_us=100) == 100
    assert next_token(previous=500, floor=0, store_time_us=100) == 501
    assert next_token(previous=5, floor=900, store_time_us=100) == 900

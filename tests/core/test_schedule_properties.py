"""What holds for every schedule, tried on many: drawn expressions, zones, days to leave out, instants."""

import struct
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.schedule import At, Schedule, at, cron, every, schedule_from_json, schedule_to_json
from fencepost.core.schedules import zones
from fencepost.core.schedules.calendar import calendar_of, day_of, spelled_items
from fencepost.core.schedules.zones import changes_of_offset
from fencepost.core.tick import instant
from fencepost.errors import InvalidSchedule
from tests.core.schedule_oracle import (
    DAYS,
    ODD_ZONES_EAST,
    ODD_ZONES_WEST,
    SECOND_US,
    WORDS,
    Walk,
    changes,
    check_seconds,
    expression_of,
    is_left_out,
    judge,
)

ZONES = sorted([*ODD_ZONES_EAST, *ODD_ZONES_WEST, "UTC", "Asia/Seoul", "Asia/Kathmandu", "Europe/Berlin"])
DAY_US = 86_400 * SECOND_US


@pytest.mark.parametrize(
    ("zone", "years"),
    [
        ("Europe/Berlin", (2026, 2026)),
        ("Australia/Lord_Howe", (2026, 2026)),
        ("America/Santiago", (2026, 2026)),
        ("Antarctica/Troll", (2026, 2026)),
        ("America/St_Johns", (2006, 2006)),  # at 00:01
        ("Pacific/Apia", (2011, 2011)),
        ("Africa/Monrovia", (1972, 1972)),  # by 44 minutes and 30 seconds
    ],
)
def test_seconds_are_due_as_the_oracle_says_around_every_change(zone: str, years: tuple[int, int]) -> None:
    assert check_seconds(zone, cron, years) >= 100


@pytest.mark.parametrize(
    "rule", ["XXX0YYY,J60,J365/24:30", "XXX0YYY,J60,J1/01:30", "XXX0YYY,J365/23:30,J200", "XXX0YYY,J1/0,J200"]
)
def test_a_change_at_the_turn_of_a_year_is_no_exception(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # No zone has done it yet. Schedules look at zones year by year, so this is where they would go wrong.
    tz = ZoneInfo.from_file(BytesIO(tzif(rule)), key=rule)
    monkeypatch.setattr(zones, "_zone", {rule: tz}.__getitem__)
    new_year_s = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    walk = Walk(tz, new_year_s - 86_400, new_year_s + 86_400, step_s=60)
    for text in ["*/10 * * * *", "0,30 0-3,22,23 * * *", "15 0 * * *", "45 23 * * *", "0 0 1 * *"]:
        for word in WORDS:
            judge(cron(text, tz=rule, dst=word), walk.dues(expression_of(text), word), walk, around_s=new_year_s)


def tzif(rule: str) -> bytes:
    """A zone file that holds nothing but a rule."""
    block = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", 0, 0, 0) + b"XXX\0"
    return block + block + b"\n" + rule.encode() + b"\n"


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.integers(2, max(2, high // 2)).map(lambda step: f"*/{step}"),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, st.integers(1, 9)).map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        st.lists(number, min_size=2, max_size=4).map(lambda numbers: ",".join(map(str, numbers))),
    )


day_of_week = st.one_of(field(0, 7), st.sampled_from(["MON", "SUN#1", "SAT#2", "0L", "5L", "MON-FRI", "TUE,0L"]))
expressions = st.tuples(
    field(0, 59), field(0, 23), st.one_of(field(1, 28), st.sampled_from(["L", "LW", "31"])), st.just("*"), day_of_week
).map(" ".join)
some_date = st.dates(date(2024, 1, 1), date(2027, 12, 31)).map(date.isoformat)
left_out = st.one_of(
    st.sampled_from(DAYS),
    some_date,
    some_date.map(lambda day: day[5:]),
    st.tuples(some_date, some_date).map(lambda ends: f"{min(ends)}..{max(ends)}"),
    st.tuples(some_date, some_date).map(lambda ends: f"{ends[0][5:]}..{ends[1][5:]}"),
)
instants = st.integers(int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) // 60, 30_000_000).map(lambda m: m * 60)


@st.composite
def crons(draw: st.DrawFn) -> Schedule:
    text, tz, dst = draw(expressions), draw(st.sampled_from(ZONES)), draw(st.sampled_from(WORDS))
    try:
        return cron(text, tz=tz, dst=dst, leave_out=draw(st.lists(left_out, max_size=2)))
    except InvalidSchedule:
        return cron(text, tz=tz, dst=dst)


@st.composite
def intervals(draw: st.DrawFn) -> Schedule:
    interval = draw(st.one_of(st.integers(300, 7200), st.integers(3600, 20 * 86_400)))
    start, tz = instant(draw(instants) * SECOND_US - 366 * DAY_US), draw(st.sampled_from(ZONES))
    return every(interval, start=start, tz=tz, leave_out=draw(st.lists(st.sampled_from(["SUN", "01-01..03-31"]))))


one_offs = st.lists(instants, min_size=1, max_size=9).map(lambda times: at([instant(t * SECOND_US) for t in times]))
schedules = st.one_of(crons(), crons(), intervals(), one_offs)


@settings(max_examples=150, deadline=None)
@given(text=expressions, tz=st.sampled_from(ZONES), dst=st.sampled_from(WORDS), days=st.lists(left_out, max_size=3))
@pytest.mark.parametrize("year", [2024, 2026])
def test_drawn_expressions_are_due_as_the_oracle_says(year: int, text: str, tz: str, dst: str, days: list[str]) -> None:
    near = [change.at_s for change in changes(tz, year, year)] or [int(datetime(year, 2, 28, tzinfo=UTC).timestamp())]
    for around_s in near:
        walk = Walk(tz, around_s - 86_400, around_s + 86_400, step_s=60)
        try:
            schedule = cron(text, tz=tz, dst=dst, leave_out=days)
        except InvalidSchedule:
            assert days, text
            return
        judge(schedule, walk.dues(expression_of(text), dst, tuple(days)), walk, around_s=around_s)


@settings(max_examples=300, deadline=None)
@given(schedule=schedules, at_s=instants, offset_us=st.sampled_from([-1, 0, 1, 500_000]))
def test_all_answers_of_a_schedule_agree(schedule: Schedule, at_s: int, offset_us: int) -> None:
    after = at_s * SECOND_US + offset_us
    dues = schedule.dues(after, after + 400 * DAY_US, 30)
    assert all(earlier < later for earlier, later in pairwise([after, *dues]))
    for earlier, later in pairwise(dues):
        assert schedule.due_after(earlier) == schedule.due_after(later - 1) == later
        assert schedule.due_before(later) == schedule.due_before(earlier + 1) == earlier
    for index, due in enumerate(dues, start=1):
        assert schedule.count(after, due) == index
        assert schedule.count(after, due - 1) == index - 1


@settings(max_examples=100, deadline=None)
@given(schedule=schedules, at_s=instants, days=st.integers(0, 300))
def test_counting_is_additive(schedule: Schedule, at_s: int, days: int) -> None:
    start, middle, end = (at_s * SECOND_US + shift for shift in (0, days * DAY_US // 7 + 17, days * DAY_US))
    whole = schedule.count(start, end)
    assert whole == schedule.count(start, min(middle, end)) + schedule.count(min(middle, end), end)
    assert schedule.count(end, start) == 0


@given(schedule=schedules)
def test_every_schedule_survives_its_json_form(schedule: Schedule) -> None:
    assert schedule_from_json(schedule_to_json(schedule)) == schedule


@settings(max_examples=200, deadline=None)
@given(schedule=intervals(), at_s=instants)
def test_intervals_with_days_left_out_are_the_grid_without_those_days(schedule: Schedule, at_s: int) -> None:
    assert not isinstance(schedule, At)
    after, tz = at_s * SECOND_US, ZoneInfo(schedule.tz)
    bare = every(schedule.interval_us / SECOND_US, start=instant(schedule.start_us))  # type: ignore[union-attr]
    kept = [
        due
        for due in bare.dues(after, after + 3 * DAY_US, 1000)
        if not is_left_out(instant(due).astimezone(tz).date(), schedule.leave_out)
    ]
    assert schedule.dues(after, after + 3 * DAY_US, 1000) == kept
    assert schedule.count(after, after + 3 * DAY_US) == len(kept)


@given(items=st.lists(left_out, max_size=6), day=st.dates(date(2023, 1, 1), date(2028, 12, 31)))
def test_calendars_leave_out_what_they_name_and_no_other_day(items: list[str], day: date) -> None:
    calendar = calendar_of(spelled_items(items))
    is_open = [not is_left_out(day + timedelta(n), items) for n in range(100)]
    first = day_of(day)
    assert [calendar.is_open(first + n) for n in range(100)] == is_open
    ahead, behind = calendar.next_open(first), calendar.last_open(first + 99)
    assert ahead - first == (is_open.index(True) if True in is_open else ahead - first)
    assert first + 99 - behind == (is_open[::-1].index(True) if True in is_open else first + 99 - behind)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("someday", "leave_out 'SOMEDAY' is not a valid day; write a weekday"),
        ("2026-02-29", "is not a valid day"),
        ("02-30", "is not a valid day"),
        ("20261225", "is not a valid day"),
        ("SAT..SUN", "is not a valid day"),
        ("12-24..2026-12-31", "is not a valid day"),
        ("2026-12-31..2026-12-24", "ends before it begins"),
        ("", "is not a valid day"),
        (datetime(2026, 12, 25), "is not a valid day"),
        (5, "is not a valid day"),
    ],
)
def test_what_is_no_day_cannot_be_left_out(item: object, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        cron("0 0 * * *", leave_out=[item])  # type: ignore[list-item]


def test_days_to_leave_out_have_one_spelling() -> None:
    spelled = cron("0 0 * * *", leave_out=["sunday", "Sat", date(2026, 12, 25), "2026-12-24 .. 2026-12-25", "SAT"])
    assert spelled.leave_out == ("2026-12-24..2026-12-25", "2026-12-25", "SAT", "SUN")
    assert cron("0 0 * * *", leave_out="sun") == cron("0 0 * * *", leave_out=["SUN"])
    with pytest.raises(InvalidSchedule, match="5 is not a list of days"):
        cron("0 0 * * *", leave_out=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ZONES)
def test_changes_of_offset_are_those_that_a_walk_finds(zone: str) -> None:
    listed = [change for year in range(1990, 2036) for change in changes_of_offset(zone, year)]
    walked = changes(zone, 1990, 2035)
    assert [(change.at_us // SECOND_US, change.is_gap) for change in listed] == [
        (change.at_s, change.is_gap) for change in walked
    ]
    assert all(later.at_us - earlier.at_us > 6 * DAY_US for earlier, later in pairwise(listed))

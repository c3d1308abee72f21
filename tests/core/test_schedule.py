"""What users write, what they are told when it is wrong, and what others read of it."""

import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from fencepost.core.schedule import (
    Schedule,
    at,
    changes_of_offset,
    cron,
    describe,
    every,
    jitter_us,
    preview,
    schedule_from_json,
    schedule_to_json,
    window_start,
)
from fencepost.core.tick import instant, microseconds, spelled_us
from fencepost.errors import ConfigurationError, InvalidDuration, InvalidSchedule
from tests.core.schedule_oracle import MINUTELY, SECONDLY


def us(text: str) -> int:
    return microseconds(datetime.fromisoformat(text))


def dues(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next local times, as people write them."""
    return [f"{due.local:%m-%d %H:%M%z}" for due in preview(schedule, after_us=us(after), count=count)]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "has 0 fields; write five"),
        ("* * *", "has 3 fields; write five"),
        ("* * * * * * *", "has 7 fields"),
        ("61 * * * *", "'61' is not a valid minute; allowed are 0–59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("61 * * * * *", "'61' is not a valid second"),
        ("* * 0 * *", "'0' is not a valid day-of-month"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day-of-week"),
        ("* * * * MO", "'MO' is not a valid day-of-week"),
        ("* * * * FRI-MON", "'FRI-MON' is not a valid day-of-week"),
        ("* * * * MON#6", "'MON#6' is not a valid day-of-week"),
        ("*/0 * * * *", "'\\*/0' is not a valid minute"),
        ("*/-5 * * * *", "'\\*/-5' is not a valid minute"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("1,,2 * * * *", "'1,,2' is not a valid minute"),
        ("٣ * * * *", "is not a valid minute"),
        ("9" * 300 + " * * * *", "is not a valid minute"),
        ("1," * 300 + "1 * * * *", "at most 400 characters"),
        ("@sometimes", "is not known; there are @annually, @daily"),
        ("@every 5m", "every\\('5m'\\)"),
        ("0 0 31 4 *", "can never match"),
        ("0 0 30 2 *", "can never match"),
        ("0 0 31 2,4,6,9,11 *", "can never match"),
        (None, "must be a text, not NoneType"),
        (5, "must be a text, not int"),
    ],
)
def test_a_bad_cron_is_refused_in_a_sentence_that_names_what_is_wrong(expression: object, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says) as error:
        cron(expression)  # type: ignore[arg-type]
    assert isinstance(error.value, ConfigurationError | ValueError)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Asia/Soul", "did you mean 'Asia/Seoul'"),
        ("asia/seoul", "did you mean 'Asia/Seoul'"),
        ("Seoul", "did you mean 'Asia/Seoul'"),
        ("New York", "did you mean 'America/New_York'"),
        ("Europe/Amsterdm", "did you mean 'Europe/Amsterdam'"),
        ("Europe", "no time zone 'Europe'"),
        ("../etc/passwd", "no time zone"),
        ("/etc/localtime", "no time zone"),
        ("localtime", "no time zone 'localtime'"),
        ("right/UTC", "no time zone"),
        ("", "no time zone ''; write it as 'UTC'"),
        ("a\0b", "no time zone"),
        (None, "no time zone None"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_near_one(name: object, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        cron("0 0 * * *", tz=name)  # type: ignore[arg-type]


def test_an_unknown_dst_word_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidSchedule, match="dst 'twice' is not known; there are auto, first, second, both, skip"):
        cron("0 0 * * *", dst="twice")


@pytest.mark.parametrize(
    ("expression", "settings"),
    [
        ("0 0 * * MON", {"leave_out": ["MON"]}),
        ("0 0 * * *", {"leave_out": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]}),
        ("0 0 * * *", {"leave_out": ["01-01..12-31"]}),
        ("0 0 * * *", {"leave_out": ["1970-01-01..2199-12-31"]}),
        ("30 2 * 3 0L", {"tz": "Europe/Berlin", "dst": "skip"}),
        ("*/5 2 * 3 0L", {"tz": "Europe/Berlin"}),
    ],
)
def test_what_would_never_be_due_is_refused_at_once(expression: str, settings: dict[str, object]) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidSchedule, match="would never be due"):
        cron(expression, **settings)  # type: ignore[arg-type]
    assert time.process_time() - begun < 5


def test_a_rare_expression_is_not_an_impossible_one() -> None:
    assert dues(cron("0 0 29 2 *"), "2096-03-01T00:00Z", 1) == ["02-29 00:00+0000"]
    assert spelled_us(cron("0 0 29 2 *").due_after(us("2096-03-01T00:00Z")) or 0) == "2104-02-29T00:00:00Z"
    assert spelled_us(cron("0 0 * 2 MON#5").due_after(us("2026-01-01T00:00Z")) or 0) == "2044-02-29T00:00:00Z"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (
            "*/90 * * * *",
            "60 values of minute, so \\*/90 matches only 0; if that is intended, write 0; .* every\\('90m'\\)",
        ),
        ("0 */36 * * *", "24 values of hour, so \\*/36 matches only 0; .* every\\('36h'\\)"),
        ("0 0 */40 * *", "31 values of day-of-month, so \\*/40 matches only 1; if that is intended, write 1"),
        ("*/61 0 0 1 1 *", "60 values of second"),
        ("0 0 1 */13 *", "12 values of month"),
    ],
)
def test_a_step_beyond_the_range_is_refused_but_one_on_record_is_still_read(expression: str, words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        cron(expression)
    stored = schedule_from_json(json.dumps({"cron": expression, "tz": "UTC"}))
    assert stored.due_after(0) is not None


@pytest.mark.parametrize("expression", ["*/60 * * * *", "0 */24 * * *", "0 0 1 */12 *", "10-20/15 * * * *"])
def test_a_step_that_says_what_it_does_is_accepted(expression: str) -> None:
    assert cron(expression).due_after(0) is not None


@pytest.mark.parametrize("spelling", ["*/5  *\t* * mon", " */5 * * * MON ", "*/5 * * * Mon\n"])
def test_spelling_does_not_matter(spelling: str) -> None:
    assert cron(spelling) == cron("*/5 * * * MON")
    assert cron("@Daily") == cron("@daily ")


def test_days_of_month_and_week_follow_debian() -> None:
    either = cron("0 0 13 * FRI")
    assert dues(either, "2026-02-10T00:00Z", 3) == ["02-13 00:00+0000", "02-20 00:00+0000", "02-27 00:00+0000"]
    both = cron("0 0 */2 * FRI")
    assert dues(both, "2026-02-10T00:00Z", 3) == ["02-13 00:00+0000", "02-27 00:00+0000", "03-13 00:00+0000"]


def test_a_due_is_strictly_after_to_the_microsecond() -> None:
    noon, schedule = us("2026-01-01T12:00Z"), cron("0 12 * * *")
    assert schedule.due_after(noon - 1) == noon
    assert schedule.due_after(noon) == noon + 86_400_000_000
    assert schedule.due_before(noon + 1) == noon
    assert schedule.due_before(noon) == noon - 86_400_000_000
    assert schedule.dues(noon - 1, noon, 9) == [noon]
    assert schedule.dues(noon, noon + 1, 9) == []
    assert (schedule.count(noon - 1, noon), schedule.count(noon, noon + 1)) == (1, 0)


def test_the_calendar_has_two_ends() -> None:
    daily = cron("0 0 * * *")
    assert daily.due_after(-(10**30)) == 0
    assert daily.due_before(0) is None
    assert daily.due_before(1) == 0
    assert daily.due_after(10**30) is None
    assert daily.due_after(us("2199-12-31T00:00Z")) is None
    assert daily.due_before(10**30) == us("2199-12-31T00:00Z")
    assert daily.count(-(10**30), 10**30) == 84_006
    assert every("1d").count(-(10**30), 10**30) == 84_006
    assert every("1d", leave_out=["12-25"]).count(-(10**30), 10**30) == 84_006 - 230


BERLIN_GAP, BERLIN_FOLD = "2026-03-29T00:00+01:00", "2026-10-25T00:00+02:00"


@pytest.mark.parametrize(
    ("dst", "gap", "fold"),
    [
        ("auto", ["03-29 03:00+0200", "03-30 02:30+0200"], ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("first", ["03-29 03:00+0200", "03-30 02:30+0200"], ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("second", ["03-29 03:00+0200", "03-30 02:30+0200"], ["10-25 02:30+0100", "10-26 02:30+0100"]),
        ("both", ["03-29 03:00+0200", "03-30 02:30+0200"], ["10-25 02:30+0200", "10-25 02:30+0100"]),
        ("skip", ["03-30 02:30+0200", "03-31 02:30+0200"], ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("real", ["03-30 02:30+0200", "03-31 02:30+0200"], ["10-25 02:30+0200", "10-25 02:30+0100"]),
    ],
)
def test_each_dst_word_does_what_its_table_says(dst: str, gap: list[str], fold: list[str]) -> None:
    schedule = cron("30 2 * * *", tz="Europe/Berlin", dst=dst)
    assert dues(schedule, BERLIN_GAP, 2) == gap
    assert dues(schedule, BERLIN_FOLD, 2) == fold


def test_wildcards_follow_real_time_through_both_changes() -> None:
    for schedule in (cron("*/30 * * * *", tz="Europe/Berlin"), cron("0,30 * * * *", tz="Europe/Berlin")):
        for day in (BERLIN_GAP, BERLIN_FOLD):
            found = schedule.dues(us(day) - 1, us(day) + 86_400_000_000, 100)
            assert {later - earlier for earlier, later in pairwise(found)} == {1_800_000_000}


def test_times_that_share_a_gap_are_one_due_with_the_one_after_it() -> None:
    schedule = cron("0,15,30 2,3 * * *", tz="Europe/Berlin")
    assert dues(schedule, BERLIN_GAP, 3) == ["03-29 03:00+0200", "03-29 03:15+0200", "03-29 03:30+0200"]
    assert schedule.count(us(BERLIN_GAP), us(BERLIN_GAP) + 86_400_000_000) == 3


def test_a_day_that_never_was_is_due_when_the_next_begins() -> None:
    schedule = cron("0 12 * * *", tz="Pacific/Apia")  # Samoa had no 30th of December 2011
    assert dues(schedule, "2011-12-29T00:00-10:00", 3) == ["12-29 12:00-1000", "12-31 00:00+1400", "12-31 12:00+1400"]


def test_a_preview_tells_what_is_special() -> None:
    schedule = cron("0,30 2 * * *", tz="Europe/Berlin", dst="both")
    notes = [due.note for due in preview(schedule, after_us=us(BERLIN_GAP), count=3)]
    assert notes == ["after the gap", "", ""]
    at_three = cron("0 3 * * *", tz="Europe/Berlin")
    assert [due.note for due in preview(at_three, after_us=us(BERLIN_GAP), count=1)] == [""]
    assert [due.note for due in preview(at_three, after_us=us(BERLIN_FOLD), count=1)] == [""]
    notes = [due.note for due in preview(schedule, after_us=us(BERLIN_FOLD), count=5)]
    assert notes == ["first of two", "first of two", "second of two", "second of two", ""]
    assert [due.note for due in preview(every("1d"), after_us=us(BERLIN_GAP), count=2)] == ["", ""]
    assert len(preview(at("2026-01-01T00:00Z"), after_us=0, count=5)) == 1


def test_all_changes_of_a_year_are_listed() -> None:
    gap, fold = changes_of_offset("Europe/Berlin", 2026)
    assert (spelled_us(gap.at_us), gap.before_s, gap.after_s, gap.is_gap) == ("2026-03-29T01:00:00Z", 3600, 7200, True)
    assert (spelled_us(fold.at_us), fold.is_gap) == ("2026-10-25T01:00:00Z", False)
    assert changes_of_offset("Asia/Seoul", 2026) == []
    assert [change.after_s for change in changes_of_offset("Africa/Casablanca", 2026)] == [0, 3600]
    assert [change.after_s for change in changes_of_offset("Australia/Lord_Howe", 2026)] == [37_800, 39_600]
    with pytest.raises(InvalidSchedule, match="no time zone"):
        changes_of_offset("Nowhere", 2026)
    with pytest.raises(InvalidSchedule, match="2300 is outside"):
        changes_of_offset("UTC", 2300)


def test_a_window_begins_with_the_due_before() -> None:
    schedule = cron("0 0 * * MON-FRI")
    monday = us("2026-01-05T00:00Z")
    assert window_start(schedule, monday) == us("2026-01-02T00:00Z")
    assert window_start(at("2026-01-05T00:00Z"), monday) is None


SCHEDULES = [
    *(cron(text, tz="Asia/Seoul") for text in [*MINUTELY, *SECONDLY]),
    cron("0 9 * * *", tz="Europe/Berlin", dst="second", leave_out=["SUN", "12-25", "2026-12-24..2026-12-31"]),
    cron("0 9 * * *", jitter="90s"),
    every("5m"),
    every("100ms"),
    every(timedelta(days=3660), start="2026-01-01T00:00:00.000001Z"),
    every("1h", tz="Europe/Berlin", leave_out="SAT", jitter=0.5),
    at("2026-01-01T00:00Z"),
    at(["2026-01-02T00:00Z", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=describe)
def test_the_json_form_is_read_back_and_has_one_spelling(schedule: Schedule) -> None:
    text = schedule_to_json(schedule)
    assert schedule_from_json(text) == schedule
    assert schedule_to_json(schedule_from_json(text)) == text
    assert schedule_from_json(text) is schedule_from_json(text)


def test_the_json_form_is_short_and_stays_as_it_is() -> None:
    assert schedule_to_json(cron("*/5 * * * *")) == '{"cron":"*/5 * * * *","tz":"UTC"}'
    assert schedule_to_json(SCHEDULES[-7]) == '{"cron":"0 9 * * *","tz":"UTC","jitter_us":90000000}'
    assert schedule_to_json(every("5m")) == '{"every_us":300000000,"start_us":0,"tz":"UTC"}'
    assert schedule_to_json(at("1970-01-01T00:00:01Z")) == '{"at_us":[1000000]}'
    assert schedule_to_json(SCHEDULES[-8]) == (
        '{"cron":"0 9 * * *","tz":"Europe/Berlin","dst":"second","leave_out":["12-25","2026-12-24..2026-12-31","SUN"]}'
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not valid JSON"),
        ("[]", "has no known kind"),
        ("{}", "has no known kind"),
        ('{"cron":"* * * * *","moon":"full"}', "has 'moon', which this version does not know"),
        ('{"cron":5}', "must be a text, not int"),
        ('{"cron":"* * * * *","tz":"Nowhere"}', "no time zone 'Nowhere'"),
        ('{"cron":"* * * * *","dst":[]}', "is not known"),
        ('{"every_us":"5m"}', "an unexpected type"),
        ('{"every_us":NaN}', "an unexpected type"),
        ('{"every_us":1}', "interval 0.001ms must be between"),
        ('{"every_us":1000000,"start_us":1e40}', "outside the calendar"),
        ('{"at_us":5}', "an unexpected type"),
        ('{"at_us":[]}', "takes 1 to"),
    ],
)
def test_a_row_that_is_no_schedule_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        schedule_from_json(text)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (cron("*/5 * * * *", tz="Asia/Seoul"), "cron */5 * * * * in Asia/Seoul"),
        (cron("@daily", dst="skip", leave_out=["SUN"]), "cron @daily in UTC, dst skip, without SUN"),
        (every("90m", jitter="30s"), "every 1h30m, up to 30s later"),
        (every("1h", tz="Asia/Seoul", leave_out=["SUN"]), "every 1h, without SUN in Asia/Seoul"),
        (every("1h", start="2026-01-01T00:00Z"), "every 1h from 2026-01-01T00:00:00Z"),
        (at("2026-01-01T00:00Z"), "once at 2026-01-01T00:00:00Z"),
        (
            at(["2026-01-01T00:00Z", "2026-01-02T00:00Z"]),
            "at 2 instants from 2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z",
        ),
    ],
)
def test_schedules_are_described_for_people(schedule: Schedule, words: str) -> None:
    assert describe(schedule) == words


def test_jitter_is_the_same_for_all_and_differs_from_tick_to_tick() -> None:
    schedule, hour = cron("0 * * * *", jitter="60s"), 3_600_000_000
    delays = [jitter_us(schedule, "report", tick * hour) for tick in range(1000)]
    assert delays == [jitter_us(cron("0 * * * *", jitter=60), "report", tick * hour) for tick in range(1000)]
    assert delays != [jitter_us(schedule, "other", tick * hour) for tick in range(1000)]
    assert all(0 <= delay <= 60_000_000 for delay in delays)
    assert min(delays) < 3_000_000
    assert max(delays) > 57_000_000
    assert jitter_us(cron("0 * * * *"), "report", hour) == jitter_us(at("2026-01-01T00:00Z"), "report", hour) == 0
    assert jitter_us(schedule, "report", hour) == 6_805_346, "a delay that changes with the version moves starts"


@pytest.mark.parametrize(
    ("jitter", "error", "says"),
    [("2d", InvalidSchedule, "too long"), ("-1s", InvalidDuration, "jitter"), ("soon", InvalidDuration, "jitter")],
)
def test_a_jitter_that_makes_no_sense_is_refused(jitter: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        cron("0 0 * * *", jitter=jitter)


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ("2026-01-01T00:00", "has no time zone; add one"),
        (datetime(2026, 1, 1), "has no time zone"),
        ("tomorrow", "is not a valid time; write it as"),
        ([], "takes 1 to 10000 instants, not 0"),
        (["2026-01-01T00:00Z", None], "None is not a valid time"),
        (42, "42 is not a valid time"),
        ("1066-10-14T09:00Z", "outside the calendar"),
        ("2999-01-01T00:00Z", "outside the calendar"),
    ],
)
def test_at_refuses_what_is_no_instant(when: object, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        at(when)  # type: ignore[arg-type]


def test_at_is_due_at_its_instants_once_each_in_their_order() -> None:
    first, second = us("2026-01-01T00:00Z"), us("2026-01-02T00:00Z")
    schedule = at(["2026-01-02T00:00Z", instant(first), "2026-01-01T09:00+09:00"])
    assert schedule.dues(0, 10**18, 9) == [first, second]
    assert (schedule.due_after(first), schedule.due_after(second)) == (second, None)
    assert (schedule.due_before(second), schedule.due_before(first)) == (first, None)
    assert (schedule.count(0, first), schedule.count(first, second), schedule.count(second, first)) == (1, 1, 0)


@pytest.mark.parametrize(
    ("interval", "settings", "says"),
    [
        ("10ms", {}, "interval 10ms must be between 100ms and"),
        (0, {}, "interval 0ms must be"),
        ("20000d", {}, "must be between"),
        ("1h", {"start": "2026-01-01T00:00"}, "start 2026-01-01T00:00 has no time zone"),
        ("1h", {"tz": "Seul"}, "no time zone"),
        ("10s", {"jitter": "30s"}, "longer than the interval"),
        ("7d", {"start": "2026-01-03T00:00Z", "leave_out": ["SAT"]}, "never be due"),
        ("1s", {"leave_out": ["01-01..12-31"]}, "never be due"),
    ],
)
def test_every_refuses_what_cannot_work(interval: object, settings: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        every(interval, **settings)  # type: ignore[arg-type]


def test_every_never_drifts_from_its_start() -> None:
    start = us("2026-01-01T00:00:00.5Z")
    schedule = every("7m", start=instant(start))
    assert schedule.due_after(0) == start
    assert schedule.due_before(start) is None
    assert schedule.due_after(start + 10**6 * 420 * 10**6 + 17) == start + (10**6 + 1) * 420 * 10**6
    assert every("1h").due_after(us("2026-01-01T00:30Z")) == us("2026-01-01T01:00Z")


def test_every_leaves_days_out_as_its_zone_counts_them() -> None:
    schedule = every("6h", tz="Asia/Seoul", leave_out=["SAT", "SUN"])
    found = schedule.dues(us("2026-01-02T09:00+09:00"), 10**18, 4)
    assert [f"{instant(due):%a %H}" for due in found] == ["Fri 06", "Fri 12", "Sun 18", "Mon 00"]


@pytest.mark.parametrize("sunday", ["2026-03-29", "2026-10-25"])
def test_every_finds_the_end_and_the_beginning_of_a_day_on_which_clocks_change(sunday: str) -> None:
    schedule, berlin = every("10m", tz="Europe/Berlin", leave_out=["SUN"]), ZoneInfo("Europe/Berlin")
    begins = datetime.fromisoformat(sunday).replace(tzinfo=berlin)
    ends = (begins + timedelta(days=1)).replace(tzinfo=berlin)
    before, after = microseconds(begins) - 600_000_000, microseconds(ends)
    assert (schedule.due_after(before), schedule.due_before(after)) == (after, before)
    assert schedule.count(before, after) == 1

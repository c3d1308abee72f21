"""What becomes of due times that nobody planned in time."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.misfire import Misfire, Plan, PlannedStretch, plan, plan_schedule
from fencepost.core.schedule import Schedule, at, cron, every
from fencepost.core.tick import instant, microseconds
from fencepost.errors import InvalidDuration, InvalidPolicy

S = 1_000_000
NOW = microseconds(datetime(2026, 6, 1, 12, tzinfo=UTC))


def run(first: int, last: int | None = None, ticks: int = 1) -> PlannedStretch:
    return PlannedStretch("run", first, first if last is None else last, ticks)


def misfired(first: int, last: int, ticks: int) -> PlannedStretch:
    return PlannedStretch("misfired", first, last, ticks)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("once", Misfire("once", 100, 10 * S)),
        (" Skip ", Misfire("skip", 100, 10 * S)),
        ("all", Misfire("all", 100, 10 * S)),
        ("all:7", Misfire("all", 7, 10 * S)),
    ],
)
def test_policies_are_read_as_users_write_them(text: str, policy: Misfire) -> None:
    assert Misfire.of(text) == policy
    assert Misfire.of(policy) is policy


def test_grace_is_ten_seconds_unless_said() -> None:
    assert Misfire.of().grace_us == 10 * S
    assert Misfire.of("skip", grace="2m") == Misfire("skip", 100, 120 * S)
    assert Misfire.of(Misfire.of("all:5"), grace=0) == Misfire("all", 5, 0)
    assert str(Misfire.of("all:5", grace="1m")) == "all:5, grace 1m"
    assert str(Misfire.of()) == "once, grace 10s"


@pytest.mark.parametrize(
    "text", ["", "never", "once:3", "skip:1", "all:0", "all:-1", "all:x", "all:10001", "all:٣", None, 5]
)
def test_what_is_no_policy_is_refused(text: object) -> None:
    with pytest.raises(InvalidPolicy, match="misfire"):
        Misfire.of(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("zeros", ["00000000199999", "0" * 9000 + "10001", "9" * 9000])
def test_a_cap_above_the_largest_is_refused_however_it_is_written(zeros: str) -> None:
    with pytest.raises(InvalidPolicy, match="a number from 1 to 10000"):
        Misfire.of(f"all:{zeros}")
    assert Misfire.of("all:00000000007").cap == 7


def test_what_is_no_grace_is_refused() -> None:
    with pytest.raises(InvalidDuration, match="grace"):
        Misfire.of(grace="soon")


def test_a_due_is_late_when_its_grace_is_over_and_not_before() -> None:
    skip = Misfire.of("skip")
    assert plan([NOW - 10 * S], now_us=NOW, misfire=skip) == [run(NOW - 10 * S)]
    assert plan([NOW - 10 * S - 1], now_us=NOW, misfire=skip) == [misfired(NOW - 10 * S - 1, NOW - 10 * S - 1, 1)]


LATE, TIMELY = [NOW - 60 * S, NOW - 50 * S, NOW - 40 * S], [NOW - 5 * S, NOW, NOW + S]


@pytest.mark.parametrize(
    ("misfire", "late"),
    [
        ("once", [run(LATE[0], LATE[2], 3)]),
        ("skip", [misfired(LATE[0], LATE[2], 3)]),
        ("all", [run(LATE[0]), run(LATE[1]), run(LATE[2])]),
        ("all:2", [misfired(LATE[0], LATE[0], 1), run(LATE[1]), run(LATE[2])]),
        ("all:1", [misfired(LATE[0], LATE[1], 2), run(LATE[2])]),
    ],
)
def test_each_policy_does_what_its_table_says(misfire: str, late: list[PlannedStretch]) -> None:
    expected = [*late, *map(run, TIMELY)]
    assert plan([*LATE, *TIMELY], now_us=NOW, misfire=Misfire.of(misfire)) == expected
    schedule = at([instant(due) for due in [*LATE, *TIMELY]])
    planned = planned_of(schedule, after=0, until=NOW + S, misfire=Misfire.of(misfire))
    assert list(planned.items) == expected
    assert (planned.planned_through_us, planned.next_due_us) == (NOW + S, None)


def planned_of(
    schedule: Schedule, *, after: int, until: int, misfire: Misfire, limit: int = 10_000, now: int = NOW
) -> Plan:
    return plan_schedule(schedule, planned_through_us=after, until_us=until, now_us=now, misfire=misfire, limit=limit)


policies = st.builds(
    lambda kind, cap, grace_s: Misfire(kind, cap, grace_s * S),
    st.sampled_from(["once", "all", "skip"]),
    st.integers(1, 12),
    st.integers(0, 40),
)
some_schedules = st.sampled_from(
    [
        every("1s"),
        every("7s", leave_out=["MON"], tz="Pacific/Chatham"),
        cron("*/3 * * * * *"),
        cron("* * * * *", tz="Europe/Berlin"),
        cron("30 2 * * *", tz="Europe/Berlin"),
        at([instant(NOW + shift * S) for shift in (-500, -20, -11, -10, -9, 0, 1, 30)]),
    ]
)


@given(dues=st.lists(st.integers(-100, 20), unique=True).map(sorted), misfire=policies)
def test_every_due_is_covered_by_exactly_one_planned(dues: list[int], misfire: Misfire) -> None:
    given_us = [NOW + due * S for due in dues]
    items = plan(given_us, now_us=NOW, misfire=misfire)
    assert covered(items, given_us) == given_us
    for item in items:
        is_late = NOW - item.due_us > misfire.grace_us
        assert is_late or (item.kind, item.ticks) == ("run", 1)
        assert not is_late or item.kind == ("misfired" if misfire.kind == "skip" else item.kind)


def covered(items: list[PlannedStretch], dues: list[int]) -> list[int]:
    """All dues under the stretches, one after the other, checking each stretch's ends and count."""
    found: list[int] = []
    for item in items:
        under = [due for due in dues if item.first_due_us <= due <= item.due_us]
        assert (under[0], under[-1], len(under)) == (item.first_due_us, item.due_us, item.ticks)
        found += under
    return found


@settings(max_examples=200, deadline=None)
@given(schedule=some_schedules, misfire=policies, back_s=st.integers(-5, 400), ahead_s=st.integers(-60, 60))
def test_a_schedule_is_planned_as_its_listed_dues_would_be(
    schedule: Schedule, misfire: Misfire, back_s: int, ahead_s: int
) -> None:
    after, until = NOW - back_s * S, NOW + ahead_s * S
    listed = plan(schedule.dues(after, until, 10_000), now_us=NOW, misfire=misfire)
    planned = planned_of(schedule, after=after, until=until, misfire=misfire)
    assert list(planned.items) == listed
    assert planned.planned_through_us == max(after, until)
    assert planned.next_due_us == schedule.due_after(max(after, until))


@settings(max_examples=150, deadline=None)
@given(schedule=some_schedules, misfire=policies, limit=st.integers(1, 20), passes_s=st.integers(0, 15))
def test_a_plan_in_pieces_leaves_nothing_out(schedule: Schedule, misfire: Misfire, limit: int, passes_s: int) -> None:
    after, until, items, reached, now = NOW - 300 * S, NOW + 20 * S, [], NOW - 300 * S, NOW
    while reached < until:
        piece = planned_of(schedule, after=reached, until=until, misfire=misfire, limit=limit, now=now)
        assert len(piece.items) <= limit
        assert piece.planned_through_us > reached
        items += piece.items
        reached, now = piece.planned_through_us, now + passes_s * S
    dues = schedule.dues(after, until, 10_000)
    assert covered(items, dues) == dues


@pytest.mark.parametrize(
    "schedule",
    [every("1s"), cron("* * * * * *"), cron("* * * * * *", tz="Europe/Berlin", leave_out=["02-28"])],
)
def test_years_of_missed_seconds_are_counted_and_not_walked(schedule: Schedule) -> None:
    after = NOW - 5 * 366 * 86_400 * S
    (only,) = planned_of(schedule, after=after, until=NOW - 3600 * S, misfire=Misfire.of("once")).items
    assert (only.kind, only.first_due_us, only.due_us) == ("run", after + S, NOW - 3600 * S)
    left_out = 5 * 86_400 if "02-28" in getattr(schedule, "leave_out", ()) else 0
    assert only.ticks == 5 * 366 * 86_400 - 3600 - left_out
    older, *newest = planned_of(schedule, after=after, until=NOW - 3600 * S, misfire=Misfire.of("all")).items
    assert (older.kind, older.ticks, len(newest)) == ("misfired", only.ticks - 100, 100)


def test_what_is_planned_is_not_planned_again() -> None:
    done = planned_of(every("1s"), after=NOW, until=NOW - 60 * S, misfire=Misfire.of())
    assert done == Plan((), NOW, NOW + S)

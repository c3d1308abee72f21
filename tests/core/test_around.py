"""What `fencepost schedules preview` tells of the changes of the clock."""

from fencepost.core.schedule import changes_of_offset, cron, every
from fencepost.core.schedules.around import ClockChange, around
from fencepost.core.tick import spelled_us


def year(schedule, year: int = 2026) -> list[ClockChange]:
    return [around(schedule, change) for change in changes_of_offset(schedule.tz, year)]


def told(each: ClockChange) -> list[tuple[str, str | None, str]]:
    return [
        (f"{moment.local:%m-%d %H:%M}", moment.due_us and spelled_us(moment.due_us)[11:16], moment.note)
        for moment in each.moments
        if moment.note
    ]


def test_a_fixed_time_in_the_gap_is_due_after_it_and_in_the_fold_once() -> None:
    spring, autumn = year(cron("30 2 * * *", tz="Europe/Berlin"))
    assert told(spring) == [
        ("03-29 02:30", None, "never comes; due after the gap"),
        ("03-29 03:00", "01:00", "after the gap"),
    ]
    assert told(autumn) == [("10-25 02:30", "00:30", "first of two"), ("10-25 02:30", None, "second of two, left out")]


def test_real_time_is_left_out_in_the_gap_and_due_twice_in_the_fold() -> None:
    autumn, spring = year(cron("*/20 * * * *", tz="Australia/Lord_Howe"))
    assert [(at, note) for at, _, note in told(spring)] == [
        ("10-04 02:00", "never comes; left out"),
        ("10-04 02:20", "never comes; left out"),
    ]
    assert [note for _, due, note in told(autumn) if due] == ["first of two", "second of two"]


def test_each_word_of_dst_is_told_as_it_decides() -> None:
    def notes(dst: str) -> list[str]:
        return [note for each in year(cron("30 2 * * *", tz="Europe/Berlin", dst=dst)) for _, _, note in told(each)]

    assert notes("skip") == ["never comes; left out", "first of two", "second of two, left out"]
    assert notes("real") == ["never comes; left out", "first of two", "second of two"]
    assert notes("second")[2:] == ["first of two, left out", "second of two"]
    assert notes("both")[2:] == ["first of two", "second of two"]


def test_every_listed_due_is_one_of_the_schedule_and_none_between_them_is_missing() -> None:
    for schedule in (
        cron("0 * * * *", tz="America/Santiago"),
        cron("15,45 0-3 * * *", tz="Africa/Casablanca"),
        every("20m", tz="Europe/Dublin"),
    ):
        for each in year(schedule):
            listed = [moment.due_us for moment in each.moments if moment.due_us is not None]
            assert listed == sorted(set(listed))
            if not each.left_off:
                assert listed == schedule.dues(listed[0] - 1, listed[-1], limit=1000)


def test_a_schedule_of_every_second_is_told_in_a_few_lines() -> None:
    for each in year(cron("* * * * * *", tz="Europe/Berlin")):
        assert len(each.moments) < 20
        assert each.left_off > 3000


def test_a_zone_without_changes_has_none() -> None:
    assert year(cron("30 2 * * *", tz="Asia/Seoul")) == []

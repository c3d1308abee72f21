"""SQLite after a fork: one decision for all parts of a process."""

from __future__ import annotations

from fencepost.sql.forked_sqlite import ForkedSqlite


class Connection:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Part:
    def __init__(self, in_use: int = 0) -> None:
        self.idle = [Connection()]
        self.in_use = in_use

    def open_now(self) -> tuple[list[Connection], int]:
        return self.idle, self.in_use


def test_whoever_comes_first_closes_what_all_have_inherited() -> None:
    forked, ours, others = ForkedSqlite(), Part(), Part()
    forked.join(others.open_now)
    assert not forked.settle(2, ours.idle, in_use=0)
    assert not ours.idle[0].is_open
    assert not others.idle[0].is_open


def test_nothing_is_closed_if_anybody_was_inside_and_all_are_told() -> None:
    forked, ours, others = ForkedSqlite(), Part(), Part(in_use=1)
    forked.join(others.open_now)
    assert forked.settle(2, ours.idle, in_use=0)
    assert ours.idle[0].is_open
    assert others.idle[0].is_open
    others.in_use = 0  # it starts anew in the child, and no longer knows
    assert forked.settle(2, others.idle, in_use=0)


def test_a_caller_that_was_inside_itself_counts_too() -> None:
    forked, others = ForkedSqlite(), Part()
    forked.join(others.open_now)
    assert forked.settle(2, [], in_use=1)
    assert others.idle[0].is_open


def test_every_child_decides_for_itself() -> None:
    forked, part = ForkedSqlite(), Part()
    forked.join(part.open_now)
    assert not forked.settle(2, [], in_use=0)
    part.in_use = 1
    assert forked.settle(3, [], in_use=0)


def test_a_child_of_one_that_must_not_use_it_must_not_either() -> None:
    forked, part = ForkedSqlite(), Part(in_use=1)
    forked.join(part.open_now)
    assert forked.settle(2, [], in_use=0)
    part.in_use = 0
    assert forked.settle(3, [], in_use=0)
    assert forked.is_lost


def test_one_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    class Stubborn(Connection):
        def close(self) -> None:
            raise OSError

    forked, part = ForkedSqlite(), Part()
    assert not forked.settle(2, [Stubborn(), *part.idle], in_use=0)
    assert not part.idle[0].is_open


def test_nothing_is_collected_where_closing_would_hang() -> None:
    told: list[int] = []
    forked = ForkedSqlite(lambda: told.append(1))
    assert not forked.settle(2, [], in_use=0)
    assert not told
    assert forked.settle(3, [], in_use=1)
    assert told


def test_a_part_that_is_gone_is_not_asked() -> None:
    forked = ForkedSqlite()
    forked.join(Part(in_use=1).open_now)
    forked.join(Part(in_use=1).open_now)
    assert not forked.settle(2, [], in_use=0)

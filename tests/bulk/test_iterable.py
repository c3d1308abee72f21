"""Generators with a cursor: called after the last cursor, asked for no more than a page needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.bulk import iterable
from fencepost.bulk.reader import WHOLE
from fencepost.errors import BrokenInput, InvalidBulk
from tests.bulk.feeds import Importing, check_resuming, check_slices, items, surroundings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CURSORS: dict[str, Any] = {
    "number": lambda number: number,
    "text": lambda number: f"{number:09}",
    "several": lambda number: [number // 3, {"of": str(number)}],
    "time": lambda number: NOON + timedelta(microseconds=number),
    "decimal": lambda number: Decimal(number) / 8,
    "float": lambda number: number / 3,
}


def counting(count: int, cursor: Any = CURSORS["number"]) -> Any:
    """Return a function that yields numbers, and goes on after any of its cursors."""

    def numbers(after: Any) -> Iterator[tuple[Any, int]]:
        begin = 0 if after is None else [cursor(number) for number in range(count)].index(after) + 1
        for number in range(begin, count):
            yield cursor(number), number

    return numbers


@pytest.mark.parametrize("kind", CURSORS)
@given(count=st.integers(0, 12), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_pages_of_any_sizes_from_any_cursor_are_what_it_yields_in_one_go(
    kind: str, count: int, sizes: list[int]
) -> None:
    check_resuming(iterable(counting(count, CURSORS[kind])), range(count), sizes)


def test_it_is_asked_for_no_more_than_a_page_and_called_once_while_nothing_goes_wrong() -> None:
    asked: list[Any] = []

    def numbers(after: int | None) -> Iterator[tuple[int, int]]:
        asked.append(("called", after))
        for number in range(100):
            asked.append(number)
            yield number, number

    feed = iterable(numbers).open(WHOLE, surroundings())
    page = feed.read(None, 3)
    feed.read(page.position_after(2), 2)
    feed.close()
    assert asked == [("called", None), 0, 1, 2, 3, 4]


def test_it_is_given_the_values_that_it_names() -> None:
    def named(after: Any, region: str, *, day: int = 1) -> Iterator[tuple[int, Any]]:
        yield 1, (region, day)

    def any_of_them(after: Any, **values: Any) -> Iterator[tuple[int, Any]]:
        yield 1, values

    values = {"region": "north", "window_end": 5}
    assert iterable(named).open(WHOLE, surroundings(**values)).read(None, 1).items == [("north", 1)]
    assert iterable(any_of_them).open(WHOLE, surroundings(**values)).read(None, 1).items == [values]
    given = {"values": {"region": "south"}}
    assert iterable(named).open(given, surroundings(**values)).read(None, 1).items == [("south", 1)]
    with pytest.raises(InvalidBulk, match=r"named\) needs 'region', which is not a parameter of this run; .*'regions'"):
        iterable(named).open(WHOLE, surroundings(regions=1))


def test_what_it_raises_comes_after_the_items_before_it_and_then_it_is_called_again() -> None:
    calls: list[Any] = []

    def failing(after: int | None) -> Iterator[tuple[int, int]]:
        calls.append(after)
        for number in range(0 if after is None else after + 1, 6):
            if number == 3 and len(calls) < 3:
                raise ConnectionError("lost")
            yield number, number

    feed = iterable(failing).open(WHOLE, surroundings())
    page = feed.read(None, 5)
    assert (page.items, page.is_last) == ([0, 1, 2], False)
    with pytest.raises(ConnectionError):
        feed.read(page.position_after(2), 5)
    assert feed.read(page.position_after(2), 5).items == [3, 4, 5]
    assert calls == [None, 2, 2]


def test_a_feed_goes_back_when_it_is_asked_to() -> None:
    feed = iterable(counting(10)).open(WHOLE, surroundings())
    first = feed.read(None, 4)
    feed.read(first.position_after(3), 4)
    assert feed.read(first.position_after(1), 2).items == [2, 3]
    assert feed.read(None, 2).items == [0, 1]


def test_a_generator_is_closed_with_its_feed() -> None:
    ended: list[bool] = []

    def numbers(after: Any) -> Iterator[tuple[int, int]]:
        try:
            for number in range(9):
                yield number, number
        finally:
            ended.append(True)

    feed = iterable(numbers).open(WHOLE, surroundings())
    feed.read(None, 3)
    assert ended == []
    feed.close()
    assert ended == [True]


@pytest.mark.parametrize(
    ("pairs", "error", "says"),
    [
        ([7], InvalidBulk, "yielded 7; it must yield pairs"),
        (["ab"], InvalidBulk, "yielded 'ab'; it must yield pairs"),
        ([(1, 2, 3)], InvalidBulk, "must yield pairs"),
        ([(None, 1)], InvalidBulk, "cursor None, which means the beginning"),
        ([(object(), 1)], InvalidBulk, "cannot be stored in a checkpoint"),
        ([(1, "a"), (1, "b")], BrokenInput, "cursor 1 twice"),
        (7, InvalidBulk, "returned 7; it must yield pairs"),
    ],
)
def test_what_could_not_be_resumed_is_refused(pairs: Any, error: type[Exception], says: str) -> None:
    for size in (1, 5):
        with pytest.raises(error, match=says):
            items(iterable(lambda after: pairs if after is None or not isinstance(pairs, list) else pairs[1:]), [size])


def test_what_cannot_be_called_after_a_cursor_is_refused_where_it_stands_in_the_code() -> None:
    async def waiting(after: Any) -> Any:
        yield 1, 1

    with pytest.raises(InvalidBulk, match="is not a function"):
        iterable([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(InvalidBulk, match="is async"):
        iterable(waiting)
    with pytest.raises(InvalidBulk, match="must have a parameter for the cursor"):
        iterable(lambda: None)


def test_it_is_divided_by_its_part_and_else_refused() -> None:
    def numbers(after: int | None, part: int, parts: int) -> Iterator[tuple[int, int]]:
        for number in range(0 if after is None else after + 1, 50):
            if number % parts == part:
                yield number, number

    reader = iterable(numbers)
    assert len(check_slices(reader, range(50), 4)) == 4
    assert items(reader) == list(range(50))
    with pytest.raises(InvalidBulk, match="cannot be divided into partitions; add the parameters part and parts"):
        iterable(counting(3)).slices(2, surroundings())


def test_the_version_tells_cursors_apart_and_a_label_names_items() -> None:
    function = counting(3)
    assert iterable(function).shape == iterable(function).shape != iterable(function, version=2).shape
    assert iterable(function).label({"id": 7}) == "{'id': 7}"
    assert iterable(function, label=lambda item: f"order {item['id']}").label({"id": 7}) == "order 7"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_job_goes_on_after_the_cursor_of_the_last_item_that_landed(tmp_path: Path, ledger_url: str) -> None:
    is_broken = [True]

    def numbers(after: int | None) -> Iterator[tuple[int, int]]:
        for number in range(1 if after is None else after + 1, 51):
            if number == 33 and is_broken:
                raise BrokenInput("the shop's answer makes no sense")
            yield number, number

    with closing(Importing(ledger_url, iterable(numbers), lambda number: (number, "x"))) as job:
        run = job.run()
        assert run.state == "dead"
        assert job.landed() == [(number, "x") for number in range(1, 33)]
        is_broken.clear()
        assert job.restart(run).state == "succeeded"
        assert job.landed() == [(number, "x") for number in range(1, 51)]

"""What all readers of files have in common: names and patterns, pages across files, positions that name their file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.bulk import csv_file, json_lines, parquet
from fencepost.bulk.reader import WHOLE
from fencepost.bulk.readers.files import Span, distributed
from fencepost.errors import InvalidBulk
from tests.bulk.feeds import check_resuming, check_slices, items, pages, positions, surroundings


def lines(folder: Path, name: str, *numbers: int) -> Path:
    (folder / name).write_text("".join(f"{number}\n" for number in numbers))
    return folder / name


# -- names -----------------------------------------------------------------------------------------------------------


def test_files_are_read_in_the_order_of_their_names_each_once(tmp_path: Path) -> None:
    lines(tmp_path, "b.jsonl", 3, 4)
    lines(tmp_path, "a.jsonl", 1, 2)
    lines(tmp_path, "c.jsonl")
    lines(tmp_path, "d.jsonl", 5)
    lines(tmp_path, "not.json", 9)
    (tmp_path / "folder.jsonl").mkdir()
    check_resuming(json_lines(f"{tmp_path}/*.jsonl"), [1, 2, 3, 4, 5], [2, 1])
    given = [tmp_path / "b.jsonl", f"{tmp_path}/[ab].jsonl"]
    check_resuming(json_lines(given), [1, 2, 3, 4], [3])


def test_a_name_with_the_letters_of_a_pattern_is_taken_as_it_is_if_it_is_there(tmp_path: Path) -> None:
    lines(tmp_path, "a[1].jsonl", 1)
    lines(tmp_path, "a1.jsonl", 2)
    assert items(json_lines(tmp_path / "a[1].jsonl")) == [1]


def test_names_are_filled_in_from_the_run(tmp_path: Path) -> None:
    lines(tmp_path, "north-2026-01-02.jsonl", 1)
    lines(tmp_path, "north-2026-01-03.jsonl", 2)
    lines(tmp_path, "n*-2026-01-02.jsonl", 3)
    reader = json_lines(f"{tmp_path}/{{region}}-{{window_start:%Y-%m-%d}}.js*")
    window_start = datetime(2026, 1, 2, tzinfo=UTC)

    def read(region: str) -> list[Any]:
        feed = reader.open(WHOLE, surroundings(region=region, window_start=window_start))
        try:
            return list(feed.read(None, 10).items)
        finally:
            feed.close()

    assert read("north") == [1]
    assert read("n*") == [3]  # a value is no pattern
    with pytest.raises(InvalidBulk, match=r"has \{region\}, which is not a parameter of this run; .*window_start"):
        reader.open(WHOLE, surroundings(window_start=window_start))


def test_partitions_that_are_given_bring_their_values(tmp_path: Path) -> None:
    lines(tmp_path, "north.jsonl", 1)
    lines(tmp_path, "south.jsonl", 2)
    reader = json_lines(f"{tmp_path}/{{region}}.jsonl")
    reader.check(surroundings())
    assert [items(reader, part={"values": {"region": region}}) for region in ("north", "south")] == [[1], [2]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "is not a file name"),
        ("", "is not a file name"),
        (7, "is not a file name"),
        (["a.csv", 7], "is not a file name"),
        (b"a.csv", "is not a file name"),
        ("a-{.csv", "write a brace that belongs to the name twice"),
        ("a-{}.csv", "must name its fields"),
        ("a-{0}.csv", "must name its fields"),
        ("a.csv.zst", "unpack it, or compress it with gzip"),
        ("a.zip", "unpack it, or compress it with gzip"),
    ],
)
def test_what_names_no_file_is_refused_where_it_stands_in_the_code(given: Any, says: str) -> None:
    for reader in (csv_file, json_lines, parquet):
        with pytest.raises(InvalidBulk, match=says):
            reader(given)


@pytest.mark.parametrize("make", [csv_file, json_lines, parquet])
def test_a_file_that_is_missing_is_told_of_before_anything_is_read(tmp_path: Path, make: Any) -> None:
    with pytest.raises(InvalidBulk, match=r"orders\.x is missing; put it there, and restart the run"):
        make(tmp_path / "orders.x").check(surroundings())
    with pytest.raises(InvalidBulk, match=r"\*\.x is missing \(no file matches the pattern\)"):
        make(tmp_path / "*.x").check(surroundings())
    with pytest.raises(InvalidBulk, match="is a directory; give the files in it"):
        make(tmp_path).check(surroundings())
    assert make(tmp_path / "orders.x").expected(WHOLE, surroundings()) is None


def test_a_file_that_goes_missing_on_the_way_is_told_of_when_all_before_it_was_delivered(tmp_path: Path) -> None:
    for name, number in (("a.jsonl", 1), ("b.jsonl", 2), ("c.jsonl", 3)):
        lines(tmp_path, name, number)
    reader = json_lines(tmp_path / "*.jsonl")
    feed = reader.open(WHOLE, surroundings())
    os.remove(tmp_path / "b.jsonl")
    page = feed.read(None, 10)
    assert (page.items, page.is_last) == ([1], False)
    with pytest.raises(InvalidBulk, match=r"b\.jsonl is missing"):
        feed.read(page.position_after(0), 10)
    lines(tmp_path, "b.jsonl", 2)
    assert feed.read(page.position_after(0), 10).items == [2, 3]
    feed.close()


def test_a_position_in_a_file_that_is_gone_is_told_of(tmp_path: Path) -> None:
    lines(tmp_path, "a.jsonl", 1, 2)
    lines(tmp_path, "b.jsonl", 3)
    reader = json_lines(tmp_path / "*.jsonl")
    in_the_middle, in_the_next = positions(reader)[1], positions(reader)[3]
    os.remove(tmp_path / "a.jsonl")
    with pytest.raises(InvalidBulk, match=r"a\.jsonl is missing \(the run has read a part of it"):
        items(reader, after=in_the_middle)
    assert items(reader, after=in_the_next) == []  # those that are done may be taken away


# -- pages and slices ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    count=st.integers(2, 6),
)
def test_pages_go_across_files_and_resume_anywhere(
    tmp_path: Path, files: list[list[int]], sizes: list[int], count: int
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    for number, numbers in enumerate(files):
        lines(tmp_path, f"{number}.jsonl", *numbers)
    expected = [number for numbers in files for number in numbers]
    reader = json_lines(tmp_path / "*.jsonl")
    check_resuming(reader, expected, sizes)
    check_slices(reader, expected, count)


def test_the_last_page_says_so_when_it_ends_with_the_last_line(tmp_path: Path) -> None:
    lines(tmp_path, "a.jsonl", 1, 2)
    lines(tmp_path, "b.jsonl", 3, 4)
    assert [page.is_last for page in pages(json_lines(tmp_path / "*.jsonl"), [2])] == [False, True]


def test_a_feed_goes_back_when_it_is_asked_to(tmp_path: Path) -> None:
    reader = json_lines(lines(tmp_path, "a.jsonl", *range(10)))
    feed = reader.open(WHOLE, surroundings())
    first = feed.read(None, 4)
    feed.read(first.position_after(3), 4)
    assert feed.read(first.position_after(1), 2).items == [2, 3]
    assert feed.read(None, 2).items == [0, 1]
    feed.close()


def test_a_page_can_be_cut_anywhere_also_when_the_feed_has_moved_on(tmp_path: Path) -> None:
    lines(tmp_path, "a.jsonl", 0, 1, 2)
    lines(tmp_path, "b.jsonl", 3, 4, 5)
    reader = json_lines(tmp_path / "*.jsonl")
    feed = reader.open(WHOLE, surroundings())
    page = feed.read(None, 5)
    feed.read(page.position_after(4), 5)
    feed.close()
    assert [items(reader, after=page.position_after(index)) for index in range(5)] == [
        list(range(index + 1, 6)) for index in range(5)
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 8))
def test_what_is_distributed_is_whole_and_no_group_is_heavier_than_need_be(sizes: list[int], count: int) -> None:
    spans = [Span(f"{number:02}", size) for number, size in enumerate(sizes)]
    groups = distributed(spans, count)
    assert sorted(span for group in groups for span in group) == spans
    assert len(groups) == min(count, len(spans))
    loads = [sum(span.size for span in group) for group in groups]
    assert max(loads) <= sum(sizes) / count + max(sizes)
    assert all(group == sorted(group) for group in groups)


def test_reading_holds_no_more_than_a_page(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text(("7" * 100 + "\n") * 200_000)  # 20 MB
    feed = json_lines(file).open(WHOLE, surroundings())
    page = feed.read(None, 10)
    with open("/proc/self/io") as before:
        start = int(before.readline().split()[1])
    page = feed.read(page.position_after(9), 1000)
    with open("/proc/self/io") as after:
        assert int(after.readline().split()[1]) - start < 1_000_000
    feed.close()

"""JSON lines: read as `json` reads each line, from any position, in any byte range."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.bulk import json_lines
from fencepost.bulk.reader import WHOLE, Surroundings, Unread
from fencepost.errors import BrokenInput, InvalidBulk
from tests.bulk.feeds import (
    RUNTIME,
    Importing,
    check_resuming,
    check_slices,
    items,
    pages,
    positions,
    surroundings,
    until_broken,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=4), some, max_size=3),
    max_leaves=6,
)
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", " \n\t\n"])
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def orders(folder: Path, count: int, *, name: str = "orders.jsonl", first: int = 1) -> Path:
    lines = (
        json.dumps({"id": number, "name": "é" * (number % 7)}, ensure_ascii=False)
        for number in range(first, first + count)
    )
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder / name


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.tuples(VALUES, st.booleans(), ENDS), max_size=8),
    sizes=SIZES,
    is_ended=st.booleans(),
    mark=st.booleans(),
    count=st.integers(2, 6),
)
def test_pages_of_any_sizes_from_any_position_and_slices_are_what_json_reads_in_one_go(
    tmp_path: Path, *, lines: list[Any], sizes: list[int], is_ended: bool, mark: bool, count: int
) -> None:
    text = "".join(json.dumps(value, ensure_ascii=is_plain) + end for value, is_plain, end in lines)
    raw = (text if is_ended else text.rstrip()).encode()
    (tmp_path / "any.jsonl").write_bytes((b"\xef\xbb\xbf" if mark else b"") + raw)
    reader = json_lines(tmp_path / "any.jsonl")
    expected = [json.loads(line) for line in raw.decode().split("\n") if line.strip()]
    check_resuming(reader, expected, sizes)
    check_slices(reader, expected, count)


def test_an_object_is_a_dict_and_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('\n{"id": 1, "_place": 2}\n[3]\n\n{"id": 4}\n')
    reader = json_lines(tmp_path / "orders.jsonl")
    first, second, third = items(reader)
    assert (first, second, third) == ({"id": 1, "_place": 2}, [3], {"id": 4})
    assert json.dumps(first) == '{"id": 1, "_place": 2}'
    assert [reader.label(each) for each in (first, second, third)] == [
        "orders.jsonl line 2",
        "[3]",
        "orders.jsonl line 5",
    ]
    assert reader.label(items(reader, after=positions(reader)[2])[0]) == "orders.jsonl line 5"


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (b'{"id": 4, "na', 'line 4 (byte 30): the file ends in the middle of a record: \'{"id": 4'),
        (b'{"id": "\xff"}', "line 4 (byte 38): this is not valid utf-8"),
        (b'{"id": "\xe6\xbc', "line 4 (byte 38): the file ends in the middle of a record, even of a character"),
    ],
)
def test_what_comes_before_a_broken_line_is_delivered_and_then_it_is_told_where(
    tmp_path: Path, end: bytes, says: str
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b"".join(b'{"id": %d}\n' % number for number in (1, 2, 3)) + end)
    for size in (1, 2, 3, 100):
        read, told = until_broken(json_lines(file), [size])
        assert read == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert f"orders.jsonl, {says}" in str(told)
        assert "restart the run" in str(told)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b'{"id": 4, "na\n', "this line is not valid JSON: "),
        (b'{"id": 4} {"id": 5}\r\n', "this line is not valid JSON: Extra data"),
        (b'{"id": "\xff"}\n', "this is not valid utf-8: invalid start byte b'\\xff\"}\\n' at byte 38"),
        (b"[" * 100_000 + b"\n", "this line is not valid JSON"),
        (b"9" * 5000 + b"\n", "this line is not valid JSON"),
    ],
)
@pytest.mark.parametrize("name", ["orders.jsonl", "orders.jsonl.gz"])
def test_a_line_that_is_no_json_stands_among_the_others_with_its_place_and_text(
    tmp_path: Path, name: str, bad: bytes, says: str
) -> None:
    raw = b"".join(b'{"id": %d}\n' % number for number in (1, 2, 3)) + bad + b'{"id": 5}\n' + bad + b'{"id": 6}\n'
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    reader = json_lines(tmp_path / name)
    for size in (1, 2, 4, 100):
        read = list(pages(reader, [size]))
        found = [item for page in read for item in page.items]
        assert [item.place if isinstance(item, Unread) else item["id"] for item in found] == [
            *(1, 2, 3, f"{name} line 4", 5, f"{name} line 6", 6)
        ]
        assert f"{name}, line 4 (byte 30): {says}" in found[3].why
        assert found[3].raw in (bad, bad[: 64 * 1024].decode(errors="replace"))
        for page in read:
            assert page.unread == {at: item for at, item in enumerate(page.items) if isinstance(item, Unread)}
    check_resuming(reader, items(reader), [2, 1])


def test_a_bad_line_is_in_one_slice_and_named_by_its_byte_where_lines_are_not_counted(tmp_path: Path) -> None:
    file = orders(tmp_path, 40)
    file.write_bytes(file.read_bytes() + b"nonsense\n" + b'{"id": 41}\n')
    reader = json_lines(file)
    found = [
        [item for item in items(reader, part=part) if isinstance(item, Unread)]
        for part in reader.slices(3, surroundings())
    ]
    assert [len(each) for each in found] == [0, 0, 1]
    assert found[2][0].place == f"orders.jsonl byte {file.read_bytes().index(b'nonsense')}"
    check_slices(reader, items(reader), 1)


def test_what_was_put_aside_is_read_by_a_reader_that_was_mended_and_else_is_still_broken() -> None:
    assert json_lines("a.jsonl", encoding="latin-1").reread(b'{"name": "f\xfcr"}\n', None) == {"name": "für"}
    for raw in (b'{"name": "f\xfcr"}\n', '{"name": \n'):
        with pytest.raises(BrokenInput, match=r"not valid utf-8|not valid JSON"):
            json_lines("a.jsonl").reread(raw, None)


def test_a_line_without_an_end_is_not_read_into_memory_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.bulk.readers.lines.LONGEST_LINE", 1000)
    (tmp_path / "a.jsonl").write_text("1\n" + " " * 5000 + "2\n")
    read, told = until_broken(json_lines(tmp_path / "a.jsonl"))
    assert (read, "longer than 1000 bytes" in str(told)) == ([1], True)


# -- partitions ------------------------------------------------------------------------------------------------------


def test_one_file_is_divided_evenly_and_several_too(tmp_path: Path) -> None:
    orders(tmp_path, 300, name="a.jsonl")
    orders(tmp_path, 40, name="b.jsonl", first=1000)
    for pattern, count in (("a.jsonl", 300), ("*.jsonl", 340)):
        reader = json_lines(tmp_path / pattern)
        slices = reader.slices(4, surroundings())
        read = [items(reader, part=part) for part in slices]
        assert sorted(item["id"] for each in read for item in each) == sorted(item["id"] for item in items(reader))
        assert [len(each) for each in read] == pytest.approx([count / 4] * 4, rel=0.2)
        assert [part["expected"] for part in slices] == pytest.approx([count / 4] * 4, rel=0.2)


def test_a_partition_in_the_middle_of_a_file_names_its_items_by_their_bytes(tmp_path: Path) -> None:
    reader = json_lines(orders(tmp_path, 40))
    part = reader.slices(2, surroundings())[1]
    first = items(reader, part=part)[0]
    begin = part["spans"][0]["begin"]["offset"]
    assert reader.label(first) == f"orders.jsonl byte {begin}"
    assert (tmp_path / "orders.jsonl").read_bytes()[begin:].startswith(json.dumps(first, ensure_ascii=False).encode())


def test_a_file_whose_bytes_have_moved_since_it_was_divided_is_refused(tmp_path: Path) -> None:
    file = orders(tmp_path, 40)
    reader = json_lines(file)
    slices = reader.slices(2, surroundings())
    file.write_bytes(b'{"id": 0}\n' + file.read_bytes())
    for part in slices:
        with pytest.raises(BrokenInput, match="has changed since"):
            items(reader, part=part)


@pytest.mark.parametrize("count", [1, 2])
def test_a_file_that_is_cut_while_it_is_read_is_not_taken_for_one_that_ends(tmp_path: Path, count: int) -> None:
    file = orders(tmp_path, 30_000)
    reader = json_lines(file)
    part = reader.slices(2, surroundings())[0] if count > 1 else WHOLE
    feed = reader.open(part, surroundings())
    page = feed.read(None, 10)
    end_of_a_line = file.read_bytes().index(b"\n", 400_000) + 1
    os.truncate(file, end_of_a_line)
    with pytest.raises(BrokenInput, match=f"it was truncated to {end_of_a_line} bytes while it was read"):
        while not page.is_last:
            page = feed.read(page.position_after(len(page.items) - 1), 1000)
    feed.close()


def test_lines_that_are_added_later_belong_to_the_last_partition(tmp_path: Path) -> None:
    file = orders(tmp_path, 40)
    reader = json_lines(file)
    slices = reader.slices(2, surroundings())
    file.write_bytes(file.read_bytes() + b'{"id": 41}\n')
    assert [item["id"] for part in slices for item in items(reader, part=part)] == list(range(1, 42))


def test_a_compressed_file_is_read_from_its_beginning_and_not_divided(tmp_path: Path) -> None:
    plain = orders(tmp_path, 30)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    reader = json_lines(packed)
    check_resuming(reader, items(json_lines(plain)), [4, 1])
    assert reader.expected(WHOLE, surroundings()) == pytest.approx(30, abs=2)
    with pytest.raises(InvalidBulk, match=r"packed\.jsonl\.gz cannot be divided .*compressed"):
        reader.slices(2, surroundings())


def test_a_file_of_one_line_makes_one_partition(tmp_path: Path) -> None:
    reader = json_lines(orders(tmp_path, 1))
    warned: list[str] = []
    (part,) = reader.slices(8, Surroundings(RUNTIME, warn=warned.append))
    assert (len(items(reader, part=part)), len(warned)) == (1, 1)


# -- a real run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_job_in_partitions_lands_what_can_be_read_and_the_rest_when_the_file_is_mended(
    tmp_path: Path, ledger_url: str
) -> None:
    file = orders(tmp_path, 60)
    whole = file.read_bytes()

    def row(item: Any) -> tuple[int, str]:
        return item["id"], item["name"]

    with closing(Importing(ledger_url, json_lines(file), row, partitions=3, over="threads")) as job:
        file.write_bytes(whole[:-8])
        run = job.run()
        assert (run.state, "ends in the middle of a record" in run.error) == ("dead", True)
        assert len(job.landed()) == len({number for number, _ in job.landed()}) < 60
        file.write_bytes(whole)
        assert job.restart(run).state == "succeeded"
        assert job.landed() == [(number, "é" * (number % 7)) for number in range(1, 61)]

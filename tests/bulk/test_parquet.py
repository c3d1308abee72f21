"""Parquet files: read as pyarrow reads them, from any row, by row groups."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table

from fencepost.bulk import parquet
from fencepost.bulk.reader import WHOLE, Surroundings
from fencepost.bulk.readers import parquet as module
from fencepost.errors import BrokenInput, InvalidBulk, MissingExtra
from tests.bulk.feeds import (
    RUNTIME,
    Importing,
    check_resuming,
    check_slices,
    items,
    positions,
    surroundings,
    until_broken,
)


def orders(folder: Path, count: int, *, group: int = 10, name: str = "orders.parquet", first: int = 1) -> Path:
    numbers = range(first, first + count)
    table = pyarrow.table({"id": pyarrow.array(numbers, pyarrow.int64()), "name": [f"name {each}" for each in numbers]})
    write_table(table, folder / name, row_group_size=group)
    return folder / name


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.none() | st.integers(-5, 5), st.text(max_size=4)), max_size=8),
    group=st.integers(1, 5),
    batch=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    count=st.integers(2, 5),
)
def test_pages_of_any_sizes_from_any_position_and_slices_are_what_pyarrow_reads_in_one_go(
    tmp_path: Path, *, rows: list[Any], group: int, batch: int, sizes: list[int], count: int
) -> None:
    numbers = pyarrow.array([number for number, _ in rows], pyarrow.int64())
    table = pyarrow.table({"n": numbers, "t": pyarrow.array([text for _, text in rows], pyarrow.string())})
    write_table(table, tmp_path / "any.parquet", row_group_size=group)
    reader = parquet(tmp_path / "any.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_ROWS", batch)
        check_resuming(reader, rows, sizes)
        check_slices(reader, rows, count)
    assert reader.expected(WHOLE, surroundings()) == len(rows)


def test_rows_have_the_names_of_the_columns_and_values_of_python(tmp_path: Path) -> None:
    placed_at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    columns = {
        "id": [1],
        "amount": [Decimal("1.50")],
        "placed_at": [placed_at],
        "tags": [["a", "b"]],
        "odd name": [None],
    }
    write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    (row,) = items(parquet(tmp_path / "a.parquet"))
    assert (row.id, row.amount, row.placed_at, row.tags, row[4]) == (1, Decimal("1.50"), placed_at, ["a", "b"], None)


def test_columns_are_chosen_by_name_and_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    file = orders(tmp_path, 2)
    assert [row._asdict() for row in items(parquet(file, columns=["name", "id"]))] == [
        {"name": "name 1", "id": 1},
        {"name": "name 2", "id": 2},
    ]
    with pytest.raises(InvalidBulk, match="has no column 'nmae'; did you mean 'name'"):
        parquet(file, columns=["nmae"]).check(surroundings())


def test_an_item_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    reader = parquet(orders(tmp_path, 25))
    assert reader.label(items(reader, after=positions(reader)[16])[0]) == "orders.parquet row 17"
    (*_, last) = reader.slices(2, surroundings())
    assert reader.label(items(reader, part=last)[-1]) == "orders.parquet row 25"


def test_files_are_divided_by_row_groups_evenly(tmp_path: Path) -> None:
    orders(tmp_path, 60, name="a.parquet")
    orders(tmp_path, 20, name="b.parquet", first=1000)
    reader = parquet(tmp_path / "*.parquet")
    slices = check_slices(reader, items(reader), 4)
    assert [len(items(reader, part=part)) for part in slices] == [20, 20, 20, 20]
    assert [part["expected"] for part in slices] == [20, 20, 20, 20]


def test_a_file_of_one_row_group_makes_one_partition(tmp_path: Path) -> None:
    reader = parquet(orders(tmp_path, 5))
    warned: list[str] = []
    (part,) = reader.slices(8, Surroundings(RUNTIME, warn=warned.append))
    assert (len(items(reader, part=part)), len(warned)) == (5, 1)


# -- files that are broken -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 3, 11, -1, -30])
def test_a_file_without_its_footer_is_broken_and_files_before_it_are_read(tmp_path: Path, left: int) -> None:
    orders(tmp_path, 5, name="a.parquet")
    file = orders(tmp_path, 5, name="b.parquet")
    file.write_bytes(file.read_bytes()[:left])
    read, told = until_broken(parquet(tmp_path / "*.parquet"), [3])
    assert len(read) == 5
    assert "b.parquet" in str(told)
    assert "truncated" in str(told)


def test_a_file_that_is_broken_inside_is_told_of_and_what_comes_before_it_is_delivered(tmp_path: Path) -> None:
    file = orders(tmp_path, 30)
    raw = bytearray(file.read_bytes())
    with closing(pyarrow.parquet.ParquetFile(file)) as opened:
        begin = opened.metadata.row_group(1).column(0).data_page_offset
    raw[begin : begin + 40] = b"\xff" * 40
    file.write_bytes(raw)
    for size in (1, 4, 100):
        read, told = until_broken(parquet(file), [size])
        assert [row.id for row in read] == list(range(1, 11))
        assert "orders.parquet, row group 1, after its row 0: Parquet cannot be read" in str(told)


def test_a_file_that_was_written_anew_is_refused_in_the_middle_of_it(tmp_path: Path) -> None:
    reader = parquet(orders(tmp_path, 30))
    position, slices = positions(reader)[12], reader.slices(2, surroundings())
    orders(tmp_path, 31)
    with pytest.raises(BrokenInput, match=r"orders\.parquet has changed since the run began"):
        items(reader, after=position)
    with pytest.raises(BrokenInput, match=r"orders\.parquet has changed since the run began"):
        items(reader, part=slices[0])


def test_without_the_extra_the_declaration_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert importlib.util.find_spec("pyarrow") is not None
    with pytest.raises(MissingExtra, match=r"pip install './fencepost\[parquet\]'"):
        parquet("orders.parquet")


# -- a real run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_job_lands_each_row_once_also_when_a_file_arrives_late_and_whole(tmp_path: Path, ledger_url: str) -> None:
    orders(tmp_path, 25, name="a.parquet")
    late = orders(tmp_path, 25, name="b.parquet", first=26)
    whole = late.read_bytes()
    late.write_bytes(whole[:100])

    def row(item: Any) -> tuple[int, str]:
        return item.id, item.name

    with closing(Importing(ledger_url, parquet(tmp_path / "*.parquet"), row)) as job:
        run = job.run()
        assert (run.state, "truncated" in run.error) == ("dead", True)
        assert job.landed() == [(number, f"name {number}") for number in range(1, 26)]
        late.write_bytes(whole)
        assert job.restart(run).state == "succeeded"
        assert job.landed() == [(number, f"name {number}") for number in range(1, 51)]

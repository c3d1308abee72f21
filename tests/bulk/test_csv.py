"""CSV files: read as `csv.reader` reads them, from any position at the end of a record."""

from __future__ import annotations

import csv
import gzip
import io
import re
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fencepost.bulk import csv_file
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

ANY_TEXT = st.text(
    st.one_of(st.sampled_from("\",;\n\r ab\\'é漢😀\x00\u2028\x85\x0b"), st.characters(exclude_categories=["Cs"])),
    max_size=6,
)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(ANY_TEXT, min_size=width, max_size=width), max_size=8))


def written(file: Path, rows: Any, *, end: str = "\r\n", **dialect: Any) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator=end, **dialect).writerows(rows)
    file.write_bytes(text.getvalue().encode())
    return file


def orders(folder: Path, count: int, *, name: str = "orders.csv", first: int = 1) -> Path:
    rows = ([str(number), f"name {number}\nof two lines"] for number in range(first, first + count))
    return written(folder / name, [["id", "name"], *rows])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables(), sizes=SIZES, end=st.sampled_from(["\n", "\r\n"]), is_ended=st.booleans(), mark=st.booleans())
@example(rows=[["\n"], ['"\r\n"']], sizes=[1], end="\r\n", is_ended=False, mark=True)
def test_pages_of_any_sizes_from_any_position_are_what_csv_reads_in_one_go(
    tmp_path: Path, *, rows: list[list[str]], sizes: list[int], end: str, is_ended: bool, mark: bool
) -> None:
    file = written(tmp_path / "any.csv", rows, end=end, quoting=csv.QUOTE_ALL)
    raw = file.read_bytes() if is_ended else file.read_bytes().removesuffix(end.encode())
    file.write_bytes((b"\xef\xbb\xbf" if mark else b"") + raw)
    expected = [tuple(row) for row in csv.reader(io.StringIO(raw.decode(), newline=""), strict=True)]
    assert expected == [tuple(row) for row in rows]
    check_resuming(csv_file(file, header=False), expected, sizes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.text(st.sampled_from('ab",\n\r\\ '), max_size=40),
    sizes=SIZES,
    escape=st.sampled_from([None, "\\"]),
    doubled=st.booleans(),
    spaces=st.booleans(),
)
@example(raw="\r", sizes=[1], escape=None, doubled=False, spaces=False)
@example(raw="\n\r\n\n", sizes=[1], escape=None, doubled=True, spaces=False)
@example(raw="\n\na\n\nb\n\n", sizes=[1], escape=None, doubled=True, spaces=False)
def test_whatever_stands_in_a_file_is_read_as_csv_reads_it_or_refused_where_csv_refuses_it(
    tmp_path: Path, *, raw: str, sizes: list[int], escape: str | None, doubled: bool, spaces: bool
) -> None:
    dialect: dict[str, Any] = {"escapechar": escape, "doublequote": doubled, "skipinitialspace": spaces}
    (tmp_path / "raw.csv").write_bytes(raw.encode())
    expected, is_broken = oracle(raw, dialect)
    reader = csv_file(tmp_path / "raw.csv", header=False, **dialect)
    read = until_broken(reader, sizes)[0] if is_broken else items(reader, sizes)
    assert [item.raw if isinstance(item, Unread) else item for item in read] == expected


def oracle(raw: str, dialect: dict[str, Any]) -> tuple[list[tuple[str, ...] | str], bool]:
    """What `csv` makes of lines that end in a line feed: rows, texts of bad ones, and if it ends at a broken one."""
    found: list[tuple[str, ...] | str] = []
    lines = re.findall(r"[^\n]*\n|[^\n]+", raw)
    while lines:
        reader = csv.reader(lines, strict=True, **dialect)
        try:
            row, is_ended = next(reader), True
        except csv.Error as error:
            row, is_ended = (
                ["?"],
                "end of data" not in str(error) and ends_with_its_line(lines[: reader.line_num], dialect),
            )
        text, lines = "".join(lines[: reader.line_num]), lines[reader.line_num :]
        if row and row != ["?"] and len(row) == len((found or [row])[0]):
            found.append(tuple(row))
        elif row and (not found or not is_ended or (len(row) < len(found[0]) and not text.endswith("\n"))):
            return found, True
        elif row:
            found.append(text)
    return found, False


def ends_with_its_line(lines: list[str], dialect: dict[str, Any]) -> bool:
    """Whether a row that breaks the rules leaves no doubt about its end: another one behind it is read as one."""
    text = "".join(lines)
    rows = list(csv.reader([line.replace("\r", "") for line in lines] + ["another"], **dialect))
    is_doubtful = (dialect["escapechar"] or "\0") in text or text.count('"') % 2 == 1
    return text.endswith("\n") and not is_doubtful and rows[-1] == ["another"]


def test_rows_have_the_names_of_the_header_and_the_texts_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id, amount ,Order No\n007, 1.50,x\n")
    (row,) = items(csv_file(file))
    assert (row.id, row.amount, row[2]) == ("007", " 1.50", "x")
    assert row._fields == ("id", "amount", "_2")


def test_columns_are_chosen_by_name_and_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id,name,amount\n1,a,10\n2,b,20\n")
    assert [row._asdict() for row in items(csv_file(file, columns=["amount", "id"]))] == [
        {"amount": "10", "id": "1"},
        {"amount": "20", "id": "2"},
    ]
    assert items(csv_file(file, columns=["name"])) == [("a",), ("b",)]


def test_without_a_header_columns_are_named_by_the_reader_or_by_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("1;a\n2;b\n")
    assert [row.name for row in items(csv_file(file, header=False, columns=["id", "name"], delimiter=";"))] == [
        "a",
        "b",
    ]
    assert [row.column_2 for row in items(csv_file(file, header=False, delimiter=";"))] == ["a", "b"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "gb18030", "utf-8-sig"])
def test_other_encodings_are_read_as_well(tmp_path: Path, encoding: str) -> None:
    text = "ä,é" if encoding in ("latin-1", "cp1252") else "表,ソ"  # with a backslash as the second byte in shift_jis
    (tmp_path / "a.csv").write_bytes(f"{text}\r\n{text}\r\n".encode(encoding))
    check_resuming(csv_file(tmp_path / "a.csv", header=False, encoding=encoding), [tuple(text.split(","))] * 2, [1])


def test_an_item_is_named_by_the_line_on_which_it_begins(tmp_path: Path) -> None:
    reader = csv_file(orders(tmp_path, 3))
    assert [reader.label(row) for row in items(reader)] == [f"orders.csv line {line}" for line in (2, 4, 6)]
    assert [reader.label(row) for row in items(reader, after=positions(reader)[2])] == ["orders.csv line 6"]


# -- files that are broken -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (b'4,"four', "line 5 .*ends in the middle of a record: a quote"),
        (b"4", "line 5 .*ends in the middle of a record: the row has 1 field"),
        (b'4,"four\n' + b"5,five\n" * 20_000, "line 5 .*a quote may be missing"),
        (b'4,"four"x', "line 5 .*expected after"),
        (b'4,"four"x,"\n5,five\n', "line 5 .*expected after"),
        (b'4 "","4"x,"\n5,five\n', "line 5 .*expected after"),
        (b'4,5" wide,"4"x,"\n5,five\n', "line 5 .*expected after"),
        (b'4,"f\xfcr\n5,five\n', "line 5 .*this is not valid utf-8"),
        (b"4,f\xfcr", r"line 5 \(byte 31\): this is not valid utf-8: .*fcr"),
        (b"4,\xe6\xbc", r"line 5 \(byte 30\): the file ends in the middle of a record, even of a character"),
    ],
)
def test_what_comes_before_a_broken_record_is_delivered_and_then_it_is_told_where(
    tmp_path: Path, end: bytes, says: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_bytes(b"id,name\n1,one\n2,two\n3,three\n" + end)
    reader = csv_file(file)
    for size in (1, 2, 3, 100):
        read, told = until_broken(reader, [size])
        assert [row.id for row in read] == ["1", "2", "3"]
        assert re.search(rf"orders\.csv, {says}", str(told), re.DOTALL)
        assert "restart the run" in str(told)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"4\n", "the row has 1 fields, and there are 2 columns"),
        (b"4,four,4\r\n", "the row has 3 fields, and there are 2 columns; is a field with the delimiter not quoted"),
        (b'4,"four\nof","two lines"\n', "the row has 3 fields"),
        (b"4,f\xfcr\n", r"this is not valid utf-8: .*fcr\\n' at byte 31"),
        (b'4,"two\nl\xfcnes"\n', "this is not valid utf-8"),
        (b'4,"four"x\n', "expected after"),
        (b'4,"say ""four""" twice\n', "expected after"),
        (b"4,fo\rur\n", "carriage return within a line"),
        (b"4," + b"x" * 5000 + b",4\n", "the row has 3 fields"),
    ],
)
@pytest.mark.parametrize("name", ["orders.csv", "orders.csv.gz"])
def test_a_row_that_makes_no_sense_but_ends_with_its_line_stands_among_the_others_with_its_place_and_text(
    tmp_path: Path, name: str, bad: bytes, says: str
) -> None:
    raw = b"id,name\n1,one\n2,two\n3,three\n" + bad + b"5,five\n" + bad + b"6,six\n"
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    reader = csv_file(tmp_path / name)
    for size in (1, 2, 4, 100):
        read = list(pages(reader, [size]))
        found = [item for page in read for item in page.items]
        assert [item.place if isinstance(item, Unread) else item.id for item in found] == [
            *("1", "2", "3", f"{name} line 5", "5", f"{name} line {6 + bad.count(10)}", "6")
        ]
        assert re.search(rf"{name}, line 5 \(byte 28\): .*{says}", found[3].why)
        assert found[3].raw in (bad, bad.decode(errors="replace"))
        for page in read:
            assert page.unread == {at: item for at, item in enumerate(page.items) if isinstance(item, Unread)}
    check_resuming(reader, items(reader), [2, 1])


def test_rows_after_an_escape_in_a_bad_one_are_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,name\n1,one\n2,"t\\"w"o"\n3,three\n')
    read, told = until_broken(csv_file(tmp_path / "a.csv", escapechar="\\"))
    assert (read, "line 3" in str(told)) == ([("1", "one")], True)


def test_bad_rows_keep_their_places_on_a_page_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,one\n2\n")
    (tmp_path / "b.csv").write_text("id,name\n3\n4,four\n5\n")
    [page] = pages(csv_file(tmp_path / "*.csv"), [10])
    assert {at: each.place for at, each in page.unread.items()} == {
        1: "a.csv line 3",
        2: "b.csv line 2",
        4: "b.csv line 4",
    }


@pytest.mark.parametrize(
    ("raw", "words", "expected"),
    [
        ("4;four\n", {"delimiter": ";"}, ("4", "four")),
        (b"4,f\xfcr\n", {"encoding": "latin-1"}, ("4", "für")),
        ("4,four,4\n", {"header": False, "columns": ["id", "name", "again"]}, ("4", "four", "4")),
        ("4,four\n", {"columns": ["name"]}, ("four",)),
    ],
)
def test_what_was_put_aside_is_read_by_a_reader_that_was_mended(
    raw: str | bytes, words: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert csv_file("orders.csv", **words).reread(raw, ["id", "name"]) == expected


@pytest.mark.parametrize("raw", ["4\n", b"4,f\xfcr\n", '4,"four"x\n', "4,four\n5,five\n", '4,"four\n', "\n"])
def test_what_was_put_aside_and_is_still_no_row_is_broken(raw: str | bytes) -> None:
    with pytest.raises(BrokenInput, match=r"fields|utf-8|expected|rows|never closed"):
        csv_file("orders.csv").reread(raw, ["id", "name"])


def test_an_empty_file_lacks_its_header_and_one_with_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("id,name\n")
    with pytest.raises(BrokenInput, match="the file has no header"):
        items(csv_file(tmp_path / "empty.csv"))
    assert items(csv_file(tmp_path / "empty.csv", header=False)) == []
    assert items(csv_file(tmp_path / "header.csv")) == []


def test_a_file_may_be_mended_behind_the_position_and_may_grow(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text('id,name\n1,one\n2,"two\n')
    reader = csv_file(file)
    read, _ = until_broken(reader)
    position = positions(csv_file(written(tmp_path / "orders.csv", [["id", "name"], ["1", "one"]], end="\n")))[1]
    file.write_text("id,name\n1,one\n2,two\n3,three\n")
    assert [row.id for row in read + items(reader, after=position)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ("id,name\n1,one\n", "shorter"),
        ("id,name\n1,one\n9,two\n3,three\n", "not what was read"),
        ("id,name\n0,nil\n1,one\n2,two\n3,three\n", "not what was read"),
        ("id,nama\n1,one\n2,two\n3,three\n", "not what was read"),
    ],
    ids=["cut short", "another last row", "a row more before it", "another header"],
)
def test_a_file_that_has_changed_before_the_position_is_refused(tmp_path: Path, now: str, says: str) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id,name\n1,one\n2,two\n3,three\n")
    reader = csv_file(file)
    position = positions(reader)[2]
    assert items(reader, after=position) == [("3", "three")]
    file.write_text(now)
    with pytest.raises(BrokenInput, match=f"orders.csv has changed since.*{says}.*bulk forget"):
        items(reader, after=position)


# -- compressed files ------------------------------------------------------------------------------------------------


def test_a_compressed_file_is_read_and_resumed_by_unpacked_bytes(tmp_path: Path) -> None:
    plain = orders(tmp_path, 20)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    check_resuming(csv_file(packed), items(csv_file(plain)), [3, 1])
    assert csv_file(packed).expected(WHOLE, surroundings()) == 20


def test_a_compressed_file_that_was_cut_off_or_is_none_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv.gz"
    whole = gzip.compress(b"id,name\n" + b"".join(b"%d,%d\n" % (i, hash(i) ** 3) for i in range(40_000)))
    file.write_bytes(whole[: len(whole) // 2])
    read, told = until_broken(csv_file(file), [1000])
    assert 1000 < len(read) < 40_000
    assert "cannot be unpacked from here on: it ends in the middle" in str(told)
    file.write_bytes(b"id,name\n1,one\n")
    with pytest.raises(BrokenInput, match="Not a gzipped file"):
        items(csv_file(file))


# -- partitions, estimates, what is refused --------------------------------------------------------------------------


def test_several_files_are_distributed_by_size_and_one_is_refused(tmp_path: Path) -> None:
    for number, count in enumerate((40, 5, 5, 10, 20, 0)):
        orders(tmp_path, count, name=f"part-{number}.csv", first=number * 100)
    reader = csv_file(tmp_path / "part-*.csv")
    slices = check_slices(reader, items(reader), 3)
    assert [len(items(reader, part=part)) for part in slices] == [40, 20, 20]
    assert [part["expected"] for part in slices] == pytest.approx([40, 20, 20], abs=2)
    with pytest.raises(InvalidBulk, match=r"part-0\.csv cannot be divided into partitions: .*within quotes.*Split it"):
        csv_file(tmp_path / "part-0.csv").slices(2, surroundings())


def test_a_pattern_that_only_one_file_fits_today_makes_one_partition_and_a_warning(tmp_path: Path) -> None:
    orders(tmp_path, 3)
    warned: list[str] = []
    around = Surroundings(RUNTIME, warn=warned.append)
    reader = csv_file(tmp_path / "*.csv")
    (part,) = reader.slices(4, around)
    assert len(items(reader, part=part)) == 3
    assert "gives one partition" in warned[0]


def test_expected_is_estimated_from_a_sample(tmp_path: Path) -> None:
    assert csv_file(orders(tmp_path, 100)).expected(WHOLE, surroundings()) == 100
    assert csv_file(orders(tmp_path, 9000)).expected(WHOLE, surroundings()) == pytest.approx(9000, rel=0.1)
    (tmp_path / "broken.csv").write_text('id,name\n1,"')
    assert csv_file(tmp_path / "broken.csv").expected(WHOLE, surroundings()) is None


def test_files_with_other_columns_are_refused_before_anything_is_read_unless_columns_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,one\n")
    (tmp_path / "b.csv").write_text("name,id\ntwo,2\n")
    with pytest.raises(InvalidBulk, match=r"b\.csv has other columns than .*a\.csv: name, id instead of id, name"):
        csv_file(tmp_path / "*.csv").check(surroundings())
    chosen = csv_file(tmp_path / "*.csv", columns=["id", "name"])
    chosen.check(surroundings())
    assert items(chosen) == [("1", "one"), ("2", "two")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"encoding": "utf-16"}, "iconv -f utf-16"),
        ({"encoding": "cp037"}, "iconv -f cp037"),
        ({"encoding": "klingon"}, "no encoding 'klingon'"),
        ({"delimiter": "::"}, "CSV options are not valid"),
        ({"columns": []}, "must be a list of names"),
        ({"columns": "id"}, "must be a list of names"),
        ({"columns": ["id", "id"]}, "each once"),
    ],
)
def test_what_cannot_be_read_is_refused_where_it_stands_in_the_code(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidBulk, match=says):
        csv_file("orders.csv", **words)


def test_a_column_that_is_not_there_or_there_twice_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,amount,x,x\n")
    with pytest.raises(InvalidBulk, match="has no column 'amuont'; did you mean 'amount'"):
        csv_file(tmp_path / "a.csv", columns=["amuont"]).check(surroundings())
    with pytest.raises(InvalidBulk, match="2 columns named 'x'"):
        csv_file(tmp_path / "a.csv", columns=["x"]).check(surroundings())


def test_a_position_means_the_same_only_to_a_reader_of_the_same_kind() -> None:
    readers = [
        csv_file("a.csv", delimiter=d, header=h, encoding=e) for d, h, e in product(",;", (0, 1), ("utf-8", "ascii"))
    ]
    assert len({reader.shape for reader in readers}) == len(readers)
    assert csv_file("a.csv").shape == csv_file("a.csv").shape != csv_file("b.csv").shape


# -- a real run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_job_lands_what_comes_before_a_file_is_cut_off_and_goes_on_when_it_is_mended(
    tmp_path: Path, ledger_url: str
) -> None:
    whole = orders(tmp_path, 40).read_bytes()
    file = tmp_path / "orders.csv"
    file.write_bytes(whole[:-10])

    def row(item: Any) -> tuple[int, str]:
        if item.id == "5":
            raise ValueError("poison")
        return int(item.id), item.name

    with closing(Importing(ledger_url, csv_file(file), row, skip_limit=1)) as job:
        run = job.run()
        assert run.state == "dead"
        assert "orders.csv, line 80" in run.error
        assert "ends in the middle of a record" in run.error
        assert [number for number, _ in job.landed()] == [1, 2, 3, 4, *range(6, 40)]
        file.write_bytes(whole)
        assert job.restart(run).state == "succeeded"
        assert job.landed() == [(i, f"name {i}\nof two lines") for i in range(1, 41) if i != 5]
        assert job.letters() == ["orders.csv line 10"]

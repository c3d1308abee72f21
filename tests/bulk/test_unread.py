"""Records in the middle of a file that make no sense: put aside like any item that fails, and never processed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from fencepost.app.records import RunRecord
from fencepost.bulk import csv_file, iterable, json_lines
from tests.bulk.orders import Died, Shop, again, hand, kind, on, place, played, result_of, shop

__all__ = ["kind", "place", "shop"]

BROKEN = "fencepost.errors.BrokenInput"


def orders(file: Path, bad: dict[int, str], count: int = 30) -> Path:
    """So many orders, some of whose lines are replaced. An order's line follows that of the header."""
    lines = [bad.get(number, f"{number},{number * 10}") for number in range(1, count + 1)]
    file.write_text("\n".join(["id,amount", *lines, ""]))
    return file


def objects(file: Path, bad: dict[int, str], count: int = 30) -> Path:
    lines = [bad.get(number, json.dumps({"id": number, "amount": number * 10})) for number in range(1, count + 1)]
    file.write_text("\n".join([*lines, ""]))
    return file


def importing(reader: Any, process: Callable[[Any], Any] | None = None, **more: Any) -> type:
    """A class as users write it, which settles the orders of a file."""

    class Import:
        read = reader

        def write(self, tx: Any, items: Any) -> None:
            rows = [
                item if isinstance(item, dict) else {"id": int(item.id), "amount": int(item.amount)} for item in items
            ]
            tx.execute(text("INSERT INTO settled VALUES (:id, :amount)"), rows)

    if process is not None:
        Import.process = staticmethod(process)  # type: ignore[attr-defined]
    for name, value in more.items():
        setattr(Import, name, value)
    return Import


def letters(shop: Shop) -> list[dict[str, Any]]:
    """What was put aside, with the text that was kept of it."""
    columns = "item_key, error_code, error, payload, state, attempt"
    rows = shop.rows(f"SELECT {columns} FROM {shop.effects_table('dead_letter')} ORDER BY id")
    found = [dict(zip(columns.split(", "), row, strict=True)) for row in rows]
    return [{**each, "raw": json.loads(each["payload"]).get("raw")} for each in found]


def counts(row: RunRecord) -> tuple[int, int, int, int]:
    found = result_of(row)
    return found["read"], found["written"], found["filtered"], found["skipped"]


@on(("sqlite", "own"), ("postgresql", "other"), ("mysql", "own"))
def test_a_bad_row_is_read_and_skipped_and_kept_with_its_line_and_text(shop: Shop, tmp_path: Path) -> None:
    reader = csv_file(orders(tmp_path / "orders.csv", {7: "7", 30: '30,"300" \0 Mark'}))
    row = played(shop, shop.bulk(importing(reader), skip_limit=2))
    assert row.state == "succeeded", row.error
    assert counts(row) == (30, 28, 0, 2)
    assert shop.settled() == [each for each in range(1, 30) if each != 7]
    first, second = letters(shop)
    assert (first["item_key"], first["error_code"], first["raw"]) == ("orders.csv line 8", BROKEN, "7\n")
    assert (second["item_key"], second["error_code"]) == ("orders.csv line 31", BROKEN)
    assert second["raw"] == '30,"300" \0 Mark\n'
    assert "orders.csv, line 8 (byte 40): the row has 1 fields, and there are 2 columns" in first["error"]


@pytest.mark.parametrize("way", ["none", "plain", "async"])
def test_process_never_sees_it_and_what_it_does_with_others_is_kept(shop: Shop, tmp_path: Path, way: str) -> None:
    bad = dict.fromkeys((1, 4, 5, 10, 11, 30), "nonsense")
    seen: list[int] = []

    def process(order: Any) -> Any:
        seen.append(order["id"])
        if order["id"] == 6:
            raise ValueError("six")
        return None if order["id"] == 12 else order

    async def process_async(order: Any) -> Any:
        return process(order)

    ways: dict[str, Any] = {"none": None, "plain": process, "async": process_async}
    reader = json_lines(objects(tmp_path / "orders.jsonl", bad))
    row = played(shop, shop.bulk(importing(reader, ways[way]), skip_limit=7))
    assert row.state == "succeeded", row.error
    assert counts(row) == ((30, 24, 0, 6) if way == "none" else (30, 22, 1, 7))
    lost = {*bad} if way == "none" else {*bad, 6, 12}
    assert shop.settled() == [each for each in range(1, 31) if each not in lost]
    assert seen == ([] if way == "none" else [each for each in range(1, 31) if each not in bad])
    told = {each["item_key"]: each["error_code"] for each in letters(shop) if each["error_code"] == BROKEN}
    assert told == {f"orders.jsonl line {each}": BROKEN for each in bad}


@pytest.mark.parametrize("mend", ["the file", "the limit"])
def test_beyond_the_limit_all_before_it_has_landed_and_a_restart_goes_on_there(
    shop: Shop, tmp_path: Path, mend: str
) -> None:
    file = orders(tmp_path / "orders.csv", {14: "14", 15: "15"})
    first = played(shop, shop.bulk(importing(csv_file(file)), name="import", skip_limit=1))
    assert (first.state, first.error_code) == ("dead", "fencepost.errors.TooManySkipped")
    assert "item orders.csv line 16 failed, and skip_limit is 1" in (first.error or "")
    assert "the row has 1 fields, and there are 2 columns" in (first.error or "")
    assert "restart the run: it continues there" in (first.error or "")
    assert shop.settled() == list(range(1, 14))
    assert [each["item_key"] for each in letters(shop)] == ["orders.csv line 15"]

    later = shop.another_app()
    if mend == "the file":
        orders(file, {14: "14"})
    shop.bulk(importing(csv_file(file)), app=later, name="import", skip_limit=1 if mend == "the file" else 2)
    second = again(shop, first, later)
    later.close()
    assert second.state == "succeeded", second.error
    assert shop.settled() == [each for each in range(1, 31) if each != 14 and (mend == "the file" or each != 15)]
    assert [each["item_key"] for each in letters(shop)] == [
        "orders.csv line 15",
        *(["orders.csv line 16"] if mend == "the limit" else []),
    ]


def test_without_a_skip_limit_it_ends_the_run_and_names_the_line(shop: Shop, tmp_path: Path) -> None:
    reader = json_lines(objects(tmp_path / "orders.jsonl", {14: '{"id": 14, '}))
    row = played(shop, shop.bulk(importing(reader)))
    assert (row.state, row.attempts) == ("dead", 1)
    assert "orders.jsonl, line 14 (byte " in (row.error or "")
    assert "this line is not valid JSON" in (row.error or "")
    assert shop.settled() == list(range(1, 14))


def test_partitions_put_aside_what_is_theirs(shop: Shop, tmp_path: Path) -> None:
    file = objects(tmp_path / "orders.jsonl", {2: "two", 20: "twenty", 59: "fifty-nine"}, 60)
    row = played(shop, shop.bulk(importing(json_lines(file)), partitions=3, over="threads", skip_limit=3))
    assert row.state == "succeeded", row.error
    assert shop.settled() == [each for each in range(1, 61) if each not in (2, 20, 59)]
    raw = file.read_bytes()
    twenty, last = raw.index(b"twenty"), raw.index(b"fifty-nine")
    found = {each["raw"]: each["item_key"] for each in letters(shop)}
    assert found["two\n"] == "orders.jsonl line 2"
    assert found["twenty\n"] in ("orders.jsonl line 20", f"orders.jsonl byte {twenty}")
    assert found["fifty-nine\n"] == f"orders.jsonl byte {last}"


def test_a_chunk_that_is_divided_puts_it_aside_once(shop: Shop, tmp_path: Path) -> None:
    """Two rows are refused by the database, next to bad ones: the chunk is divided to find them."""
    bad = {3: "3", 5: "5,50,500"}
    file = orders(tmp_path / "orders.csv", {**bad, 4: "8,1", 6: "8,2"})
    row = played(shop, shop.bulk(importing(csv_file(file)), skip_limit=9))
    assert row.state == "succeeded", row.error
    assert counts(row) == (30, 26, 0, 4)
    assert [each["item_key"] for each in letters(shop)] == [f"orders.csv line {line}" for line in (4, 6, 7, 9)]
    assert [each["error_code"] == BROKEN for each in letters(shop)] == [True, True, False, False]


def test_worker_losses_beside_it_are_not_blamed_on_it(shop: Shop, tmp_path: Path) -> None:
    deaths: list[str] = []

    def process(order: Any) -> Any:
        if order.id == "15":
            deaths.append(order.id)
            raise Died
        return order

    file = orders(tmp_path / "orders.csv", {14: "14", 16: "16"})
    row = played(shop, shop.bulk(importing(csv_file(file), process), skip_limit=3))
    assert row.state == "succeeded", row.error
    assert len(deaths) >= 3
    assert shop.settled() == [each for each in range(1, 31) if each not in (14, 15, 16)]
    assert [(each["item_key"], each["error_code"].rpartition(".")[2]) for each in letters(shop)] == [
        ("orders.csv line 15", "BrokenInput"),
        ("orders.csv line 16", "WorkerLost"),
        ("orders.csv line 17", "BrokenInput"),
    ]


def test_a_worker_that_is_lost_at_it_leaves_its_own_error(shop: Shop, tmp_path: Path) -> None:
    """Whoever lands it is lost every time, until it is alone and put aside."""
    file = orders(tmp_path / "orders.csv", {1: "1"}, 1)
    reader = csv_file(file)
    lost: list[int] = []

    class Fatal:
        """Loses the worker when a page has been read."""

        needs_source, shape = False, reader.shape

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def open(self, part: Any, surroundings: Any) -> Any:
            if len(lost) < 6:
                lost.append(1)
                raise Died
            return reader.open(part, surroundings)

    row = played(shop, shop.bulk(importing(Fatal()), skip_limit=1))
    assert row.state == "succeeded", row.error
    assert [(each["item_key"], each["error_code"]) for each in letters(shop)] == [("orders.csv line 2", BROKEN)]


class TestReplays:
    @pytest.fixture
    def put_aside(self, shop: Shop, tmp_path: Path) -> Path:
        """Two rows were put aside: one with another delimiter, and one that makes no sense at all."""
        file = orders(tmp_path / "orders.csv", {7: "7;70", 9: "9,9,9"})
        assert played(shop, shop.bulk(importing(csv_file(file)), name="import", skip_limit=2)).state == "succeeded"
        return file

    def replayed(self, shop: Shop, given: type) -> dict[str, int]:
        later = shop.another_app()
        shop.bulk(given, app=later, name="import", skip_limit=2)
        ids = [row[0] for row in shop.rows(f"SELECT id FROM {shop.effects_table('dead_letter')}")]
        with hand(shop, later) as one:
            row = one.play(later.enqueue("import/replay", params={"letters": ids}).run_id)
        later.close()
        assert row.state == "succeeded", row.error
        return {name: count for name, count in (row.result or {}).items() if count}

    def test_what_the_reader_understands_now_is_written_and_the_rest_stays_with_what_to_do(
        self, shop: Shop, put_aside: Path
    ) -> None:
        assert self.replayed(shop, importing(csv_file(put_aside, delimiter=";"))) == {"replayed": 1, "failed": 1}
        assert shop.settled() == [each for each in range(1, 31) if each != 9]
        first, second = letters(shop)
        assert (first["state"], second["state"], second["attempt"]) == ("replayed", "new", 2)
        assert second["error_code"] == BROKEN
        assert "orders.csv line 10 still cannot be read: the row has 1 fields" in second["error"]
        assert "Correct the reader's options and replay it" in second["error"]

    def test_it_is_processed_like_any_other_item(self, shop: Shop, put_aside: Path) -> None:
        seen: list[Any] = []

        def process(order: Any) -> None:
            seen.append(order._asdict())

        assert self.replayed(shop, importing(csv_file(put_aside, delimiter=";"), process)) == {
            "replayed": 1,
            "failed": 1,
        }
        assert seen == [{"id": "7", "amount": "70"}]

    def test_a_reader_that_cannot_read_a_record_by_itself_leaves_it_alone(self, shop: Shop, put_aside: Path) -> None:
        assert self.replayed(shop, importing(iterable(lambda after: iter(())))) == {"refused": 2}
        assert [each["state"] for each in letters(shop)] == ["new", "new"]


def test_of_a_record_that_is_too_long_its_beginning_is_kept(shop: Shop, tmp_path: Path) -> None:
    file = objects(tmp_path / "orders.jsonl", {3: "x" * 200_000})
    row = played(shop, shop.bulk(importing(json_lines(file)), skip_limit=1))
    assert row.state == "succeeded", row.error
    [letter] = letters(shop)
    assert letter["raw"] is None
    assert "xxx" in json.loads(letter["payload"])["shown"]
    assert len(letter["payload"]) < 60_000

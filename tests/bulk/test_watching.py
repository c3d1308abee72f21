"""How far a bulk job is, as it is told to the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.bulk import watching
from fencepost.bulk.checkpoint import Counts
from fencepost.bulk.watching import note_of, read_note
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.parts import parts_of
from tests.bulk.families import beside, part_of
from tests.bulk.orders import Shop, hand, kind, place, played, settling, shop

__all__ = ["kind", "place", "shop"]


def test_a_note_says_what_became_of_items_and_reads_back() -> None:
    note = note_of(Counts(10, 7, 2, 1, 3), expected=40, partitions=(1, 4), rate=12.6)
    assert note == "read=10 written=7 filtered=2 skipped=1 expected=40 partitions=1/4 rate=13"
    assert read_note(note) == {
        "read": "10",
        "written": "7",
        "filtered": "2",
        "skipped": "1",
        "expected": "40",
        "partitions": "1/4",
        "rate": "13",
    }


def test_an_estimate_is_never_less_than_what_was_read() -> None:
    assert "expected=50" in note_of(Counts(50), expected=40, partitions=None, rate=0)


@pytest.mark.parametrize("note", [None, "", "half way", "read=1 and more"])
def test_what_is_no_note_of_ours_reads_as_nothing(note: str | None) -> None:
    assert read_note(note) == {}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_run_tells_while_it_works_and_at_its_end(shop: Shop, partitions: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.0)
    shop.fill(range(1, 91))
    told: list[dict[str, str]] = []

    def process(order: Any) -> Any:
        if order.id % 30 == 25:
            told.append(read_note(shop.app.operations.run(1).progress_note))
        return order

    row = played(shop, shop.bulk(settling(process), partitions=partitions, read_ahead=0))
    assert row.id == 1
    assert [int(each["read"]) for each in told] == sorted(int(each["read"]) for each in told)
    assert 0 < int(told[1]["read"]) < 90
    last = read_note(row.progress_note)
    assert (last["read"], last["written"]) == ("90", "90")
    assert int(last["rate"]) > 0
    assert last.get("partitions") == (None if partitions == 1 else "3/3")
    assert row.progress == 1.0


def test_parts_tell_of_their_own_partition(shop: Shop) -> None:
    shop.fill(range(1, 41))
    handle = shop.bulk(settling(), partitions=2)
    run_id = handle.enqueue().run_id
    with beside(shop, run_id, until_asked=handle) as parent, hand(shop) as other:
        part = part_of(other, handle)
        other.end(part, other.execute(part))
        parent.go()
        parent.join(20)
    (row,) = parts_of(shop.app.ledger, run_id)
    assert read_note(row.progress_note)["read"] == "20"
    assert read_note(shop.app.operations.run(run_id).progress_note)["read"] == "40"


def test_a_ledger_that_does_not_answer_costs_a_value_and_not_the_run(shop: Shop, monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.0)
    shop.fill(range(1, 31))

    def no_answer(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("not now")

    monkeypatch.setattr("fencepost.ledger.running_runs.progress", no_answer)
    row = played(shop, shop.bulk(settling()))
    assert row.state == "succeeded"
    assert row.progress_note is None

"""Dead letters as they are kept: what comes back of an item, in which order they are listed, and who may settle one."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine

from fencepost.bulk.letters import (
    DROPPED,
    NEW,
    REPLAYED,
    LetterFilter,
    StoredLetter,
    fail_again,
    letter_of,
    letters,
    letters_by_id,
    put_aside,
    settle,
)
from fencepost.bulk.reader import Unread
from fencepost.errors import InvalidBulk
from fencepost.fence.writer import Writer

Row = namedtuple("Row", ("id", "amount"))
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
SETTLE, PART = Writer(job="settle", run_id=7), Writer(job="settle/part", run_id=8)
ALL = LetterFilter(("settle", "settle/part"))


@pytest.fixture
def put(engine: Engine) -> Callable[..., StoredLetter]:
    """Put an item aside, and return the letter as it is read again."""

    def put(item: Any, writer: Writer = SETTLE, error: Exception | None = None) -> StoredLetter:
        made = letter_of(item, "id=1", error or ValueError("poison"), step="main", instance="run-7", tries=2)
        with engine.begin() as tx:
            put_aside(tx, [made], writer)
            return letters(tx, SETTLE, ALL, limit=1)[0]

    return put


def test_a_letter_tells_of_its_item_and_of_what_went_wrong(put: Callable[..., StoredLetter]) -> None:
    kept = put(Row(1, Decimal("2.50")))
    assert (kept.job, kept.run_id, kept.item_key, kept.state) == ("settle", 7, "id=1", NEW)
    assert (kept.step, kept.instance, kept.attempt) == ("main", "run-7", 2)
    assert (kept.error_code, kept.error) == ("ValueError", "poison")
    assert kept.created_at > 1_700_000_000_000_000


@on_sqlite
@pytest.mark.parametrize(
    "item",
    [
        Row(1, Decimal("2.50")),
        (1, "two"),
        [1, [2, (3,)][0]],
        {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\x00"},
        "a text",
        1.5,
        None,
    ],
)
def test_an_item_comes_back_as_it_was(item: Any, put: Callable[..., StoredLetter]) -> None:
    back = put(item).item()
    assert back == item
    assert isinstance(back, list) is isinstance(item, list)
    assert getattr(back, "_fields", None) == getattr(item, "_fields", None)


@on_sqlite
@pytest.mark.parametrize("item", [object(), {"a": object()}, "x" * 100_000], ids=["object", "within", "too long"])
def test_an_item_without_a_form_that_can_be_kept_is_described_and_cannot_be_replayed(
    item: Any, put: Callable[..., StoredLetter]
) -> None:
    kept = put(item)
    assert not kept.can_be_replayed
    assert kept.shown[:5] in repr(item)
    with pytest.raises(InvalidBulk, match=r"dead letter 1 \(id=1\) cannot be replayed: its item had no JSON form"):
        kept.item()


@on_sqlite
@pytest.mark.parametrize(("raw", "shown"), [("4;f\u00fcr\n", '"4;f\u00fcr\\n"'), (b"4;f\xfcr\n", '"4;f\\\\xfcr\\n"')])
def test_of_what_could_not_be_read_the_text_is_kept_and_shown(
    raw: str | bytes, shown: str, put: Callable[..., StoredLetter]
) -> None:
    kept = put(Unread(raw, "no row", "a.csv line 5", ("id", "name")))
    assert kept.unread == Unread(raw, "poison", "id=1", ["id", "name"])
    assert (kept.can_be_replayed, kept.shown) == (True, shown)


@on_sqlite
@pytest.mark.parametrize("raw", ["x" * 65_536, b"\xff" * 65_536], ids=["text", "bytes"])
def test_of_what_could_not_be_read_and_is_too_long_only_the_beginning_is_shown(
    raw: str | bytes, put: Callable[..., StoredLetter]
) -> None:
    kept = put(Unread(raw, "no row", "a.csv line 5"))
    assert (kept.unread, kept.can_be_replayed) == (None, False)
    assert kept.shown[:20] == repr(raw)[:20]


@on_sqlite
def test_passwords_do_not_reach_a_letter(put: Callable[..., StoredLetter]) -> None:
    kept = put(object(), error=ValueError("cannot reach postgresql://app:s3cret@db/shop"))
    assert "s3cret" not in kept.error


def test_pages_neither_overlap_nor_skip_and_know_parts_from_other_jobs(engine: Engine) -> None:
    made = [letter_of(number, f"n={number}", ValueError(), step="main", instance="i", tries=1) for number in range(9)]
    with engine.begin() as tx:
        for number, each in enumerate(made):
            put_aside(tx, [each], PART if number % 3 else SETTLE)
            put_aside(tx, [each], Writer(job="other", run_id=9))
        down, before = [], None
        while page := letters(tx, SETTLE, ALL, before_id=before, limit=2):
            assert len(page) <= 2
            down, before = down + page, page[-1].id
        up, after = [], 0
        while page := letters(tx, SETTLE, ALL, after_id=after, limit=4):
            up, after = up + page, page[-1].id
    assert [each.item() for each in down] == list(range(8, -1, -1))
    assert up == down[::-1]


def test_a_letter_is_settled_once(engine: Engine, put: Callable[..., StoredLetter]) -> None:
    first, second = put(1), put(2)
    with engine.begin() as tx:
        assert settle(tx, SETTLE, first.id, REPLAYED)
        assert not settle(tx, SETTLE, first.id, REPLAYED)
        assert not settle(tx, SETTLE, first.id, DROPPED)
        assert settle(tx, SETTLE, second.id, DROPPED)
        assert not settle(tx, SETTLE, 10**6, DROPPED)
        by_id = letters_by_id(tx, SETTLE, ALL.jobs, [second.id, first.id, 10**6])
        assert [each.state for each in by_id] == [REPLAYED, DROPPED]
        assert letters(tx, SETTLE, ALL._replace(state=NEW)) == []
        assert [each.id for each in letters(tx, SETTLE, ALL._replace(state=DROPPED))] == [second.id]


def test_a_letter_that_fails_again_has_its_new_error_and_one_try_more(
    engine: Engine, put: Callable[..., StoredLetter]
) -> None:
    first, second = put(1), put(2)
    with engine.begin() as tx:
        settle(tx, SETTLE, second.id, REPLAYED)
        for each in (first, second):
            fail_again(tx, SETTLE, each.id, KeyError("account"))
        again, settled = letters_by_id(tx, SETTLE, ALL.jobs, [first.id, second.id])
    assert (again.state, again.attempt, again.error_code, again.error) == (NEW, 3, "KeyError", "'account'")
    assert settled == second._replace(state=REPLAYED)


@on_sqlite
def test_letters_of_another_job_are_not_found_by_their_numbers(
    engine: Engine, put: Callable[..., StoredLetter]
) -> None:
    kept = put(1)
    with engine.begin() as tx:
        assert letters_by_id(tx, SETTLE, ["other"], [kept.id]) == []

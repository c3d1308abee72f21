"""Sequences: moved only by who knows where they are, together with what was processed."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import Sequence
from fencepost.errors import EffectsMissing, InvalidName, SequenceConflict
from tests.fence.effect_places import Asking, EffectPlace, place

__all__ = ["place"]


@pytest.fixture
def feed(place: EffectPlace) -> Sequence:
    return Sequence("feed", prefix=place.prefix)


def at(place: EffectPlace, feed: Sequence, number: int) -> None:
    tx = place.begin()
    feed.advance(tx.tx, after=None, to=number)
    tx.commit()


def test_it_begins_with_nothing_and_goes_up(place: EffectPlace, feed: Sequence) -> None:
    tx = place.begin()
    assert feed.last(tx.tx) is None
    feed.advance(tx.tx, after=None, to=5)
    feed.advance(tx.tx, after=5, to=2**62)
    tx.commit()
    assert feed.last(place.begin().tx) == 2**62


def test_it_is_rolled_back_with_what_was_processed(place: EffectPlace, feed: Sequence) -> None:
    at(place, feed, 5)
    tx = place.begin()
    feed.advance(tx.tx, after=5, to=9)
    tx.rollback()
    assert feed.last(tx.tx) == 5


@pytest.mark.parametrize("after", [None, 4, 6])
def test_who_believes_it_elsewhere_is_told_where_it_is(place: EffectPlace, feed: Sequence, after: int | None) -> None:
    at(place, feed, 5)
    tx = place.begin()
    with pytest.raises(SequenceConflict, match=rf"'feed' was expected at {after}, but is at 5") as error:
        feed.advance(tx.tx, after=after, to=10)
    assert (error.value.expected, error.value.found) == (after, 5)
    assert feed.last(tx.tx) == 5


@pytest.mark.parametrize("after", [None, 5])
def test_of_two_who_saw_the_same_the_second_waits_and_is_refused(
    place: EffectPlace, feed: Sequence, after: int | None
) -> None:
    if after is not None:
        at(place, feed, after)
    first, second = place.begin(), place.begin()
    feed.advance(first.tx, after=after, to=7)
    asking = Asking(lambda: feed.advance(second.tx, after=after, to=8))
    place.waits(second)
    first.commit()
    with pytest.raises(SequenceConflict, match="is at 7"):
        asking.answer()
    second.rollback()
    assert feed.last(second.tx) == 7


def test_sequences_do_not_know_each_other(place: EffectPlace, feed: Sequence) -> None:
    at(place, feed, 5)
    tx = place.begin()
    assert Sequence("feed ", prefix=place.prefix).last(tx.tx) is None
    assert Sequence("f" * 300, prefix=place.prefix).last(tx.tx) is None


def test_a_database_without_the_tables_is_told_what_to_run(place: EffectPlace) -> None:
    with pytest.raises(EffectsMissing, match="run: fencepost effects install"):
        Sequence("feed", prefix="absent_").last(place.begin().tx)


@pytest.mark.parametrize(
    ("after", "to", "kind"),
    [(5, 5, ValueError), (5, 4, ValueError), (None, 1.5, TypeError), ("5", 6, TypeError), (None, True, TypeError)],
)
def test_what_does_not_go_up_is_refused(after: Any, to: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Sequence("feed").advance(None, after=after, to=to)


def test_a_name_has_a_character() -> None:
    with pytest.raises(InvalidName):
        Sequence("")

"""Five bad items among a hundred thousand: three that code refuses, and two that the database refuses."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.bulk.orders import Shop, again, kind, on, place, played, result_of, settling, shop

__all__ = ["kind", "place", "shop"]

ROWS = 100_000
REFUSED_BY_CODE = (1, 44_444, 100_000)
REFUSED_BY_DATABASE = (20_001, 60_777)
POISON = sorted((*REFUSED_BY_CODE, *REFUSED_BY_DATABASE))
BEFORE_THE_FOURTH = POISON[3] - 1


@pytest.fixture
def full(shop: Shop) -> Shop:
    """A shop with so many orders, two of which break a rule of the table they are to land in."""
    shop.change(f"INSERT INTO orders SELECT id, id * 10 FROM generate_series(1, {ROWS}) AS id")
    shop.change(f"UPDATE orders SET amount = -1 WHERE id IN {REFUSED_BY_DATABASE}")
    shop.change("ALTER TABLE settled ADD CONSTRAINT nothing_is_owed CHECK (amount >= 0)")
    return shop


def refuse(order: Any) -> Any:
    if order.id in REFUSED_BY_CODE:
        raise ValueError(f"order {order.id} is poison")
    return order


@on(("postgresql", "own"))
def test_within_the_limit_all_others_land_and_each_bad_one_is_put_aside_with_its_error(full: Shop) -> None:
    row = played(full, full.bulk(settling(refuse), chunk=2000, skip_limit=10))

    assert row.state == "succeeded", row.error
    counts = result_of(row)
    assert {name: counts[name] for name in ("read", "written", "filtered", "skipped")} == {
        "read": ROWS,
        "written": ROWS - len(POISON),
        "filtered": 0,
        "skipped": len(POISON),
    }
    assert full.settled() == [each for each in range(1, ROWS + 1) if each not in POISON]
    why = dict(full.letters())
    assert sorted(why) == sorted(f"id={each}" for each in POISON)
    for each in REFUSED_BY_CODE:
        assert f"order {each} is poison" in why[f"id={each}"]
    for each in REFUSED_BY_DATABASE:
        assert "nothing_is_owed" in why[f"id={each}"]
        assert "[parameters:" not in why[f"id={each}"]  # the rows of its neighbours, which SQLAlchemy would show


@on(("postgresql", "other"))
def test_beyond_the_limit_the_run_fails_clearly_and_a_restart_goes_on_where_it_stopped(full: Shop) -> None:
    first = played(full, full.bulk(settling(refuse), chunk=2000, skip_limit=3))

    assert (first.state, first.error_code) == ("dead", "fencepost.errors.TooManySkipped")
    assert "60777" in (first.error or "")
    landed = full.settled()
    assert landed == [each for each in range(1, BEFORE_THE_FOURTH + 1) if each not in POISON]

    seen: list[int] = []

    def watched(order: Any) -> Any:
        seen.append(order.id)
        return refuse(order)

    with closing(full.another_app()) as app:
        full.bulk(settling(watched), app=app, chunk=2000, skip_limit=10)
        second = again(full, first, app)

    assert second.state == "succeeded", second.error
    assert min(seen) > landed[-1]
    assert full.settled() == [each for each in range(1, ROWS + 1) if each not in POISON]
    assert len(full.letters()) == len(POISON)

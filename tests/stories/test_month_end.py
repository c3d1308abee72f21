"""The schedule and an operator settle the same orders at the same moment."""

import json

import pytest

from tests.stories.told import AS_PROMISED, ROOT, WENT_WRONG, Place, only_on_postgresql, tell

STORY = "month_end"
SETTLED = "SELECT order_id, count(*) FROM story_settlement GROUP BY order_id ORDER BY order_id"
HISTORY = "SELECT job, params, params_hash, requested_by, reason, state FROM story_run ORDER BY job"
ORDERS = range(1, 9)


@pytest.mark.parametrize(
    ("place", "how"), [("postgresql", "once"), ("mariadb", "once"), ("postgresql", "take")], indirect=["place"]
)
def test_each_order_is_settled_once_and_both_runs_are_in_the_history(place: Place, how: str) -> None:
    told = place.tell(STORY, "--how", how)
    assert told.status == AS_PROMISED, told.output
    assert place.rows(SETTLED) == [(order_id, 1) for order_id in ORDERS]
    assert_both_are_on_record(place)
    if how == "take":
        assert place.rows("SELECT count(*) FROM story_settlement GROUP BY run_id") == [(4,), (4,)]


@only_on_postgresql
def test_without_protection_each_order_is_settled_twice(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    assert told.not_so == {"each order is settled once"}
    assert place.rows(SETTLED) == [(order_id, 2) for order_id in ORDERS]
    assert_both_are_on_record(place)


def test_without_a_url_it_starts_a_server_of_its_own() -> None:
    assert tell(str(ROOT / "examples" / "stories" / f"{STORY}.py")).status == AS_PROMISED


def assert_both_are_on_record(place: Place) -> None:
    [again, scheduled] = place.rows(HISTORY)
    assert (scheduled[0], json.loads(scheduled[1]), *scheduled[3:]) == (
        "settle_month",
        {"month": "2026-01"},
        None,
        None,
        "succeeded",
    )
    assert (again[0], json.loads(again[1]), *again[3:]) == (
        "process_again",
        {"month": "2026-01", "ticket": "T-17"},
        "ann",
        "the bank was late",
        "succeeded",
    )
    assert scheduled[2] != again[2]
    assert len(scheduled[2]) == len(again[2]) == 64

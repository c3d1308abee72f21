"""A settlement is paused for longer than its ttl; another node settles; the first wakes up."""

from tests.stories.told import AS_PROMISED, WENT_WRONG, Place

STORY = "paused_settlement"
SETTLED = "SELECT order_id, count(*) FROM story_settlement WHERE day = '2026-01-31' GROUP BY order_id ORDER BY order_id"
ATTEMPTS = "SELECT outcome, token FROM story_attempt ORDER BY number"


def test_each_order_is_settled_once_though_a_paused_node_wakes_up(place: Place) -> None:
    told = place.tell(STORY)
    assert told.status == AS_PROMISED, told.output
    assert place.rows(SETTLED) == [(order_id, 1) for order_id in range(1, 7)]
    [(first, first_token), *_, (last, last_token)] = place.rows(ATTEMPTS)
    assert (first, last) == ("lost", "succeeded")
    assert first_token < last_token
    assert "refused: " in told.output
    by_the_first = place.rows(f"SELECT order_id FROM story_settlement WHERE token = {first_token} ORDER BY order_id")
    assert by_the_first == [(1,), (2,)], "what was paid before the pause is not paid again, and nothing after it"


def test_without_protection_orders_are_settled_twice(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    assert told.not_so == {"one settlement per order and date"}
    assert place.rows(SETTLED) == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]

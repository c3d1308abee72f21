"""A settlement is paused for longer than its ttl; another node settles; the first wakes up."""

from tests.stories.told import AS_PROMISED, WENT_WRONG, Place, only_on_postgresql

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
    paid = dict(place.rows("SELECT order_id, token FROM story_settlement"))
    assert (paid[1], paid[6]) == (first_token, last_token), "what was paid before the pause is not paid again"


@only_on_postgresql
def test_without_protection_orders_are_settled_twice(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    assert told.not_so == {"one settlement per order and date"}
    assert place.rows(SETTLED)[2:] == [(3, 2), (4, 2), (5, 2), (6, 2)]

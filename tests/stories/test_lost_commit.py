"""The reply to COMMIT is lost, and the run is tried again."""

import json

from tests.stories.told import AS_PROMISED, WENT_WRONG, Place, only_on_postgresql

STORY = "lost_commit"
CHARGES = "SELECT receipt, attempt FROM story_charge ORDER BY n"
OUTCOMES = "SELECT outcome FROM story_attempt ORDER BY number"


def test_the_second_attempt_finds_the_charge_of_the_first_and_returns_its_receipt(place: Place) -> None:
    told = place.tell(STORY)
    assert told.status == AS_PROMISED, told.output
    [(receipt, attempt)] = place.rows(CHARGES)
    assert attempt == 1
    assert place.rows(OUTCOMES) == [("failed",), ("succeeded",)]
    [(state, result)] = place.rows("SELECT state, result FROM story_run")
    assert (state, json.loads(result)) == ("succeeded", receipt)


@only_on_postgresql
def test_a_run_whose_end_is_committed_with_its_effect_is_not_tried_again(place: Place) -> None:
    told = place.tell(STORY, "--how", "final")
    assert told.status == AS_PROMISED, told.output
    [(_, attempt)] = place.rows(CHARGES)
    assert attempt == 1
    assert place.rows(OUTCOMES) == [("succeeded",)]
    assert place.rows("SELECT state FROM story_run") == [("succeeded",)]


@only_on_postgresql
def test_without_protection_the_customer_is_charged_twice(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    [(first, one), (second, two)] = place.rows(CHARGES)
    assert (one, two) == (1, 2)
    assert first != second

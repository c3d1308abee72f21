"""The first leader cannot reach the lock store, but the database; the second is elected."""

from tests.stories.told import AS_PROMISED, WENT_WRONG, Place, only_on_postgresql

STORY = "split_network"
WRITTEN = "SELECT leader, plan FROM story_written ORDER BY n"
BEFORE = [("node-1", "the first plan"), ("node-2", "the second plan")]


def test_the_first_leader_is_refused_by_its_token_though_it_believes_to_lead(place: Place) -> None:
    told = place.tell(STORY)
    assert told.status == AS_PROMISED, told.output
    assert "believes that it leads" in told.output, "or its own opinion has kept it from writing, and not the fence"
    assert told.output.count("and is refused: ") == 2
    assert place.rows(WRITTEN) == BEFORE
    [(_, first), (_, second)] = place.rows("SELECT leader, token FROM story_written ORDER BY n")
    assert first < second
    assert place.rows("SELECT token FROM story_fence WHERE token > 0") == [(second,)]


@only_on_postgresql
def test_without_protection_an_old_plan_replaces_the_newer_one(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    stale = [("node-1", "the first plan, a little later"), ("node-1", "the first plan, still later")]
    assert place.rows(WRITTEN) == BEFORE + stale
    assert place.rows("SELECT leader, plan FROM story_plan") == stale[-1:]

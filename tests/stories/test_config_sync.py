"""Two instances copy a configuration at once."""

from tests.stories.told import AS_PROMISED, WENT_WRONG, Place, only_on_postgresql

STORY = "config_sync"
TARGET = "SELECT name, version FROM story_setting ORDER BY name"
NAMES = ("currency", "limit", "rate", "region")
ATTEMPTS = "SELECT outcome, token FROM story_attempt ORDER BY number"


def test_the_target_is_never_a_mixture(place: Place) -> None:
    told = place.tell(STORY)
    assert told.status == AS_PROMISED, told.output
    assert place.rows(TARGET) == [(name, 2) for name in NAMES]
    assert "whoever looked saw: v0, v2\n" in told.output
    [(first, _), *_, (last, token)] = place.rows(ATTEMPTS, elsewhere=True)
    assert (first, last) == ("lost", "succeeded")
    assert place.rows("SELECT token FROM story_fence WHERE token > 0") == [(token,)]


@only_on_postgresql
def test_without_protection_it_ends_as_half_of_each(place: Place) -> None:
    told = place.tell(STORY, "--unprotected")
    assert told.status == WENT_WRONG, told.output
    assert place.rows(TARGET) == list(zip(NAMES, (2, 2, 1, 1), strict=True))

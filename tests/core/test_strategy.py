import re

import pytest

from fencepost.core.policy import Effects, Overlap, Policy
from fencepost.core.strategy import strategy, takes_no_lock


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            {"effects": "idempotent"},
            r"^no lock, idempotency only; each effect lands once by a key .* without a key may",
        ),
        ({"effects": "idempotent", "overlap": "queue"}, r"^one at a time; each effect lands once by a key"),
        ({"effects": "idempotent", "exclusive": "a:{b}"}, r"^one at a time for each 'a:\{b\}'; each effect"),
        ({"effects": "fenced"}, r"^one at a time; all its writes go through run\.transaction\(\)"),
        ({}, r"^one at a time; a run that may have lost its lease is stopped"),
        ({"overlap": "allow"}, r"^no lock: runs may overlap; if two runs do the same work, it lands twice"),
        (
            {"overlap": "allow", "exclusive": "x"},
            r"^one at a time for each 'x'; a run that may have lost its lease is stopped",
        ),
    ],
)
def test_a_policy_is_told_in_a_sentence(words: dict[str, str], says: str) -> None:
    assert re.search(says, strategy(Policy.of("scheduled", **words)))


def test_every_policy_has_its_sentence_and_no_two_strategies_the_same() -> None:
    told = {strategy(Policy.of(effects=effects, overlap=overlap)) for effects in Effects for overlap in Overlap}
    assert len(told) == 6


def test_no_lock_is_taken_only_where_overlap_is_allowed_and_nothing_excludes() -> None:
    assert takes_no_lock(Policy.of("manual"))
    assert not takes_no_lock(Policy.of("manual", exclusive="x"))
    assert not takes_no_lock(Policy.of("scheduled"))

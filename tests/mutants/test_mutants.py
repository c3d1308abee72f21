"""Every bug can still be planted, leaves nothing behind, and has something that is to catch it; a few are caught here.

All of them: ``make mutants``.
"""

from __future__ import annotations

import pytest

from fencepost.core import fencing, overlap
from fencepost.core.fencing import FencingToken, Mark
from fencepost.core.policy import Overlap
from fencepost.ledger import reaping
from tests.mutants.catalogue import MUTANTS
from tests.mutants.catching import by_simulation, by_tests, collected
from tests.mutants.planting import Code, PlantingError, Text

RULE = "fencepost.core.fencing:refusal"
QUICK = (
    "attempts not counted",
    "claim ahead of time",
    "no back-off",
    "once is always",
    "tick key without its schedule",
)


@pytest.mark.parametrize("name", MUTANTS)
def test_it_can_be_planted(name: str) -> None:
    with MUTANTS[name].planted():
        pass


def test_what_is_to_catch_them_is_there() -> None:
    trouble = collected(sorted({test for mutant in MUTANTS.values() for test in mutant.tests}))
    assert trouble is None, trouble


def test_there_are_enough_of_both_kinds() -> None:
    assert len([mutant for mutant in MUTANTS.values() if mutant.tests]) >= 40
    assert len([mutant for mutant in MUTANTS.values() if not mutant.tests]) >= 20


def test_a_planted_bug_is_there_and_then_gone() -> None:
    old = FencingToken("stock", 6, "old")
    is_refused = fencing.refusal(Mark(7, "new"), old, now_us=None) is not None
    with MUTANTS["older token let in"].planted():
        assert fencing.refusal(Mark(7, "new"), old, now_us=None) is None
    assert is_refused
    assert fencing.refusal(Mark(7, "new"), old, now_us=None) is not None


def test_it_reaches_those_who_imported_the_function_before() -> None:
    wrong = Code("fencepost.core.overlap:decide", "if not key_is_taken:", "if True:")
    decide = overlap.decide
    with wrong.planted():
        assert decide(Overlap.FORBID, is_tick=True, attempts=0, key_is_taken=True) is overlap.START
    assert decide(Overlap.FORBID, is_tick=True, attempts=0, key_is_taken=True) is overlap.SKIP


@pytest.mark.parametrize(
    "nothing",
    [
        Code(RULE, "this is not in it", "nor is this"),
        Code(RULE, "mark", "mark_"),  # several times
        Code(RULE, "offered.token < mark.token", "(offered.token < mark.token)"),  # means the same
        Text("fencepost.ledger.reaping:_FIND", "AND r.nodes = %s", ""),
        Text("fencepost.ledger.reaping:_FIND", "AND r.node = %s", "AND r.node = %s"),
    ],
)
def test_a_bug_that_is_none_is_refused(nothing: Code | Text) -> None:
    with pytest.raises(PlantingError), nothing.planted():
        pass


def test_a_function_that_is_gone_is_told() -> None:
    with pytest.raises(AttributeError), Code("fencepost.core.fencing:refuse", "a", "b").planted():
        pass


def test_a_text_is_put_back() -> None:
    before = reaping._FIND
    with MUTANTS["all nodes' runs reaped"].planted():
        assert "r.node = %s" not in reaping._FIND
    assert before == reaping._FIND


@pytest.mark.parametrize("name", QUICK)
def test_simulation_catches_it(name: str) -> None:
    by, after = by_simulation(MUTANTS[name], seeds=30)
    assert by is not None, f"not within {after}"


def test_a_test_catches_it() -> None:
    by, _ = by_tests(MUTANTS["equal token of another grant"])
    assert by == "core/test_fencing.py::test_the_table_of_the_module_holds"


def test_nobody_is_said_to_catch_what_nobody_catches() -> None:
    harmless = MUTANTS["equal token of another grant"]
    by, after = by_simulation(harmless, seeds=1)
    assert (by, after) == (None, "1 seeds")

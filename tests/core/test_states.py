import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.states import (
    TERMINAL,
    TRANSITIONS,
    AttemptOutcome,
    Move,
    RunState,
    diagram,
    is_terminal,
    next_state,
    outcome_of,
    states_before,
)
from fencepost.errors import IllegalMove

STATES = [None, *RunState]


def reachable_from(start: RunState | None) -> set[RunState]:
    seen: set[RunState] = set()
    frontier: list[RunState | None] = [start]
    while frontier:
        state = frontier.pop()
        found = {target for (before, _), targets in TRANSITIONS.items() if before == state for target in targets}
        frontier.extend(found - seen)
        seen |= found
    return seen


def test_every_state_is_reachable() -> None:
    assert reachable_from(None) == set(RunState)


def test_nothing_leaves_a_terminal_state() -> None:
    assert {state for state, _ in TRANSITIONS} & TERMINAL == set()


def test_every_state_that_is_not_terminal_can_still_end() -> None:
    for state in set(RunState) - TERMINAL:
        assert reachable_from(state) >= {RunState.SUCCEEDED, RunState.CANCELLED}


def test_every_move_is_in_the_table() -> None:
    assert {move for _, move in TRANSITIONS} == set(Move)


def test_only_a_claim_leads_to_running() -> None:
    assert [move for (_, move), targets in TRANSITIONS.items() if RunState.RUNNING in targets] == [Move.CLAIM]


def test_every_way_out_of_running_but_handing_back_says_how_the_attempt_ended() -> None:
    silent = {move for state, move in TRANSITIONS if state is RunState.RUNNING and outcome_of(move) is None}
    assert silent == {Move.HAND_BACK}


def test_only_success_is_a_successful_attempt() -> None:
    good = [move for move in Move if outcome_of(move) is AttemptOutcome.SUCCEEDED]
    assert good == [Move.SUCCEED]


@given(st.sampled_from(STATES), st.sampled_from(Move), st.none() | st.sampled_from(RunState))
def test_next_state_allows_what_the_table_has_and_nothing_else(
    state: RunState | None, move: Move, to: RunState | None
) -> None:
    targets = TRANSITIONS.get((state, move), frozenset())
    if (to in targets) if to else bool(targets):
        assert next_state(state, move, to) in ({to} if to else targets)
    else:
        with pytest.raises(IllegalMove):
            next_state(state, move, to)


def test_a_retry_is_queued_unless_told_to_wait() -> None:
    assert next_state(RunState.RUNNING, Move.RETRY) is RunState.QUEUED
    assert next_state(RunState.RUNNING, Move.RETRY, RunState.WAITING) is RunState.WAITING


def test_an_illegal_move_names_state_and_verb() -> None:
    with pytest.raises(IllegalMove, match=r"'succeeded'.*'claim'"):
        next_state(RunState.SUCCEEDED, Move.CLAIM)


def test_compare_and_set_asks_for_the_states_of_the_table() -> None:
    assert states_before(Move.CANCEL) == {RunState.WAITING, RunState.QUEUED, RunState.RUNNING}
    assert states_before(Move.PLAN) == frozenset()


def test_terminal_states_are_the_five_ends() -> None:
    ends = {"succeeded", "dead", "cancelled", "skipped", "misfired"}
    assert {state for state in RunState if is_terminal(state)} == ends


def test_the_picture_shows_every_way() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for (state, move), targets in TRANSITIONS.items():
        for target in targets:
            start = f"    {state or '[*]'} --> {target}: "
            assert any(line.startswith(start) and move.replace("_", " ") in line for line in lines)
    assert "    dead --> [*]" in lines

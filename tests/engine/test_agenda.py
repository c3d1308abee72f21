"""The agenda: when to claim and when to look, by readings of a clock that is set by hand."""

from __future__ import annotations

import pytest

from fencepost.engine.agenda import Agenda

POLL_S = 5.0


@pytest.fixture
def agenda() -> Agenda:
    """One that has looked at 100.0, and seen nothing."""
    made = Agenda(POLL_S)
    assert made.is_due(100.0)
    assert made.wants_look(100.0, is_claiming=False)
    look(made, 100.0)
    return made


def look(agenda: Agenda, now: float, *, next_at: float | None = None, is_due: bool = False) -> None:
    was_hinted = agenda.begin_look(now)
    agenda.looked(now, next_at=next_at, is_due=is_due, was_hinted=was_hinted)


def test_idle_node_looks_once_per_poll(agenda: Agenda) -> None:
    assert agenda.wake_at == 105.0
    assert not agenda.is_due(104.9)
    assert not agenda.wants_look(104.9, is_claiming=False)
    assert agenda.wants_look(105.0, is_claiming=False)


def test_busy_node_looks_once_per_poll_too(agenda: Agenda) -> None:
    agenda.hint()
    assert not agenda.wants_look(104.9, is_claiming=True)
    assert agenda.wants_look(105.0, is_claiming=True)


def test_hint_brings_a_look_forward_once(agenda: Agenda) -> None:
    agenda.hint()
    assert agenda.wants_look(100.1, is_claiming=False)
    look(agenda, 100.1)
    assert not agenda.wants_look(100.2, is_claiming=False)


def test_look_that_failed_is_repeated(agenda: Agenda) -> None:
    agenda.hint()
    agenda.begin_look(101.0)
    assert agenda.wants_look(101.1, is_claiming=False)


def test_due_time_is_said_once_and_followed_by_a_look(agenda: Agenda) -> None:
    look(agenda, 101.0, next_at=102.5)
    assert agenda.wake_at == 102.5
    assert agenda.is_due(102.5)
    assert not agenda.is_due(102.6)
    assert agenda.wants_look(102.6, is_claiming=True)


def test_sooner_of_two_due_times_comes_first(agenda: Agenda) -> None:
    look(agenda, 101.0, next_at=104.0)
    agenda.due_at(103.0)
    agenda.due_at(103.5)
    assert agenda.wake_at == 103.0


def test_what_is_due_and_not_for_us_is_tried_ever_less_often(agenda: Agenda) -> None:
    now, pauses = 101.0, []
    for _ in range(12):
        look(agenda, now, is_due=True)
        pauses.append(round(agenda.wake_at - now, 6))
        now = max(agenda.wake_at, now)
        assert agenda.is_due(now)
    assert pauses[:5] == [0.0, 0.05, 0.1, 0.2, 0.4]
    assert pauses[-1] == POLL_S


def test_hint_begins_that_anew(agenda: Agenda) -> None:
    for _ in range(5):
        look(agenda, 101.0, is_due=True)
    agenda.hint()
    look(agenda, 102.0, is_due=True)
    assert agenda.is_due(102.0)


def test_trying_again_puts_off_no_due_time(agenda: Agenda) -> None:
    for _ in range(12):
        look(agenda, 101.0, is_due=True, next_at=102.0)
    assert agenda.wake_at == 102.0

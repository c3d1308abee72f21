"""The lease machine, alone: no store, no thread, a clock set by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.lease import LeaseMachine, Phase, Renew, StepDown, WakeAt
from fencepost.core.timings import Timings

TIMINGS = Timings.of(30)


def held(sent_at: float = 0.0) -> LeaseMachine:
    machine = LeaseMachine(TIMINGS)
    machine.granted(sent_at=sent_at, now=sent_at + 0.1)
    return machine


def test_trust_counts_from_before_the_request_was_sent() -> None:
    machine = LeaseMachine(TIMINGS)
    machine.granted(sent_at=100.0, now=102.5)  # the reply took long
    assert machine.trusted_until == 100.0 + 30 - 3


def test_renewal_is_asked_for_once_while_it_is_under_way() -> None:
    machine = held()
    assert machine.tick(9.9) == WakeAt(10.0)
    assert machine.tick(10.0) == Renew()
    assert machine.tick(10.1) == WakeAt(27.0)


def test_renewal_extends_trust_from_when_it_was_sent() -> None:
    machine = held()
    machine.tick(10.0)
    machine.renewed(sent_at=10.0, now=12.0)
    assert machine.trusted_until == 37.0
    assert machine.tick(12.0) == WakeAt(20.0)


def test_unanswered_renewal_is_repeated_and_changes_no_trust() -> None:
    machine = held()
    machine.tick(10.0)
    assert machine.unknown(13.0) == WakeAt(15.0)
    assert machine.trusted_until == 27.0
    assert machine.tick(15.0) == Renew()


def test_trust_runs_out_although_a_renewal_hangs() -> None:
    machine = held()
    machine.tick(10.0)
    assert machine.expire(26.9) == WakeAt(27.0)
    assert isinstance(machine.expire(27.0), StepDown)
    assert machine.phase is Phase.LOST


def test_late_answer_does_not_revive() -> None:
    machine = held()
    machine.tick(10.0)
    assert isinstance(machine.renewed(sent_at=10.0, now=27.0), StepDown)
    machine.renewed(sent_at=27.5, now=27.6)
    assert machine.phase is Phase.LOST
    assert not machine.is_trusted_at(27.7)


def test_refusal_steps_down_at_once_and_once() -> None:
    machine = held()
    assert machine.refused("taken over") == StepDown("taken over")
    assert machine.refused("taken over") == WakeAt(float("inf"))
    assert machine.reason == "taken over"


def test_work_is_told_to_stop_early_enough() -> None:
    assert held().stop_work_at == 27.0 - 5 - 1


def test_granting_twice_is_a_mistake_of_the_caller() -> None:
    machine = held()
    with pytest.raises(RuntimeError, match="granted in phase held"):
        machine.granted(sent_at=1.0, now=1.0)


_steps = st.lists(
    st.tuples(st.sampled_from(["tick", "expire", "renewed", "unknown", "refused"]), st.floats(0, 15), st.floats(0, 15)),
    max_size=40,
)


@given(_steps)
def test_whatever_happens_trust_never_outlives_the_last_answered_request(
    steps: list[tuple[str, float, float]],
) -> None:
    machine, now, last_sent_at, was_untrusted = held(), 0.1, 0.0, False
    for step, passed_s, took_s in steps:
        now += passed_s
        match step:
            case "tick":
                machine.tick(now)
            case "expire":
                machine.expire(now)
            case "unknown":
                machine.unknown(now)
            case "refused":
                machine.refused("no")
            case "renewed":
                sent_at = max(now - took_s, last_sent_at)
                was_trusted = machine.is_trusted_at(now)
                machine.renewed(sent_at=sent_at, now=now)
                last_sent_at = sent_at if was_trusted else last_sent_at
        assert machine.trusted_until <= last_sent_at + TIMINGS.trust_s
        assert not (was_untrusted and machine.is_trusted_at(now)), "trust came back"
        was_untrusted = was_untrusted or not machine.is_trusted_at(now)


def test_an_answer_that_took_longer_than_the_interval_begins_no_renewal_that_nobody_sends() -> None:
    machine = held()
    assert machine.tick(10.0) == Renew()
    assert machine.renewed(sent_at=10.0, now=21.0) == WakeAt(20.0)  # in the past: look again at once
    assert machine.tick(21.0) == Renew()

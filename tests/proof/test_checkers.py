"""Every checker can fail: evidence broken by hand, in one place, is seen by the checker whose promise that is.

And it does not fail by itself: a thousand clusters that kept every promise pass them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fencepost.core.states import TERMINAL, TRANSITIONS
from fencepost.proof.checkers import CHECKERS, check_all, one_trace, run_graph
from fencepost.proof.evidence import FINAL, Evidence, Timing
from fencepost.proof.history import Entry, EntryKind, History
from tests.proof import broken_life
from tests.proof.broken_world import CASES
from tests.proof.clean_world import clean


@pytest.mark.parametrize("thousand", range(4))
def test_a_thousand_clusters_that_kept_every_promise_pass(thousand: int) -> None:
    for seed in range(thousand * 250, thousand * 250 + 250):
        assert check_all(clean(seed)) == [], seed


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.checker}: {case.name}")
def test_a_broken_promise_is_seen_by_its_checker(case: Any) -> None:
    found = [violation for violation in check_all(case.make()) if violation.checker == case.checker]
    assert found
    assert any(case.says in str(violation) for violation in found), "\n".join(map(str, found))


def test_every_checker_was_seen_to_fail_in_three_ways() -> None:
    ways = {name: [case for case in CASES if case.checker == name] for name, _ in CHECKERS}
    assert {name: len(cases) for name, cases in ways.items() if len(cases) < 3} == {}


# -- what they do not object to


def test_what_was_missed_while_nobody_could_run_it_is_made_up_for_once() -> None:
    one, late = (
        broken_life.tick(9, "succeeded", from_us=broken_life.HOUR_US, ticks=9),
        broken_life.tick(22, "succeeded"),
    )
    assert only("missed ticks", broken_life.missed(one, late)) == []
    assert only("missed ticks", broken_life.missed(broken_life.tick(9, "misfired"), late, misfire="skip")) == []


def test_what_waits_for_a_deploy_or_was_warned_of_is_no_silence() -> None:
    assert only("nobody can run it", broken_life.stranded((599.0, False), (86_400.0, True))) == []


def test_losses_and_failures_that_happened_may_be_counted() -> None:
    number = broken_life.BASE.runs[0].id
    evidence = broken_life.judged({"crashes": 1, "failures": 2}, hits={number: 1}, failures={number: 2})
    assert only("fair ends", evidence) == []


def only(name: str, evidence: Evidence) -> list[str]:
    return [violation.what for violation in check_all(evidence) if violation.checker == name]


def test_a_repetition_asked_for_by_a_person_is_no_second_run_of_a_tick() -> None:
    base = clean(4)
    run = next(run for run in base.runs if run.is_tick and run.state == "skipped")
    again = replace(run, id=9999, retry_of=run.id, origin_key=None)
    filled = replace(run, id=9998, origin_key="backfill:x")
    assert only("one run per tick", replace(base, runs=(*base.runs, again, filled))) == []


def test_a_store_that_forgot_may_begin_with_a_lower_token_where_tokens_are_not_durable() -> None:
    def call(at: float, token: int, grant: str) -> Iterator[Entry]:
        for then, kind in ((at, EntryKind.INVOKE), (at + 0.1, EntryKind.OK)):
            yield Entry(then, kind, "acquire", "a", call=token, name="x", token=token, grant=grant)

    fault = Entry(1.5, EntryKind.NOTE, "fault", "store", detail={"kind": "forget"})
    history = History([*call(1, 9, "a"), fault, *call(2, 5, "b"), *call(3, 6, "c")])
    forgetful = Evidence(history, Timing(1.0, 1.0, 0.0, 9.0), tokens_are_durable=False)
    assert only("rising grants", forgetful) == []
    assert len(only("rising grants", replace(forgetful, tokens_are_durable=True))) == 2


def test_writes_at_the_same_time_may_come_in_either_order() -> None:
    entries = [
        Entry(1.0, EntryKind.INVOKE, "write", "a", call=1, name="x", token=5, grant="a"),
        Entry(1.1, EntryKind.INVOKE, "write", "b", call=2, name="x", token=4, grant="b"),
        Entry(1.2, EntryKind.OK, "write", "a", call=1, name="x", token=5, grant="a"),
        Entry(1.3, EntryKind.OK, "write", "b", call=2, name="x", token=4, grant="b"),
    ]
    assert only("rising writes", Evidence(History(entries), Timing(1.0, 1.0, 0.0, 9.0))) == []


def test_what_is_due_in_the_last_moment_may_be_missing() -> None:
    base = clean(4)
    last = max(due.at_us for due in base.due)
    assert only("every due time", replace(base, runs=tuple(run for run in base.runs if run.due_us != last))) == []


def test_a_run_that_waits_for_a_person_is_not_late() -> None:
    base = clean(4)
    run = next(run for run in base.runs if run.job == "mail" and run.is_tick and run.attempts == 1)
    held = replace(run, state="waiting", waits_for="person")
    runs = tuple(held if each.id == run.id else each for each in base.runs)
    assert only("prompt start", replace(base, runs=runs)) == []
    assert only("every due time", replace(base, runs=runs)) == []


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert check_all(Evidence(History(), Timing(1.0, 1.0, 0.0, 9.0))) == []


# -- their own tables


def test_the_graph_of_the_checker_is_that_of_the_engine() -> None:
    ways: dict[str | None, set[str]] = {}
    for (state, _), targets in TRANSITIONS.items():
        ways.setdefault(state, set()).update(targets)
    assert ways == {state: set(targets) for state, targets in run_graph.WAYS.items()}
    assert FINAL == TERMINAL


def test_two_histories_part_where_the_first_entry_differs() -> None:
    first, second = clean(1).history, clean(1).history
    assert list(one_trace.same(first, second)) == []
    second.entries[7] = replace(second.entries[7], node="other")
    [found] = one_trace.same(first, second)
    assert "entry 7" in found.what
    [found] = one_trace.same(first, History(first.entries[:-1]))
    assert "entries" in found.what

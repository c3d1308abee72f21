"""Clean evidence with one field changed: whatever breaks a promise by that is seen, on every cluster it is tried on.

Changes that break nothing (the node of a call, the moment of a reading that nobody waited for) are not among these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from fencepost.proof.checkers import check_all
from fencepost.proof.evidence import AttemptSeen, Effect, Evidence, RunSeen, Transition
from fencepost.proof.history import Entry, EntryKind, History
from tests.proof.clean_world import QUIET_FROM, clean, us

Change = Callable[[Evidence, Random], Evidence | None]
CHANGES: list[Change] = []
SEEDS = 40
one_of = cache(clean)


def change(make: Change) -> Change:
    """Register a change; it returns None where the cluster has nothing of the kind."""
    CHANGES.append(make)
    return make


def swapped(items: Sequence[Any], old: Any, *new: Any) -> tuple[Any, ...]:
    at = next(number for number, each in enumerate(items) if each is old)
    return (*items[:at], *new, *items[at + 1 :])


def some(random: Random, items: Sequence[Any]) -> Any:
    return random.choice(items) if items else None


def run(evidence: Evidence, random: Random, **changes: Any) -> Evidence | None:
    """Change one of the ticks that ran and ended well."""
    found: RunSeen | None = some(random, [each for each in evidence.runs if each.is_tick and each.state == "succeeded"])
    return found and replace(evidence, runs=swapped(evidence.runs, found, replace(found, **changes)))


def pick(evidence: Evidence, random: Random, **wanted: Any) -> RunSeen | None:
    return some(random, [each for each in evidence.runs if all(getattr(each, k) == v for k, v in wanted.items())])


def attempt_of(evidence: Evidence, random: Random, *outcomes: str) -> AttemptSeen | None:
    return some(random, [each for each in evidence.attempts if not outcomes or each.outcome in outcomes])


def with_attempt(evidence: Evidence, found: AttemptSeen | None, **changes: Any) -> Evidence | None:
    return found and replace(evidence, attempts=swapped(evidence.attempts, found, replace(found, **changes)))


def with_entry(evidence: Evidence, found: Entry | None, *new: Entry) -> Evidence | None:
    return found and replace(evidence, history=History(swapped(evidence.history.entries, found, *new)))


def effect_of(evidence: Evidence, random: Random) -> Effect | None:
    return some(random, [each for each in evidence.effects if each.resource in ("out:tidy", "out:sums")])


def entry_of(evidence: Evidence, random: Random, what: str, kind: EntryKind) -> Entry | None:
    return some(random, [each for each in evidence.history.of(what) if each.kind is kind])


# -- runs


@change
def a_run_is_missing(evidence: Evidence, random: Random) -> Evidence | None:
    found = pick(evidence, random, schedule="tidy", is_tick=True)
    return found and replace(evidence, runs=swapped(evidence.runs, found))


@change
def a_run_is_there_twice(evidence: Evidence, random: Random) -> Evidence | None:
    found = pick(evidence, random, is_tick=True)
    return found and replace(evidence, runs=(*evidence.runs, replace(found, id=9999)))


@change
def a_state_is_another(evidence: Evidence, random: Random) -> Evidence | None:
    return run(evidence, random, state=random.choice(("queued", "waiting", "running", "dead", "cancelled", "skipped")))


@change
def a_run_is_for_another_time(evidence: Evidence, random: Random) -> Evidence | None:
    found = pick(evidence, random, is_tick=True, ticks=1)
    later = found and (found.due_us or 0) + random.choice((-1, 1, 1_000_000))
    return found and replace(
        evidence, runs=swapped(evidence.runs, found, replace(found, due_us=later, from_us=later, origin_key=None))
    )


@change
def a_stretch_begins_elsewhere(evidence: Evidence, random: Random) -> Evidence | None:
    found = some(random, [each for each in evidence.runs if each.ticks > 1])
    moved = found and replace(found, from_us=found.from_us + random.choice((-1_000_000, 1_000_000)))
    return found and replace(evidence, runs=swapped(evidence.runs, found, moved))


@change
def ticks_are_miscounted(evidence: Evidence, random: Random) -> Evidence | None:
    found = pick(evidence, random, is_tick=True)
    return found and replace(evidence, runs=swapped(evidence.runs, found, replace(found, ticks=found.ticks + 1)))


@change
def a_count_is_wrong(evidence: Evidence, random: Random) -> Evidence | None:
    found: RunSeen = random.choice(evidence.runs)
    name = random.choice(("attempts", "failures", "crashes"))
    wrong = replace(found, **{name: getattr(found, name) + 1})
    return replace(evidence, runs=swapped(evidence.runs, found, wrong))


@change
def a_tick_is_of_another_job(evidence: Evidence, random: Random) -> Evidence | None:
    return run(evidence, random, job="other")


@change
def a_key_is_used_by_another_run(evidence: Evidence, random: Random) -> Evidence | None:
    return run(evidence, random, request_key="order-1")


@change
def a_run_from_before_the_quiet_is_open(evidence: Evidence, random: Random) -> Evidence | None:
    early = [each for each in evidence.runs if each.is_tick and (each.due_us or 0) < us(QUIET_FROM)]
    found = random.choice(early)
    return replace(evidence, runs=swapped(evidence.runs, found, replace(found, state="queued")))


# -- attempts


@change
def an_attempt_is_missing(evidence: Evidence, random: Random) -> Evidence | None:
    return replace(evidence, attempts=swapped(evidence.attempts, random.choice(evidence.attempts)))


@change
def an_attempt_is_there_twice(evidence: Evidence, random: Random) -> Evidence | None:
    return replace(evidence, attempts=(*evidence.attempts, random.choice(evidence.attempts)))


@change
def an_outcome_is_another(evidence: Evidence, random: Random) -> Evidence | None:
    found = attempt_of(evidence, random)
    others = {"succeeded", "failed", "lost", "cancelled"} - {found.outcome if found else ""}
    return with_attempt(evidence, found, outcome=random.choice(sorted(others)))


@change
def a_token_is_another(evidence: Evidence, random: Random) -> Evidence | None:
    found = attempt_of(evidence, random)
    return with_attempt(evidence, found, token=(found.token if found else 0) + random.choice((-1, 1)))


@change
def a_number_is_another(evidence: Evidence, random: Random) -> Evidence | None:
    found = attempt_of(evidence, random)
    return with_attempt(evidence, found, number=(found.number if found else 0) + 1)


@change
def an_attempt_begins_before_it_is_due(evidence: Evidence, random: Random) -> Evidence | None:
    due = {each.id: each.due_us for each in evidence.runs if each.is_tick}
    found = some(random, [each for each in evidence.attempts if each.run_id in due])
    return with_attempt(evidence, found, started_us=(due[found.run_id] or 0) - 1)


@change
def an_attempt_never_ends(evidence: Evidence, random: Random) -> Evidence | None:
    return with_attempt(evidence, attempt_of(evidence, random), outcome=None, ended_us=None)


@change
def an_attempt_lasts_into_the_next_of_its_key(evidence: Evidence, random: Random) -> Evidence | None:
    keys = {each.id: each.exclusive_key for each in evidence.runs}
    mine = sorted((each for each in evidence.attempts if keys[each.run_id] == "job:tidy"), key=lambda each: each.token)
    at = random.randrange(len(mine) - 1)
    return with_attempt(evidence, mine[at], ended_us=(mine[at + 1].started_us or 0) + 1)


@change
def a_retry_does_not_pause(evidence: Evidence, random: Random) -> Evidence | None:
    by = {(each.run_id, each.number): each for each in evidence.attempts}
    found = [each for each in evidence.attempts if each.outcome == "failed" and (each.run_id, each.number + 1) in by]
    first = some(random, found)
    return first and with_attempt(evidence, by[first.run_id, first.number + 1], started_us=first.ended_us + 1000)


# -- transitions


@change
def a_transition_is_missing(evidence: Evidence, random: Random) -> Evidence | None:
    return replace(evidence, transitions=swapped(evidence.transitions, random.choice(evidence.transitions)))


@change
def a_transition_happens_twice(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice(evidence.transitions)
    return replace(evidence, transitions=swapped(evidence.transitions, found, found, found))


@change
def a_claim_has_another_token(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice([each for each in evidence.transitions if each.after == "running"])
    wrong = replace(found, token=(found.token or 0) + random.choice((-1, 1)))
    return replace(evidence, transitions=swapped(evidence.transitions, found, wrong))


@change
def a_run_leaves_its_end(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice([each for each in evidence.runs if each.has_ended])
    back = Transition(found.id, found.state, random.choice(("queued", "running", "dead")))
    return replace(evidence, transitions=(*evidence.transitions, back))


# -- effects


@change
def an_effect_is_missing(evidence: Evidence, random: Random) -> Evidence | None:
    found = effect_of(evidence, random)
    return found and replace(evidence, effects=swapped(evidence.effects, found))


@change
def an_effect_is_there_twice(evidence: Evidence, random: Random) -> Evidence | None:
    return replace(evidence, effects=(*evidence.effects, random.choice(evidence.effects)))


@change
def an_effect_has_another_key(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice(evidence.effects)
    return replace(evidence, effects=swapped(evidence.effects, found, replace(found, key="other")))


@change
def an_effect_has_another_token(evidence: Evidence, random: Random) -> Evidence | None:
    found = effect_of(evidence, random)
    wrong = found and replace(found, token=found.token + random.choice((-1, 1)))
    return found and replace(evidence, effects=swapped(evidence.effects, found, wrong))


@change
def an_effect_is_of_another_run(evidence: Evidence, random: Random) -> Evidence | None:
    found = effect_of(evidence, random)
    wrong = found and replace(found, run_id=(found.run_id or 0) + random.choice((-1, 1)))
    return found and replace(evidence, effects=swapped(evidence.effects, found, wrong))


@change
def two_effects_change_places(evidence: Evidence, random: Random) -> Evidence | None:
    mine = [each for each in evidence.effects if each.resource == "out:tidy"]
    first, second = sorted(random.sample(range(len(mine)), 2))
    order = list(evidence.effects)
    a, b = order.index(mine[first]), order.index(mine[second])
    order[a], order[b] = order[b], order[a]
    return replace(evidence, effects=tuple(order))


# -- what was due


@change
def the_oracle_knows_one_more(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice([each for each in evidence.due if each.at_us < us(QUIET_FROM)])
    return replace(evidence, due=(*evidence.due, replace(found, at_us=found.at_us + 500_000)))


@change
def the_oracle_knows_one_less(evidence: Evidence, random: Random) -> Evidence | None:
    return replace(evidence, due=swapped(evidence.due, random.choice(evidence.due[:-3])))


# -- calls


@change
def a_refused_ending_is_told_to_have_been_believed(evidence: Evidence, random: Random) -> Evidence | None:
    found = entry_of(evidence, random, "finish", EntryKind.OK)
    wrong = found and replace(found, detail={"outcome": "cancelled"})
    return with_entry(evidence, found, *([wrong] if wrong else []))


@change
def a_function_begins_under_another_token(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice(list(evidence.history.of("begin")))
    return with_entry(evidence, found, replace(found, token=(found.token or 0) + 1))


@change
def a_function_begins_without_a_claim(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice(list(evidence.history.of("begin")))
    return with_entry(evidence, found, replace(found, name="7777"))


@change
def a_function_begins_too_soon(evidence: Evidence, random: Random) -> Evidence | None:
    found = random.choice(list(evidence.history.of("begin")))
    return with_entry(evidence, found, replace(found, at=found.at - 0.5))


@change
def an_accepted_write_is_told_to_have_been_refused(evidence: Evidence, random: Random) -> Evidence | None:
    found = entry_of(evidence, random, "write", EntryKind.OK)
    return with_entry(evidence, found, *([replace(found, kind=EntryKind.REFUSED)] if found else []))


@change
def a_write_is_of_something_else(evidence: Evidence, random: Random) -> Evidence | None:
    found = entry_of(evidence, random, "write", EntryKind.OK)
    return with_entry(evidence, found, *([replace(found, detail={"key": "never seen"})] if found else []))


@change
def an_answer_names_another_run(evidence: Evidence, random: Random) -> Evidence | None:
    found = entry_of(evidence, random, "request", EntryKind.OK)
    return with_entry(evidence, found, *([replace(found, detail={**found.detail, "run": 8888})] if found else []))


@change
def another_payload_is_accepted(evidence: Evidence, random: Random) -> Evidence | None:
    found = entry_of(evidence, random, "request", EntryKind.REFUSED)
    return with_entry(evidence, found, *([replace(found, kind=EntryKind.OK)] if found else []))


@change
def a_lock_is_given_with_a_token_from_before(evidence: Evidence, random: Random) -> Evidence | None:
    granted = [each for each in evidence.history.of("acquire") if each.kind is EntryKind.OK]
    by_name = {each.name: [other for other in granted if other.name == each.name] for each in granted}
    later = [each for mine in by_name.values() for each in mine[1:] if each.grant != mine[0].grant]
    found = some(random, later)
    return with_entry(evidence, found, *([replace(found, token=1)] if found else []))


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__.replace("_", " "))
def test_a_single_change_that_breaks_a_promise_is_seen(make: Change) -> None:
    tried = 0
    for seed in range(SEEDS):
        evidence = make(one_of(seed), Random(seed))
        if evidence is not None:
            tried += 1
            assert check_all(evidence), seed
    assert tried >= 10

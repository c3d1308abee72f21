"""Evidence broken by hand: each case breaks one promise of a clean cluster, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fencepost.proof.evidence import AttemptSeen, Effect, Evidence, RunSeen, Transition
from fencepost.proof.history import Entry, EntryKind, History
from tests.proof.clean_world import ENDED_AT, QUIET_FROM, RULES, clean, us

# Of this seed there is one of everything: a skipped tick, a stretch, a retry, a loss.
BASE = clean(8)
Make = Callable[[], Evidence]


@dataclass(frozen=True)
class Case:
    checker: str
    says: str
    name: str
    make: Make


CASES: list[Case] = []


def breaks(checker: str, says: str) -> Callable[[Make], Make]:
    """Register evidence to which `checker` must object, with these words."""

    def keep(make: Make) -> Make:
        CASES.append(Case(checker, says, make.__name__.replace("_", " "), make))
        return make

    return keep


# -- how to break


def with_run(run: RunSeen, **changes: Any) -> Evidence:
    return replace(BASE, runs=tuple(replace(each, **changes) if each.id == run.id else each for each in BASE.runs))


def with_attempt(attempt: AttemptSeen, **changes: Any) -> Evidence:
    changed = tuple(replace(each, **changes) if each is attempt else each for each in BASE.attempts)
    return replace(BASE, attempts=changed)


def with_effects(*effects: Effect, without: Effect | None = None) -> Evidence:
    return replace(BASE, effects=(*(each for each in BASE.effects if each is not without), *effects))


def with_entries(*entries: Entry, base: Evidence = BASE, without: Callable[[Entry], bool] | None = None) -> Evidence:
    kept = [each for each in base.history.entries if without is None or not without(each)]
    return replace(base, history=History(sorted([*kept, *entries], key=lambda entry: entry.at)))


def with_notes(**notes: Any) -> Evidence:
    return replace(BASE, notes={**BASE.notes, **notes})


def call(
    what: str, sent: float, ended: float, kind: EntryKind = EntryKind.OK, *, node: str = "node-9", **more: Any
) -> list[Entry]:
    number = 9_000_000 + round(sent * 1000)
    return [
        Entry(sent, EntryKind.INVOKE, what, node, call=number, **more),
        Entry(ended, kind, what, node, call=number, **more),
    ]


def a_run(job: str = "tidy", state: str = "succeeded", **more: Any) -> RunSeen:
    """A tick's run in the clean evidence."""
    wanted = {"job": job, "state": state, "ticks": 1, **more}
    return next(
        run for run in BASE.runs if run.is_tick and all(getattr(run, name) == value for name, value in wanted.items())
    )


def tries(run: RunSeen) -> list[AttemptSeen]:
    return [attempt for attempt in BASE.attempts if attempt.run_id == run.id]


def run_tried_twice(first_outcome: str = "failed") -> tuple[RunSeen, AttemptSeen, AttemptSeen]:
    for run in BASE.runs:
        found = tries(run)
        if len(found) == 2 and found[0].outcome == first_outcome and run.state == "succeeded" and run.exclusive_key:
            return run, found[0], found[1]
    raise LookupError(first_outcome)


# -- 1


@breaks("rising writes", "a stale writer was not refused")
def a_stale_writer_commits_last() -> Evidence:
    first = next(effect for effect in BASE.effects if effect.resource == "out:tidy")
    return with_effects(replace(first, key="late"))


@breaks("rising writes", "two grants under the one token")
def one_token_has_two_grants() -> Evidence:
    *_, last = [effect for effect in BASE.effects if effect.resource == "out:tidy"]
    return with_effects(replace(last, key="other", grant="somebody else"))


@breaks("rising writes", "accepted an older token")
def an_older_token_is_accepted_by_a_call() -> Evidence:
    newer = call("write", 70.0, 70.1, name="file", token=9, grant="b", detail={"key": "k"})
    older = call("write", 71.0, 71.1, name="file", token=8, grant="a", detail={"key": "l"})
    return with_entries(*newer, *older)


@breaks("rising writes", "two grants under the one token")
def one_token_has_two_grants_in_calls() -> Evidence:
    one = call("write", 70.0, 70.1, name="file", token=9, grant="a", detail={"key": "k"})
    other = call("write", 70.0, 70.2, name="file", token=9, grant="b", detail={"key": "l"}, node="node-8")
    other = [replace(entry, call=entry.call + 1) for entry in other]
    return with_entries(*one, *other)


# -- 2


@breaks("one run per tick", "has two runs")
def a_tick_is_planned_twice() -> Evidence:
    twin = replace(a_run(state="skipped"), id=9999)
    return replace(BASE, runs=(*BASE.runs, twin))


@breaks("one run per tick", "has two runs")
def a_stretch_covers_a_tick_that_has_its_own_run() -> Evidence:
    *_, run = [run for run in BASE.runs if run.job == "mail" and run.is_tick]
    return with_run(run, from_us=(run.due_us or 0) - 4_000_000, ticks=2)


@breaks("one run per tick", "succeeded twice")
def a_run_succeeds_twice() -> Evidence:
    _, first, _ = run_tried_twice()
    return with_attempt(first, outcome="succeeded")


@breaks("one run per tick", "under way at once")
def an_attempt_begins_before_the_last_has_ended() -> Evidence:
    _, first, second = run_tried_twice("lost")
    return with_attempt(first, ended_us=(second.started_us or 0) + 1)


@breaks("one run per tick", "not above its last one")
def a_second_attempt_has_the_token_of_the_first() -> Evidence:
    _, first, second = run_tried_twice()
    return with_attempt(second, token=first.token)


# -- 3


def grants(*tokens_and_grants: tuple[int, str]) -> Evidence:
    entries: list[Entry] = []
    for number, (token, grant) in enumerate(tokens_and_grants):
        entries += call("acquire", 70.0 + number, 70.1 + number, name="own", token=token, grant=grant)
    return with_entries(*entries)


@breaks("rising grants", "went down")
def a_later_grant_has_a_lower_token() -> Evidence:
    return grants((5, "a"), (4, "b"))


@breaks("rising grants", "the one token")
def two_grants_have_one_token() -> Evidence:
    return grants((5, "a"), (5, "b"))


@breaks("rising grants", "two tokens")
def one_grant_has_two_tokens() -> Evidence:
    return grants((5, "a"), (6, "a"))


@breaks("rising grants", "went down")
def a_token_goes_down_over_a_restart_though_it_is_durable() -> Evidence:
    fault = Entry(70.5, EntryKind.NOTE, "fault", "store", detail={"kind": "restart"})
    return with_entries(fault, base=grants((5, "a"), (4, "b")))


# -- 4


@breaks("every due time", "is not on record")
def a_due_time_is_forgotten() -> Evidence:
    run = a_run("mail")
    return replace(BASE, runs=tuple(each for each in BASE.runs if each.id != run.id))


@breaks("every due time", "nothing was due")
def something_ran_that_was_not_due() -> Evidence:
    run = a_run("mail")
    return with_run(run, due_us=(run.due_us or 0) + 1_000_000, from_us=(run.due_us or 0) + 1_000_000)


@breaks("every due time", "says it stands for")
def a_stretch_miscounts() -> Evidence:
    stretch = next(run for run in BASE.runs if run.ticks > 1)
    return with_run(stretch, ticks=stretch.ticks + 1)


@breaks("every due time", "before it was due")
def a_run_begins_early() -> Evidence:
    run = a_run()
    first = tries(run)[0]
    return with_attempt(first, started_us=(run.due_us or 0) - 1)


@breaks("every due time", "has not ended")
def a_run_from_before_the_quiet_is_still_queued() -> Evidence:
    run = next(run for run in BASE.runs if run.is_tick and (run.due_us or 0) < us(QUIET_FROM) and run.has_ended)
    return with_run(run, state="running")


@breaks("every due time", "on no record")
def a_function_begins_without_a_run() -> Evidence:
    return with_entries(Entry(50.0, EntryKind.NOTE, "begin", "node-1", name="7777", token=1))


# -- 5


def with_steps(*steps: Transition, run: RunSeen) -> Evidence:
    others = tuple(each for each in BASE.transitions if each.run_id != run.id)
    return replace(BASE, transitions=(*others, *steps))


@breaks("run graph", "left the terminal state")
def a_run_comes_back_from_the_dead() -> Evidence:
    run = a_run()
    return replace(BASE, transitions=(*BASE.transitions, Transition(run.id, "succeeded", "queued")))


@breaks("run graph", "no such way")
def a_run_starts_from_waiting() -> Evidence:
    run = a_run("mail")
    steps = (Transition(run.id, None, "waiting"), Transition(run.id, "waiting", "running", 1))
    return with_steps(*steps, Transition(run.id, "running", "succeeded"), run=run)


@breaks("run graph", "while it was running")
def a_run_is_claimed_twice() -> Evidence:
    run = a_run("mail")
    claims = [Transition(run.id, "queued", "running", token) for token in (1, 2)]
    steps = (Transition(run.id, None, "queued"), *claims, Transition(run.id, "running", "succeeded"))
    return with_steps(*steps, run=run)


@breaks("run graph", "had their key")
def two_runs_have_one_key() -> Evidence:
    steps = list(BASE.transitions)
    first, second = _two_tidy()
    claim = next(step for step in steps if step.run_id == second.id and step.after == "running")
    steps.remove(claim)
    at = next(number for number, step in enumerate(steps) if step.run_id == first.id and step.after == "running")
    begun = Transition(second.id, None, "queued")
    if begun in steps:
        steps.remove(begun)
    return replace(BASE, transitions=(*steps[: at + 1], begun, claim, *steps[at + 1 :]))


def _two_tidy() -> tuple[RunSeen, RunSeen]:
    found = [run for run in BASE.runs if run.job == "tidy" and run.state == "succeeded" and run.attempts == 1]
    return found[0], found[1]


@breaks("run graph", "was last seen to change")
def the_last_state_is_not_that_of_the_record() -> Evidence:
    return with_run(a_run(), state="dead")


@breaks("run graph", "no longer recorded")
def a_run_vanishes() -> Evidence:
    run = a_run(state="skipped")
    return replace(BASE, runs=tuple(each for each in BASE.runs if each.id != run.id))


# -- 6


def an_acknowledged_effect() -> Effect:
    acknowledged = {
        (entry.name, entry.detail["key"]) for entry in BASE.history.of("write") if entry.kind is EntryKind.OK
    }
    return next(each for each in BASE.effects if (each.resource, each.key) in acknowledged and each.run_id)


@breaks("acknowledged writes", "it is gone")
def an_acknowledged_write_is_lost() -> Evidence:
    return with_effects(without=an_acknowledged_effect())


@breaks("acknowledged writes", "refused")
def a_refused_write_is_there() -> Evidence:
    refused = next(entry for entry in BASE.history.of("write") if entry.kind is EntryKind.REFUSED)
    key, token = refused.detail["key"], refused.token or 0
    return with_effects(Effect(refused.name, key, token, refused.grant))


@breaks("acknowledged writes", "did not show")
def a_later_read_does_not_show_it() -> Evidence:
    return with_entries(*call("read", 95.0, 95.1, name="out:tidy", detail={"keys": ()}))


@breaks("acknowledged writes", "never written")
def something_is_there_that_nobody_wrote() -> Evidence:
    return with_effects(Effect("elsewhere", "odd", 1, "g"))


@breaks("acknowledged writes", "not recorded")
def an_acknowledged_request_is_lost() -> Evidence:
    return with_entries(*call("request", 70.0, 70.1, detail={"run": 8888}))


@breaks("acknowledged writes", "is on record as")
def an_acknowledged_ending_is_another() -> Evidence:
    attempt = next(each for each in BASE.attempts if each.outcome == "failed")
    return with_attempt(attempt, outcome="timed_out")


# -- 7


def bulk(**changes: Any) -> Evidence:
    [told] = BASE.notes["bulk"]
    return with_notes(bulk=[{**told, **changes}])


@breaks("bulk once", "lacks part of its input")
def a_row_is_left_out() -> Evidence:
    return with_effects(without=next(each for each in BASE.effects if each.resource == "bulk:load"))


@breaks("bulk once", "something twice")
def a_row_lands_twice() -> Evidence:
    return with_effects(next(each for each in BASE.effects if each.resource == "bulk:load"))


@breaks("bulk once", "not its input")
def a_row_lands_that_was_not_given() -> Evidence:
    return with_effects(Effect("bulk:load", "row-x", 7, "g"))


@breaks("bulk once", "recorded as skipped")
def a_skipped_row_lands() -> Evidence:
    landed = next(each.key for each in BASE.effects if each.resource == "bulk:load")
    return bulk(skipped=[*BASE.notes["bulk"][0]["skipped"], landed])


@breaks("bulk once", "to be left out")
def a_row_lands_that_was_to_be_left_out() -> Evidence:
    landed = next(each.key for each in BASE.effects if each.resource == "bulk:load")
    return bulk(filtered=[landed])


@breaks("bulk once", "twice as skipped")
def a_row_is_put_aside_twice() -> Evidence:
    return bulk(skipped=["row-5", "row-5"], filtered=[])


@breaks("bulk once", "nothing was wrong with")
def a_good_row_is_put_aside() -> Evidence:
    return bulk(skipped=["row-5"], skippable=[], filtered=[])


def counted(**changes: int) -> dict[str, int]:
    return {**BASE.notes["bulk"][0]["counts"], **changes}


@breaks("bulk once", "as written, and")
def a_row_is_written_and_not_counted() -> Evidence:
    return bulk(counts=counted(written=0, filtered=6, skipped=0), totals=[])


@breaks("bulk once", "as written, filtered and skipped")
def a_row_is_counted_as_read_alone() -> Evidence:
    return bulk(counts=counted(read=7), totals=[])


@breaks("bulk once", "as skipped, and")
def a_letter_is_not_counted() -> Evidence:
    return bulk(skipped=[*BASE.notes["bulk"][0]["skipped"], "row-9"])


@breaks("bulk once", "of 7 as read")
def a_finished_job_has_not_read_everything() -> Evidence:
    return bulk(input=[*BASE.notes["bulk"][0]["input"], "row-6"])


@breaks("bulk once", "reported")
def a_job_tells_of_one_partition_alone() -> Evidence:
    return bulk(totals=[counted(read=2, written=2)])


@breaks("bulk once", "for no reason of its own")
def a_good_job_is_given_up() -> Evidence:
    return bulk(given_up=[7])


@breaks("bulk once", "does not come to its end")
def a_job_waits_for_ever() -> Evidence:
    return bulk(left=[7])


# -- 8


@breaks("effects once", "took effect 2 times")
def an_effect_lands_twice() -> Evidence:
    *_, last = [each for each in BASE.effects if each.resource == "out:tidy"]
    return with_effects(last)


@breaks("effects once", "took no effect")
def a_committed_event_is_lost() -> Evidence:
    return with_notes(events={"inbox": {**BASE.notes["events"]["inbox"], "event-9": True}})


@breaks("effects once", "was not committed and took effect")
def an_event_that_was_rolled_back_takes_effect() -> Evidence:
    landed = next(each.key for each in BASE.effects if each.resource == "inbox")
    return with_notes(events={"inbox": {landed: False}})


@breaks("effects once", "left 0 effects")
def a_run_succeeds_without_its_effect() -> Evidence:
    return with_effects(without=next(each for each in BASE.effects if each.resource == "out:sums"))


@breaks("effects once", "was never tried")
def a_skipped_run_leaves_an_effect() -> Evidence:
    run = a_run("mail", "skipped")
    return with_effects(Effect(f"run:{run.id}", "odd", 1, "g", run.id))


# -- 9


@breaks("request keys", "has 2 runs")
def a_key_has_two_runs() -> Evidence:
    run = next(run for run in BASE.runs if run.request_key)
    return replace(BASE, runs=(*BASE.runs, replace(run, id=9999)))


@breaks("request keys", "different runs")
def the_second_to_ask_is_told_of_another_run() -> Evidence:
    run = next(run for run in BASE.runs if run.request_key)
    asked = {"name": run.request_key, "detail": {"run": 1, "payload": run.payload_hash}}
    return with_entries(*call("request", 70.0, 70.1, **asked))


@breaks("request keys", "two payloads")
def another_payload_is_accepted() -> Evidence:
    run = next(run for run in BASE.runs if run.request_key)
    asked = {"name": run.request_key, "detail": {"run": run.id, "payload": "another"}}
    return with_entries(*call("request", 70.0, 70.1, **asked))


@breaks("request keys", "no run for it")
def an_acknowledged_request_has_no_run() -> Evidence:
    return with_entries(*call("request", 70.0, 70.1, name="order-77", detail={"payload": "p"}))


@breaks("request keys", "all had the same payload")
def a_request_is_refused_for_nothing() -> Evidence:
    asked = {"name": "order-77", "detail": {"payload": "p", "why": "payload"}}
    return with_entries(*call("request", 70.0, 70.1, EntryKind.REFUSED, **asked))


# -- 10


@breaks("limits", "its pause is")
def a_retry_comes_too_soon() -> Evidence:
    _, first, second = run_tried_twice()
    return with_attempt(second, started_us=(first.ended_us or 0) + 10_000)


@breaks("limits", "retries")
def a_run_is_tried_too_often() -> Evidence:
    return replace(BASE, jobs={**RULES, **{job: replace(rules, retries=-1) for job, rules in RULES.items()}})


@breaks("limits", "was lost")
def a_run_is_lost_too_often() -> Evidence:
    return replace(BASE, jobs={job: replace(rules, crashes_allowed=0) for job, rules in RULES.items()})


@breaks("limits", "under way at once")
def two_runs_of_one_key_overlap() -> Evidence:
    first, second = _two_tidy()
    [attempt], [after] = tries(first), tries(second)
    return with_attempt(attempt, ended_us=(after.started_us or 0) + 5)


@breaks("limits", "do not agree")
def a_run_is_given_up_that_succeeded() -> Evidence:
    return with_run(a_run(), state="dead")


@breaks("limits", "on record are")
def an_attempt_has_no_row() -> Evidence:
    run = a_run()
    return replace(BASE, attempts=tuple(each for each in BASE.attempts if each.run_id != run.id))


@breaks("limits", "lost attempts")
def a_crash_is_not_counted() -> Evidence:
    run, *_ = run_tried_twice("lost")
    return with_run(run, crashes=0)


@breaks("limits", "after it had succeeded")
def a_run_is_tried_after_it_succeeded() -> Evidence:
    _, first, _ = run_tried_twice()
    return with_attempt(first, outcome="succeeded")


# -- 11


@breaks("prompt start", "began")
def a_tick_after_the_quiet_is_begun_late() -> Evidence:
    run = next(
        run
        for run in BASE.runs
        if run.job == "mail" and run.is_tick and us(72) < (run.due_us or 0) < us(80) and run.attempts == 1
    )
    late = with_attempt(tries(run)[0], started_us=(run.due_us or 0) + 9_000_000, ended_us=(run.due_us or 0) + 9_500_000)
    return with_entries(base=late, without=lambda entry: entry.what == "begin" and entry.name == str(run.id))


@breaks("prompt start", "and did not")
def a_run_is_left_in_the_queue() -> Evidence:
    run = next(run for run in BASE.runs if run.job == "mail" and run.is_tick and us(72) < (run.due_us or 0) < us(80))
    return with_run(run, state="queued", available_us=run.due_us)


@breaks("attempts on record", "taken from a node that lived")
def an_attempt_is_taken_from_a_node_that_lives() -> Evidence:
    attempt = next(each for each in BASE.attempts if each.outcome == "lost")
    left_us = (attempt.ended_us or 0) + 60_000_000
    return replace(BASE, notes={**BASE.notes, "nodes_ended_us": {attempt.node: left_us}})


@breaks("prompt start", "nobody answers for it")
def a_run_is_left_running_by_a_node_that_is_gone() -> Evidence:
    run = next(run for run in BASE.runs if run.job == "mail" and run.is_tick and run.attempts)
    return replace(with_run(run, state="running"), notes={**BASE.notes, "all_have_left": True})


@breaks("prompt start", "and did not")
def a_run_waits_for_a_key_that_nobody_has() -> Evidence:
    run = next(run for run in BASE.runs if run.job == "sums" and run.is_tick and us(62) < (run.due_us or 0) < us(80))
    later = {other.id for other in BASE.runs if other.job == "sums" and other.id >= run.id}
    waits = with_run(run, state="waiting", waits_for="key", attempts=0)
    return replace(waits, attempts=tuple(each for each in BASE.attempts if each.run_id not in later))


@breaks("prompt start", "began")
def a_begin_that_was_noted_is_late() -> Evidence:
    run = next(
        run
        for run in BASE.runs
        if run.job == "mail" and run.is_tick and us(72) < (run.due_us or 0) < us(80) and run.attempts == 1
    )
    quiet = replace(BASE, attempts=tuple(each for each in BASE.attempts if each.run_id != run.id))
    late = Entry(99.0, EntryKind.NOTE, "begin", "node-1", name=str(run.id))
    return with_entries(late, base=quiet, without=lambda entry: entry.what == "begin" and entry.name == str(run.id))


@breaks("prompt start", "was given up as lost")
def a_dead_node_is_noticed_late() -> Evidence:
    _, first, _ = run_tried_twice("lost")
    return with_attempt(first, ended_us=us(ENDED_AT - 5))


@breaks("prompt start", "and tried again")
def what_was_lost_is_tried_again_late() -> Evidence:
    _, _, second = run_tried_twice("lost")
    tidy = [run.id for run in BASE.runs if run.exclusive_key and run.id != second.run_id]
    alone = replace(BASE, attempts=tuple(each for each in BASE.attempts if each.run_id not in tidy))
    late = replace(second, started_us=us(ENDED_AT - 5), ended_us=us(ENDED_AT - 4))
    return replace(alone, attempts=tuple(late if each is second else each for each in alone.attempts))


# -- 12


@breaks("one trace", "another history before")
def a_seed_gives_two_histories() -> Evidence:
    return with_notes(fingerprints=[BASE.history.fingerprint(), clean(5).history.fingerprint()])


@breaks("one trace", "another history before")
def an_entry_is_one_microsecond_later() -> Evidence:
    moved = [replace(BASE.history.entries[0], at=BASE.history.entries[0].at + 1e-6), *BASE.history.entries[1:]]
    return with_notes(fingerprints=[History(moved).fingerprint()])


@breaks("one trace", "another history before")
def two_entries_have_changed_places() -> Evidence:
    first, second, *rest = BASE.history.entries
    return with_notes(fingerprints=[History([second, first, *rest]).fingerprint()])


# -- the lock register; more of it in test_lock_register


def lock(*told: tuple[str, str, float, EntryKind, int | None]) -> Evidence:
    entries: list[Entry] = []
    for what, node, sent, kind, token in told:
        fields = {"name": "own", "session": f"s-{node}", "grant": f"g-{node}", "token": token}
        entries += call(what, sent, sent + 0.1, kind, node=node, **fields)
    opened = call("open", 69.0, 69.1, node="a", session="s-a") + call("open", 69.2, 69.3, node="b", session="s-b")
    return with_entries(*opened, *entries)


@breaks("lock register", "no order of its calls")
def a_name_has_two_holders() -> Evidence:
    return lock(("acquire", "a", 70.0, EntryKind.OK, 5), ("acquire", "b", 71.0, EntryKind.OK, 6))


@breaks("lock register", "no order of its calls")
def a_name_is_released_twice() -> Evidence:
    return lock(
        ("acquire", "a", 70.0, EntryKind.OK, 5),
        ("release", "a", 71.0, EntryKind.OK, 5),
        ("release", "a", 72.0, EntryKind.OK, 5),
    )


@breaks("lock register", "no order of its calls")
def a_holder_is_renewed_after_its_name_was_given_away() -> Evidence:
    return lock(
        ("acquire", "a", 70.0, EntryKind.OK, 5),
        ("acquire", "b", 75.0, EntryKind.OK, 6),
        ("renew", "a", 76.0, EntryKind.OK, 5),
    )


# -- everything has its attempt


@breaks("attempts on record", "no attempt of that token")
def a_function_begins_under_a_token_nobody_was_given() -> Evidence:
    run = a_run()
    return with_entries(Entry(50.0, EntryKind.NOTE, "begin", "node-1", name=str(run.id), token=1))


@breaks("attempts on record", "was claimed only")
def a_function_begins_before_it_was_claimed() -> Evidence:
    attempt = tries(a_run())[0]
    return with_attempt(attempt, started_us=(attempt.started_us or 0) + 50_000)


@breaks("attempts on record", "never seen to begin")
def an_attempt_succeeds_that_never_began() -> Evidence:
    run = a_run()
    return with_entries(without=lambda entry: entry.what == "begin" and entry.name == str(run.id))


@breaks("attempts on record", "which no attempt of that run was given")
def an_effect_has_a_token_of_nobody() -> Evidence:
    *_, last = [each for each in BASE.effects if each.resource == "out:tidy"]
    return with_effects(replace(last, token=last.token + 1), without=last)


@breaks("attempts on record", "no such run")
def an_effect_has_no_run() -> Evidence:
    *_, last = [each for each in BASE.effects if each.resource == "out:tidy"]
    return with_effects(replace(last, run_id=8888), without=last)


@breaks("attempts on record", "ended before it began")
def an_attempt_ends_before_it_begins() -> Evidence:
    attempt = tries(a_run())[0]
    return with_attempt(attempt, ended_us=(attempt.started_us or 0) - 1)


@breaks("attempts on record", "there was no claim")
def an_attempt_was_never_claimed() -> Evidence:
    attempt = tries(a_run())[0]
    return with_attempt(attempt, token=attempt.token + 1)


@breaks("attempts on record", "has no such attempt")
def a_claim_has_no_attempt() -> Evidence:
    run = a_run()
    return replace(BASE, attempts=tuple(each for each in BASE.attempts if each.run_id != run.id))


@breaks("attempts on record", "come to be")
def a_run_comes_from_nowhere() -> Evidence:
    run = a_run()
    return replace(BASE, transitions=tuple(step for step in BASE.transitions if step.run_id != run.id))


# -- and a few more of the others


@breaks("one run per tick", "not under its due time")
def a_tick_is_kept_under_another_time() -> Evidence:
    run = a_run()
    return with_run(run, origin_key=f"tick:{(run.due_us or 0) + 1}:tidy")


@breaks("every due time", "should have been of job")
def a_tick_runs_another_job() -> Evidence:
    return with_run(a_run(), job="mail")


@breaks("limits", "failures; on record")
def a_failure_is_not_counted() -> Evidence:
    run, *_ = run_tried_twice()
    return with_run(run, failures=0)


@breaks("acknowledged writes", "was refused, and is on record")
def an_ending_is_refused_and_kept() -> Evidence:
    attempt = tries(a_run())[0]
    name = str(attempt.run_id)
    told = {"name": name, "token": attempt.token, "detail": {"outcome": attempt.outcome}}
    refused = call("finish", 80.0, 80.1, EntryKind.REFUSED, **told)
    return with_entries(*refused, without=lambda entry: entry.what == "finish" and entry.name == name)

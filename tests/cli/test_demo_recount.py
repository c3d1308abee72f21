"""The count at the end of the demo finds what is wrong: each fault is planted once."""

from collections import Counter
from dataclasses import replace

import pytest

from fencepost.demo.plan import CHUNKS, IMPORT, notice_key
from fencepost.demo.recount import Books, Row, Tally, recount, total

S = 1_000_000
BEGAN = 1_767_225_600 * S  # 2026-01-01T00:00Z
UNTIL = BEGAN + 10 * S


def row(id_: int, job: str, due_us: int, **changes) -> Row:
    made = Row(id_, job, "succeeded", job, f"tick:{job}:{due_us}", due_us, due_us)
    return made._replace(**changes)


def books() -> Books:
    """Ten seconds in which all went well: ten settlements with their notices, two imports, one report."""
    settled = [row(n, "settle", BEGAN + n * S) for n in range(1, 11)]
    imported = [row(20 + n, "import_orders", due_us) for n, due_us in enumerate(IMPORT.dues(BEGAN, UNTIL, 9), start=1)]
    notices = [
        row(30 + n, "notify", 0, schedule=None, origin_key=f"request:{notice_key(BEGAN + n * S)}") for n in range(1, 11)
    ]
    report = row(50, "report", 0, schedule=None, origin_key=None)
    runs = (*settled, *imported, *notices, report)
    return Books(
        runs=runs,
        effects=Counter(each.id for each in runs),
        settled_dues=Counter(each.due_us for each in settled),
        chunks={each.id: Counter(range(CHUNKS)) for each in imported},
        began={"settle": BEGAN, "import_orders": BEGAN},
    )


def count(found: Books) -> Tally:
    return total(recount(found, until_us=UNTIL, reports=1))


def job(found: Books, name: str) -> Tally:
    return next(tally for tally in recount(found, until_us=UNTIL, reports=1) if tally.job == name)


def test_nothing_is_wrong_where_nothing_is_wrong() -> None:
    tallies = recount(books(), until_us=UNTIL, reports=1)
    assert all(tally.is_right for tally in tallies)
    assert {tally.job: (tally.due, tally.ran) for tally in tallies} == {
        "settle": (10, 10),
        "import_orders": (2, 2),
        "notify": (10, 10),
        "report": (1, 1),
    }


def without(found: Books, id_: int) -> Books:
    return replace(found, runs=tuple(each for each in found.runs if each.id != id_))


def changed(found: Books, id_: int, **changes) -> Books:
    return replace(found, runs=tuple(each._replace(**changes) if each.id == id_ else each for each in found.runs))


FAULTS = {
    "a due time without a run": (lambda b: without(b, 3), "missing"),
    "a due time with two runs": (
        lambda b: replace(b, runs=(*b.runs, row(99, "settle", BEGAN + 3 * S)), effects=b.effects + Counter([99])),
        "duplicates",
    ),
    "a run that wrote twice": (lambda b: replace(b, effects=b.effects + Counter([4])), "duplicates"),
    "a settlement written under two runs": (
        lambda b: replace(b, settled_dues=b.settled_dues + Counter([BEGAN + 4 * S])),
        "duplicates",
    ),
    "a write of a run that did not succeed": (lambda b: changed(b, 4, state="dead"), "duplicates"),
    "a success without its write": (lambda b: replace(b, effects=b.effects - Counter([5])), "lost_writes"),
    "a chunk that is missing": (
        lambda b: replace(b, chunks={**b.chunks, 21: Counter(range(CHUNKS - 1))}),
        "lost_writes",
    ),
    "a chunk written twice": (
        lambda b: replace(b, chunks={**b.chunks, 21: Counter([0, *range(CHUNKS)])}),
        "duplicates",
    ),
    "a settlement without a notice": (lambda b: without(b, 33), "missing"),
    "a report that nobody recorded": (lambda b: without(b, 50), "missing"),
    "a run that has not ended": (lambda b: changed(b, 6, state="running"), "open"),
    "a run that was given up": (
        lambda b: replace(changed(b, 6, state="dead"), effects=b.effects - Counter([6])),
        "failed",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    plant, where = FAULTS[fault]
    found = count(plant(books()))
    assert getattr(found, where) == 1
    assert not found.is_right


def test_a_skipped_due_time_is_no_fault() -> None:
    skipped = changed(books(), 6, state="skipped")
    found = job(replace(skipped, effects=skipped.effects - Counter([6])), "settle")
    assert (found.ran, found.skipped, found.is_right) == (9, 1, True)


def test_one_run_may_answer_for_several_due_times() -> None:
    several = changed(without(without(books(), 3), 4), 5, first_due_us=BEGAN + 3 * S)
    found = job(several, "settle")
    assert (found.due, found.ran, found.missing, found.duplicates) == (10, 10, 0, 0)


def test_what_is_due_after_the_count_does_not_count() -> None:
    later = books()
    later = replace(later, runs=(*later.runs, row(99, "settle", UNTIL + S, state="queued")))
    assert job(later, "settle").is_right

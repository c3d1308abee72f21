"""Rows of figures: replaced as a whole, merged without loss, moved and removed with their job, and gone in time."""

from __future__ import annotations

from collections import Counter

from fencepost.core.figures import HOUR_US, Figures, hour_of, total
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.figures import (
    KEPT_US,
    MERGED,
    MERGED_AFTER_US,
    FigureRow,
    figures_since,
    forget_figures,
    merge_figures,
    move_figures,
    put,
)
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.pruning import Retention, prune
from tests.servers import RUNTIME


def row(job: str, hour: int, node: str, succeeded: int, bucket: int = 70) -> FigureRow:
    return FigureRow(job, hour, node, f'{{"succeeded":{succeeded}}}', f'{{"{bucket}":{succeeded}}}')


def stored(ledger: Ledger, *rows: FigureRow) -> None:
    connection = ledger.connect("figures")
    put(connection, rows)
    connection.rest()


def found(ledger: Ledger, *jobs: str, since_us: int = 0) -> list[FigureRow]:
    return sorted(figures_since(ledger, jobs, since_us)[0])


def whole(ledger: Ledger, job: str) -> Figures:
    return total(each.figures() for each in found(ledger, job))


def test_a_row_is_replaced_as_a_whole_and_no_other_is(ledger: Ledger) -> None:
    first, other = row("settle", HOUR_US, "a", 1), row("settle", HOUR_US, "b", 5)
    stored(ledger, first, other, row("Settle", HOUR_US, "a", 7))
    again = row("settle", HOUR_US, "a", 3, bucket=71)
    stored(ledger, again)  # also if the reply to the first was lost
    stored(ledger, again)
    assert found(ledger, "settle") == [again, other]


def test_what_is_read_is_of_these_jobs_and_hours_and_bounded_to_the_newest(ledger: Ledger) -> None:
    rows = [row(job, hour * HOUR_US, "a", hour) for job in ("settle", "settle-eu") for hour in range(1, 6)]
    stored(ledger, *rows)
    assert found(ledger, "settle", since_us=3 * HOUR_US + 5) == rows[2:5]
    newest, is_cut = figures_since(ledger, ["settle", "settle-eu"], 0, limit=4)
    assert (sorted(newest), is_cut) == (sorted([*rows[3:5], *rows[8:]]), True)
    assert figures_since(ledger, [], 0) == ([], False)


def test_hours_that_are_over_are_merged_without_loss_and_others_are_left_alone(ledger: Ledger) -> None:
    now = hour_of(ledger.now_us())
    over, going_on = now - MERGED_AFTER_US - HOUR_US, now - HOUR_US
    stored(
        ledger,
        *(row(job, hour, node, 3) for job in ("settle", "report") for hour in (over, going_on) for node in "abc"),
        row("settle", over, MERGED, 10, bucket=2),
    )
    before = {job: whole(ledger, job) for job in ("settle", "report")}
    merged, rounds, from_us = 0, 0, 0
    while rounds == 0 or merged:  # in batches that do not end with a job
        merged, from_us = merge_figures(ledger, ledger, from_us=from_us, limit=2)
        rounds += 1
    assert rounds == 4
    assert from_us == now - MERGED_AFTER_US
    assert [each.node for each in found(ledger, "settle")] == [MERGED, "a", "b", "c"]
    assert found(ledger, "settle")[0] == FigureRow("settle", over, MERGED, '{"succeeded":19}', '{"2":10,"70":9}')
    assert {job: whole(ledger, job) for job in before} == before


def test_nodes_that_merge_at_once_lose_nothing_and_count_nothing_twice(ledger: Ledger) -> None:
    over = hour_of(ledger.now_us()) - MERGED_AFTER_US - HOUR_US
    stored(ledger, *(row(job, over, f"n{n}", n + 1) for job in ("settle", "report") for n in range(12)))
    before = {job: whole(ledger, job) for job in ("settle", "report")}

    def merge() -> None:
        for _ in range(200):
            try:
                if not merge_figures(ledger, ledger, limit=3)[0]:
                    return
            except LedgerUnavailable:  # as a loop does
                continue

    tasks = [RUNTIME.spawn(f"merging-{n}", merge) for n in range(3)]
    for task in tasks:
        task.join(60)
    assert [row.node for row in found(ledger, *before)] == [MERGED, MERGED]
    assert {job: whole(ledger, job) for job in before} == before


def test_a_new_name_takes_the_figures_along_and_a_forgotten_job_leaves_none(ledger: Ledger) -> None:
    stored(ledger, row("nightly", HOUR_US, "a", 1), row("nightly", 2 * HOUR_US, "a", 2), row("settle", HOUR_US, "a", 4))
    assert ledger.write(lambda cursor: move_figures(ledger, cursor, "nightly", "settle")) == 2
    assert whole(ledger, "settle") == Figures(Counter(succeeded=7), Counter({70: 7}))
    assert not found(ledger, "nightly")
    assert ledger.write(lambda cursor: forget_figures(ledger, cursor, "settle")) == 2
    assert not found(ledger, "settle")


def test_rows_are_kept_for_five_weeks(ledger: Ledger) -> None:
    now_us = ledger.now_us()
    old = [row("settle", hour_of(now_us) - KEPT_US - hours * HOUR_US, "a", 1) for hours in (1, 2, 3)]
    kept = row("settle", hour_of(now_us) - KEPT_US + HOUR_US, "a", 1)
    stored(ledger, kept, *old)
    assert prune(ledger, None, Retention(), limit=2) == 2
    assert prune(ledger, None, Retention(), limit=2) == 1
    assert prune(ledger, None, Retention(), limit=2) == 0
    assert found(ledger, "settle") == [kept]

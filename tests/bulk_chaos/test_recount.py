"""The recount finds nothing where nothing is wrong, and names each thing that is."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.bulk_chaos import application, material
from tests.bulk_chaos.cluster import SUPERVISOR, WORKER, Kill
from tests.bulk_chaos.course import Story, Wishes
from tests.bulk_chaos.places import Place
from tests.bulk_chaos.records import Calls
from tests.bulk_chaos.recount import Landed, Redone, redone, violations
from tests.bulk_chaos.takeovers import Chunk, declared_after_s, takeovers

ROWS, CHUNK = 1000, 50
FIRST = next(material.landing(ROWS))


def clean() -> tuple[Story, Landed, Redone]:
    """What is known of a job on which all went well, though it lost a worker."""
    effects = [(key, material.amount(key)) for key in material.landing(ROWS)]
    letters = [(f"id={key}", "Skip") for key in material.keys(ROWS) if material.is_put_aside(key)]
    filtered = sum(map(material.is_filtered, material.keys(ROWS)))
    counts = {"read": ROWS, "written": len(effects), "filtered": filtered, "skipped": len(letters)}
    run = {"id": 1, "job": application.JOB, "state": "succeeded", "result": counts}
    wishes = Wishes(rows=ROWS, kills=1, chunk=CHUNK)
    story = Story(wishes, Place("nowhere", "", ""), 1, [Kill(WORKER, 1.0, (7,))], run, [run])
    return story, Landed(effects, letters, counts), Redone(ROWS + CHUNK, ROWS, {7: CHUNK})


def test_nothing_is_wrong_with_a_job_that_went_well() -> None:
    assert list(violations(*clean())) == []


Break = Callable[[Story, Landed, Redone], tuple[Story, Landed, Redone]]


def _effects(change: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Break:
    return lambda story, landed, again: (story, replace(landed, effects=change(landed.effects)), again)


def _letters(change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Break:
    return lambda story, landed, again: (story, replace(landed, letters=change(landed.letters)), again)


def _story(**values: Any) -> Break:
    return lambda story, landed, again: (replace(story, **values), landed, again)


def _redone(**values: Any) -> Break:
    return lambda story, landed, again: (story, landed, replace(again, **values))


BROKEN: dict[str, tuple[Break, str]] = {
    "an effect twice": (_effects(lambda all_: [*all_, all_[0]]), "has something twice"),
    "an effect missing": (_effects(lambda all_: all_[1:]), "lacks part of its input"),
    "one twice and one missing": (_effects(lambda all_: [*all_[1:], all_[1]]), "has something twice"),
    "an effect of a filtered row": (_effects(lambda all_: [*all_, (5 * material.GAP, 0)]), "was to be left out"),
    "a wrong amount": (_effects(lambda all_: [(FIRST, -1), *all_[1:]]), "wrong amount"),
    "a dead letter twice": (_letters(lambda all_: [*all_, all_[0]]), "put aside 2 times"),
    "a dead letter missing": (_letters(lambda all_: all_[1:]), "ought to have been put aside"),
    "an innocent put aside": (_letters(lambda all_: [*all_, (f"id={FIRST}", "WorkerLost")]), "for nothing: WorkerLost"),
    "a run that failed": (_story(run={"id": 1, "state": "dead", "error": "no"}), "the run is dead: no"),
    "a run that nobody counted": (_story(run={"id": 1, "state": "succeeded"}), "the run tell of"),
    "a second run": (
        _story(runs=[{"id": each, "job": application.JOB, "state": "succeeded"} for each in (1, 2)]),
        "more runs than one",
    ),
    "a part that was called off": (
        _story(runs=[{"id": 2, "job": "settle/part", "state": "cancelled"}]),
        "run 2 of settle/part is cancelled",
    ),
    "too few kills": (_story(kills=[]), "0 kills of 1"),
    "more than a chunk for a process": (_redone(by_process={7: CHUNK + 1}), "more than a chunk"),
    "work in vain without a kill": (_redone(by_process={8: 1}), "though nobody killed"),
    "a row that nobody processed": (_redone(rows=ROWS - 1), "was called for 999 rows"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(name: str) -> None:
    change, words = BROKEN[name]
    assert any(words in each for each in violations(*change(*clean())))


def calls(pid: int, *several: tuple[int, float]) -> Calls:
    return Calls(pid, array("q", [key for key, _ in several]), array("q", [int(at * 1e9) for _, at in several]))


def test_of_several_calls_for_a_row_all_but_the_last_were_in_vain() -> None:
    found = redone([calls(3, (1, 5.0), (2, 6.0)), calls(2, (1, 1.0), (3, 2.0)), calls(4, (1, 3.0))])
    assert (found.calls, found.rows, found.again) == (5, 3, 2)
    assert found.by_process == {2: 1, 4: 1}


def test_a_takeover_lasts_from_the_kill_to_the_next_chunk_of_another_process() -> None:
    kill = Kill(SUPERVISOR, 10.0, (5, 6), node=4)
    landed = [Chunk(9.0, 5, 1, 20), Chunk(10.1, 5, 21, 40), Chunk(13.5, 8, 41, 60), Chunk(11.0, 9, 101, 120)]
    found = list(takeovers([kill], [calls(5, (41, 9.9)), calls(6)], sorted(landed), [100]))
    assert [(each.partition, each.took_s) for each in found] == [(0, 3.5)]


def test_runs_are_declared_lost_from_the_death_of_their_own_node_on() -> None:
    def lost(node: int, at: str) -> dict[str, Any]:
        return {"outcome": "lost", "node_name": f"vm:{node}:ab", "ended_at": at}

    attempts = [lost(4, "1970-01-01T00:00:13Z"), lost(4, "1970-01-01T00:00:09Z"), lost(44, "1970-01-01T00:00:12Z")]
    assert list(declared_after_s([Kill(SUPERVISOR, 10.0, (), node=4)], attempts)) == [3.0]

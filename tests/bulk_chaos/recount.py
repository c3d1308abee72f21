"""What is in the database in the end, against what ought to be: counted by plain SQL, without the code under test.

The rows that are to have an effect are known from the material alone; what was put aside is read from the dead letters;
what was processed, from the files of the processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from fencepost.proof.checkers import bulk_once
from fencepost.proof.evidence import Effect, Evidence, Timing
from fencepost.proof.history import History
from tests.bulk_chaos import application, material
from tests.bulk_chaos.course import Story
from tests.bulk_chaos.records import Calls

LETTERS, CHECKPOINTS = "fencepost_dead_letter", "fencepost_checkpoint"


@dataclass(frozen=True)
class Landed:
    """What the database of the effects has."""

    effects: list[tuple[int, int]]
    letters: list[tuple[str, str]]  # which item, and the code of its error
    counts: dict[str, int]  # the sum over the partitions' checkpoints


@dataclass(frozen=True)
class Redone:
    """What was processed more than once. `by_process` is what each process left for others to do again."""

    calls: int
    rows: int
    by_process: dict[int, int]

    @property
    def again(self) -> int:
        return self.calls - self.rows


def landed(connection: Connection) -> Landed:
    """Read it."""
    effects = connection.execute(text(f"SELECT id, amount FROM {material.EFFECTS}"))
    letters = connection.execute(text(f"SELECT item_key, error_code FROM {LETTERS} ORDER BY id"))
    counts: Counter[str] = Counter()
    for (one,) in connection.execute(
        text(f"SELECT counts FROM {CHECKPOINTS} WHERE name LIKE :name"), {"name": f"bulk:{application.JOB}@%#%"}
    ):
        counts.update(json.loads(one))
    return Landed([tuple(row) for row in effects], [tuple(row) for row in letters], dict(counts))


def redone(all_calls: Iterable[Calls]) -> Redone:
    """Count what was processed again. Of several calls for a row all but the last were in vain."""
    last: dict[int, tuple[int, int]] = {}
    by_process: Counter[int] = Counter()
    total = 0
    for calls in all_calls:
        total += len(calls.keys)
        for key, at_ns in zip(calls.keys, calls.at_ns, strict=True):
            before = last.get(key)
            if before is not None:
                by_process[min(before, (at_ns, calls.pid))[1]] += 1
            last[key] = max(before, (at_ns, calls.pid)) if before is not None else (at_ns, calls.pid)
    return Redone(total, len(last), dict(by_process))


def violations(story: Story, found: Landed, again: Redone) -> Iterator[str]:
    """Say what is not as it ought to be."""
    yield from _of_the_end(story)
    yield from _of_effects(story, found)
    yield from _of_letters(story, found)
    yield from _of_counts(story, found)
    yield from _of_redone_work(story, again)


def _of_the_end(story: Story) -> Iterator[str]:
    if len(story.kills) < story.wishes.kills:
        yield f"there were {len(story.kills)} kills of {story.wishes.kills} while the job worked"
    if story.run.get("state") != "succeeded":
        yield f"the run is {story.run.get('state')}: {story.run.get('error') or story.run.get('why')}"
    for run in story.runs:
        if run["state"] not in ("succeeded", "skipped"):
            yield f"run {run['id']} of {run['job']} is {run['state']}: {run.get('error') or run.get('why')}"
    asked_for = [run["id"] for run in story.runs if run["job"] == application.JOB]
    if asked_for != [story.run_id]:
        yield f"somebody asked for more runs than one: {asked_for}"


def _of_effects(story: Story, found: Landed) -> Iterator[str]:
    yield from map(str, bulk_once.check(_evidence(story, found)))
    wrong = [key for key, amount in found.effects if amount != material.amount(key)]
    if wrong:
        yield f"{len(wrong)} effects have a wrong amount, such as that of {wrong[0]}"
    expected = sum(1 for _ in material.landing(story.wishes.rows))
    if len(found.effects) != expected:
        yield f"there are {len(found.effects):,} effects, and {expected:,} were to come"


def _evidence(story: Story, found: Landed) -> Evidence:
    keys, result = material.keys(story.wishes.rows), story.run.get("result")
    told = {
        "resource": "bulk",
        "input": {str(key) for key in keys},
        "filtered": {str(key) for key in keys if material.is_filtered(key)},
        "skipped": [str(_key(item)) for item, _ in found.letters],
        "skippable": {str(key) for key in keys if material.is_put_aside(key)},
        "counts": found.counts,
        "totals": [result] if result else [],
        "run": story.run_id,
        "finished": story.run.get("state") == "succeeded",
    }
    return Evidence(
        History(()),
        Timing(story.wishes.ttl_s, 1.0, 0.0, story.took_s),
        effects=tuple(Effect("bulk", str(key), 0, "") for key, _ in found.effects),
        notes={"bulk": [told]},
    )


def _of_letters(story: Story, found: Landed) -> Iterator[str]:
    letters = Counter(_key(item) for item, _ in found.letters)
    expected = {key for key in material.keys(story.wishes.rows) if material.is_put_aside(key)}
    for key, count in sorted(letters.items()):
        if count > 1:
            yield f"row {key} was put aside {count} times"
        if key not in expected:
            codes = [code for item, code in found.letters if _key(item) == key]
            yield f"row {key} was put aside for nothing: {codes[0]}"
    if missing := sorted(expected - set(letters)):
        yield f"{len(missing)} rows ought to have been put aside and were not, such as {missing[0]}"


def _of_counts(story: Story, found: Landed) -> Iterator[str]:
    filtered = sum(map(material.is_filtered, material.keys(story.wishes.rows)))
    counted = {"read": story.wishes.rows, "written": len(found.effects), "filtered": filtered}
    counted |= {"skipped": len(found.letters)}
    told: dict[str, Any] = story.run.get("result") or {}
    for where, counts in (("the run", told), ("the checkpoints", found.counts)):
        said = {name: counts.get(name) for name in counted}
        if said != counted:
            yield f"{where} tell of {said}, and there are {counted}"
        if said["read"] != sum(said[name] or 0 for name in ("written", "filtered", "skipped")):
            yield f"the counts of {where} do not add up: {said}"


def _of_redone_work(story: Story, again: Redone) -> Iterator[str]:
    chunk = story.wishes.chunk
    if again.rows != story.wishes.rows:
        yield f"process() was called for {again.rows:,} rows of {story.wishes.rows:,}"
    for pid, count in sorted(again.by_process.items()):
        if count > chunk:
            yield f"process {pid} left {count} calls in vain, more than a chunk of {chunk}"
    lost = {pid for kill in story.kills for pid in kill.pids}
    if spared := {pid: count for pid, count in again.by_process.items() if pid not in lost}:
        yield f"calls were in vain though nobody killed the process (pid: calls): {spared}"


def _key(item: str) -> int:
    return int(item.removeprefix("id="))

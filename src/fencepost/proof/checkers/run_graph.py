"""5. Runs follow the graph, and nothing leaves a terminal state.

The graph is a copy on purpose, so that a wrong transition in the engine's own table is noticed. The order is that of
commits. Only this order can show two more things, which are checked here: a run is claimed only when no node has it,
with a token above the last one, and at most one of the runs with the same exclusive key is running.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.evidence import FINAL, Evidence, RunSeen, Transition, Violation
from fencepost.proof.telling import run_text

NAME = "run graph"
WAYS: dict[str | None, frozenset[str]] = {
    None: frozenset({"queued", "waiting", "misfired", "skipped"}),
    "waiting": frozenset({"waiting", "queued", "skipped", "misfired", "cancelled"}),  # it may wait for something else
    "queued": frozenset({"waiting", "running", "skipped", "misfired", "cancelled"}),
    "running": frozenset({"queued", "waiting", "succeeded", "dead", "skipped", "cancelled"}),
}


def check(evidence: Evidence) -> Iterator[Violation]:
    """Follow every run through its states, and every exclusive key through its runs."""
    runs = {run.id: run for run in evidence.runs}
    by_run: dict[int, list[Transition]] = defaultdict(list)
    for each in evidence.transitions:
        by_run[each.run_id].append(each)
    for run_id, steps in by_run.items():
        yield from _walk(run_id, steps)
        yield from _last(runs.get(run_id), run_id, steps)
    yield from _keys(evidence.transitions, runs)


def _walk(run_id: int, steps: list[Transition]) -> Iterator[Violation]:
    path = " → ".join(["new", *(step.after for step in steps)])
    state: str | None = None
    token = -1
    for step in steps:
        if step.before != state:
            yield Violation(NAME, f"run {run_id} went from {step.before} to {step.after} while it was {state}", path)
        elif step.before in FINAL:
            yield Violation(NAME, f"run {run_id} left the terminal state {step.before} for {step.after}", path)
        elif step.after not in WAYS.get(step.before, frozenset()):
            yield Violation(NAME, f"run {run_id} went from {step.before or 'new'} to {step.after}: no such way", path)
        if step.after == "running" and step.token is not None:
            if step.token <= token:
                yield Violation(NAME, f"run {run_id} was given token {step.token} after {token}", path)
            token = step.token
        state = step.after


def _last(run: RunSeen | None, run_id: int, steps: list[Transition]) -> Iterator[Violation]:
    if run is None:
        yield Violation(NAME, f"run {run_id} was {steps[-1].after} and is no longer recorded", "")
    elif run.state != steps[-1].after:
        yield Violation(NAME, f"{run_text(run)} was {steps[-1].after} when it was last seen to change", "")


def _keys(transitions: tuple[Transition, ...], runs: dict[int, RunSeen]) -> Iterator[Violation]:
    holder: dict[str, int] = {}
    last_token: dict[str, int] = {}
    for step in transitions:
        run = runs.get(step.run_id)
        key = run.exclusive_key if run is not None else None
        if key is None:
            continue
        if step.after != "running":
            if holder.get(key) == step.run_id:
                del holder[key]
            continue
        other = holder.get(key, step.run_id)
        if other != step.run_id:
            yield Violation(NAME, f"run {step.run_id} was started while run {other} had their key {key!r}", "")
        holder[key] = step.run_id
        if step.token is not None:
            if step.token <= last_token.get(key, -1):
                yield Violation(NAME, f"key {key!r} was given token {step.token} after {last_token[key]}", f"run {run}")
            last_token[key] = step.token

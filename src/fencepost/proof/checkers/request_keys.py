"""9. One idempotency key, one run; another payload under the same key is refused.

A request is a call `request` with its key as the name. ``detail["payload"]`` is what was requested, and in the answer
``detail["run"]`` is its run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.calls import Call, calls
from fencepost.proof.evidence import Evidence, RunSeen, Violation
from fencepost.proof.telling import run_text

NAME = "request keys"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare the runs and answers of each key."""
    runs: dict[str, list[RunSeen]] = defaultdict(list)
    for run in evidence.runs:
        if run.request_key is not None:
            runs[run.request_key].append(run)
    for key, found in runs.items():
        if len(found) > 1:
            yield Violation(NAME, f"key {key!r} has {len(found)} runs", "; ".join(map(run_text, found)))
    asked: dict[str, list[Call]] = defaultdict(list)
    for call in calls(evidence.history, "request"):
        if call.name:
            asked[call.name].append(call)
    for key, requests in asked.items():
        yield from _answers(key, requests, runs.get(key, []))


def _answers(key: str, requests: list[Call], runs: list[RunSeen]) -> Iterator[Violation]:
    accepted = [call for call in requests if call.is_ok]
    shown = "; ".join(map(str, requests[:6]))
    if len({call.detail.get("run") for call in accepted}) > 1:
        yield Violation(NAME, f"requests with key {key!r} got different runs", shown)
    if len({call.detail.get("payload") for call in accepted}) > 1:
        yield Violation(NAME, f"two payloads were accepted with key {key!r}", shown)
    if accepted and not runs:
        yield Violation(NAME, f"a request with key {key!r} was acknowledged, and there is no run for it", shown)
    refused = [call for call in requests if call.detail.get("why") == "payload"]
    if refused and len({call.detail.get("payload") for call in requests}) == 1:
        yield Violation(NAME, f"a request with key {key!r} was refused though all had the same payload", shown)

"""The policy of a job in sentences, from what a deploy has recorded. What is missing or damaged is passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencepost.core.duration import spelled

_OVERLAP = {
    "forbid": "A due time at which the previous run has not ended is skipped; a requested run waits.",
    "queue": "A run that comes due while the previous one has not ended waits for it.",
    "replace": "A run that comes due while the previous one has not ended stops it.",
    "allow": "Several runs may go on at once.",
}
_MISFIRE = {
    "once": "Due times that no node planned in time are made up for by one run.",
    "all": "Due times that no node planned in time each get a late run.",
    "skip": "Due times that no node planned in time are recorded as misfired, and do not run.",
}
_CRASH = {
    "fail": "A run whose node or worker was lost is given up.",
    "hold": "A run whose node or worker was lost waits for a person.",
}
_EFFECTS = {
    "fenced": "Each of its writes carries its token, and stale ones are refused.",
    "idempotent": "It may run twice without harm.",
}


def policy_words(policy: object) -> list[str]:
    """Return the policy in sentences; none if it is damaged."""
    return list(_sentences(policy)) if isinstance(policy, Mapping) else []


def _sentences(policy: Mapping[str, Any]) -> Iterator[str]:
    if (timeout := _number(policy, "timeout")) is not None:
        yield f"An attempt may take {spelled(timeout)}, and is stopped then."
    if (sla := _number(policy, "sla")) is not None:
        yield f"A run that has not ended {spelled(sla)} after it was due is reported."
    yield from _of_retries(policy)
    yield from _known(_OVERLAP, policy.get("overlap"))
    misfire, _, cap = str(policy.get("misfire") or "").partition(":")
    yield from _known(_MISFIRE, misfire)
    if cap.isdigit():
        yield f"At most the newest {cap} of them do."
    yield from _known(_CRASH, policy.get("on_crash"))
    if policy.get("on_crash") == "rerun" and (limit := _number(policy, "crash_limit")) is not None:
        yield f"A run whose node or worker was lost runs again, and is given up after {limit:g} losses."
    yield from _known(_EFFECTS, policy.get("effects"))
    if policy.get("reason") == "always":
        yield "Each act of a person on it needs a reason."
    if isinstance(policy.get("exclusive"), str):
        yield f"Runs with the same key {policy['exclusive']!r} exclude each other, also across jobs."
    if policy.get("queue") not in (None, "default"):
        yield f"Its runs are in the queue {policy['queue']!r}."
    if _number(policy, "priority"):
        yield f"Its runs have the priority {policy['priority']}."


def _of_retries(policy: Mapping[str, Any]) -> Iterator[str]:
    retries = _number(policy, "retries")
    if retries is None:
        return
    if retries == 0:
        yield "A failed attempt is not repeated."
        return
    times = "once" if retries == 1 else f"up to {retries:g} times"
    backoff = policy.get("backoff")
    base, cap = (_number(backoff, each) for each in ("base", "cap")) if isinstance(backoff, Mapping) else (None, None)
    pauses = "" if base is None or cap is None else f", after {spelled(base)} at first and {spelled(cap)} at most"
    yield f"A failed attempt is repeated {times}{pauses}."


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12 else None


def _known(sentences: Mapping[str, str], word: object) -> Iterator[str]:
    if isinstance(word, str) and word in sentences:
        yield sentences[word]

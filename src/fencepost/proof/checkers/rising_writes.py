"""1. The tokens of accepted writes to a resource never go down, and writes with one token come from one grant.

Committed effects are checked in the order of their commits. Writes that are only known as calls are checked if they do
not overlap: a write that was sent after another one was answered came after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.proof.calls import Call, calls
from fencepost.proof.evidence import Effect, Evidence, Violation

NAME = "rising writes"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare the tokens and grants of accepted writes to each resource."""
    yield from _committed(evidence.effects)
    writes = [call for call in calls(evidence.history, "write") if call.is_ok and call.token is not None]
    yield from _answered(writes)
    committed = [
        (each.resource, each.token, each.grant, f"{each.key!r} of run {each.run_id}") for each in evidence.effects
    ]
    yield from _one_grant([*committed, *((call.name, call.token or 0, call.grant, str(call)) for call in writes)])


def _committed(effects: tuple[Effect, ...]) -> Iterator[Violation]:
    highest: dict[str, Effect] = {}
    for effect in effects:
        before = highest.get(effect.resource, effect)
        if effect.token < before.token:
            yield Violation(
                NAME,
                f"{effect.resource!r} accepted {effect.key!r} under token {effect.token} after {before.key!r} under "
                f"{before.token}: a stale writer was not refused",
                f"runs {before.run_id} and {effect.run_id}",
            )
        else:
            highest[effect.resource] = effect


def _answered(writes: list[Call]) -> Iterator[Violation]:
    """Compare each call with all calls that were answered before it was sent."""
    answered = sorted(writes, key=lambda call: call.ended_at)
    highest: dict[str, Call] = {}
    position = 0
    for call in writes:
        while position < len(answered) and answered[position].ended_at < call.sent_at:
            last = answered[position]
            if (last.token or 0) >= (highest.get(last.name, last).token or 0):
                highest[last.name] = last
            position += 1
        before = highest.get(call.name)
        if before is not None and (call.token or 0) < (before.token or 0):
            yield Violation(NAME, f"{call.name!r} accepted an older token than before", f"{before}; then {call}")


def _one_grant(writes: list[tuple[str, int, str, str]]) -> Iterator[Violation]:
    first: dict[tuple[str, int], tuple[str, str]] = {}
    for resource, token, grant, text in writes:
        owner, before = first.setdefault((resource, token), (grant, text))
        if owner != grant:
            yield Violation(
                NAME,
                f"{resource!r} accepted two grants under the one token {token}: {owner!r} and {grant!r}",
                f"{before}; then {text}",
            )

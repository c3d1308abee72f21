"""3. The tokens of one name's grants rise in real-time order, and each token belongs to one grant.

If tokens are durable, this holds across every restart and promotion. Otherwise it holds only between faults of the
store: a store that lost its data while its clock went back may begin lower.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.calls import Call, calls, faults
from fencepost.proof.evidence import Evidence, Violation

NAME = "rising grants"
FORGETTING = frozenset({"forget", "restart", "promotion", "outage"})


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare the grants of each name."""
    by_name: dict[str, list[Call]] = defaultdict(list)
    for call in calls(evidence.history, "acquire"):
        if call.is_ok and call.token is not None:
            by_name[call.name].append(call)
    forgot_at = [] if evidence.tokens_are_durable else _forgetting(evidence)
    for name, grants in by_name.items():
        yield from _identity(name, grants)
        yield from _order(name, grants, forgot_at)


def _forgetting(evidence: Evidence) -> list[float]:
    return sorted(entry.at for entry, kind in faults(evidence.history) if kind in FORGETTING)


def _identity(name: str, grants: list[Call]) -> Iterator[Violation]:
    of_grant: dict[str, Call] = {}
    of_token: dict[int, Call] = {}
    for call in grants:
        same = of_grant.setdefault(call.grant, call)
        if same.token != call.token:
            yield Violation(NAME, f"one grant of {name!r} was answered with two tokens", f"{same}; {call}")
        same = of_token.setdefault(call.token or 0, call)
        if same.grant != call.grant:
            yield Violation(NAME, f"two grants of {name!r} have the one token {call.token}", f"{same}; {call}")


def _order(name: str, grants: list[Call], forgot_at: list[float]) -> Iterator[Violation]:
    answered = sorted(grants, key=lambda call: call.ended_at)
    highest: Call | None = None
    position = 0
    for call in grants:
        while position < len(answered) and answered[position].ended_at < call.sent_at:
            last = answered[position]
            if highest is None or _forgot(highest, last, forgot_at) or (last.token or 0) > (highest.token or 0):
                highest = last
            position += 1
        if highest is None or highest.grant == call.grant or _forgot(highest, call, forgot_at):
            continue
        if (call.token or 0) < (highest.token or 0):
            yield Violation(NAME, f"the token of {name!r} went down", f"{highest}; then {call}")


def _forgot(before: Call, after: Call, forgot_at: list[float]) -> bool:
    """Whether the store may have lost the first grant before the second was answered."""
    first = bisect_left(forgot_at, before.sent_at)
    return first < len(forgot_at) and forgot_at[first] <= after.ended_at

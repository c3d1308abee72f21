"""Describes, in one sentence, what keeps a job's effects from landing twice.

Each option of a policy makes sense by itself. This describes their combined effect, and any gap that they leave. It
describes what is declared, not what the job's code does.
"""

from __future__ import annotations

from fencepost.core.policy import Effects, Overlap, Policy


def strategy(policy: Policy) -> str:
    """Return what keeps two runs of a job apart, and what happens to a stale write."""
    return f"{_apart(policy)}; {_late(policy)}"


def takes_no_lock(policy: Policy) -> bool:
    """Whether runs of this job may overlap."""
    return policy.exclusive is None and policy.overlap is Overlap.ALLOW


def _apart(policy: Policy) -> str:
    if policy.exclusive is not None:
        return f"one at a time for each {policy.exclusive!r}"
    if not takes_no_lock(policy):
        return "one at a time"
    return "no lock, idempotency only" if policy.effects is Effects.IDEMPOTENT else "no lock: runs may overlap"


def _late(policy: Policy) -> str:
    match policy.effects:
        case Effects.IDEMPOTENT:
            return (
                "each effect lands once by a key that commits with it (run.once, idempotent, Sequence); a write "
                "without a key may land twice, and is recorded in the journal"
            )
        case Effects.FENCED:
            return "all its writes go through run.transaction(), which refuses them once another node has the run"
        case Effects.UNFENCED if takes_no_lock(policy):
            return "if two runs do the same work, it lands twice; if keys prevent that, declare effects='idempotent'"
        case Effects.UNFENCED:
            return "a run that may have lost its lease is stopped; writes outside run.transaction() are not checked"

"""What keeps a job's effects from landing twice, said in a sentence for those who look at the job.

A policy is put together from words that each make sense by themselves; this says what they amount to, and where they
leave a gap. It tells of what is declared, not of what the job's code does.
"""

from __future__ import annotations

from fencepost.core.policy import Effects, Overlap, Policy


def strategy(policy: Policy) -> str:
    """Return what keeps two runs of a job apart, and what becomes of a write that comes too late."""
    return f"{_apart(policy)}; {_late(policy)}"


def takes_no_lock(policy: Policy) -> bool:
    """Whether nothing keeps runs of this job from overlapping."""
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
                "each effect lands once by a key that commits with it (run.once, idempotent, Sequence); what is "
                "written without a key may land twice, and the journal tells of it"
            )
        case Effects.FENCED:
            return "all it writes goes through run.transaction(), which refuses it once the run is somebody else's"
        case Effects.UNFENCED if takes_no_lock(policy):
            return "what two runs both do is done twice, unless keys see to it: effects='idempotent' if they do"
        case Effects.UNFENCED:
            return "in doubt it is stopped; what it writes other than through run.transaction() is not checked"

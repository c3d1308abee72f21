"""How much clocks may differ before a checker reports a violation."""

from __future__ import annotations

from fencepost.proof.evidence import Evidence

SECOND_US = 1_000_000
# A claim has the time at which its candidates were selected. The key of one of them may be released only after that.
DEFAULT_S = 1.0


def slack_us(evidence: Evidence) -> int:
    """Return how much two times of the ledger may contradict each other: ``notes["ledger_slack_s"]``."""
    return round(float(evidence.notes.get("ledger_slack_s", DEFAULT_S)) * SECOND_US)


def stepped_us(evidence: Evidence) -> int:
    """Return how much the ledger's clock was set back or ahead, if known: ``notes["stepped_s"]``.

    It limits the error of a single reading, such as when a run was claimed, and from when it may be claimed.
    """
    stepped_s = evidence.notes.get("stepped_s")
    return slack_us(evidence) if stepped_s is None else round(float(stepped_s) * SECOND_US)


def wall_us(evidence: Evidence, at: float) -> int:
    """Return the true time at which the history's clock read `at`."""
    return evidence.wall_us_at_0 + round(at * SECOND_US)


def end_us(evidence: Evidence) -> int:
    """Return the true time when everything was over."""
    return wall_us(evidence, evidence.timing.ended_at)


def quiet_us(evidence: Evidence) -> int:
    """Return the true time when the last fault had ended."""
    return wall_us(evidence, evidence.timing.quiet_from)


def bound_s(evidence: Evidence) -> float:
    """Return within how many seconds a due run starts when there are no faults."""
    timing = evidence.timing
    # After an outage, living nodes have a ttl to renew before any is declared dead. docs/proof.md promises the same.
    return (2 * timing.ttl_s if timing.store_was_away else timing.ttl_s) + timing.poll_s + 2.0


def settle_s(evidence: Evidence, job: str) -> float:
    """Return how long it takes without faults until all earlier runs have ended: ``notes["settle_s"]``, or a guess."""
    if "settle_s" in evidence.notes:
        return float(evidence.notes["settle_s"])
    rules = evidence.jobs.get(job)
    pauses_s = sum(rules.pauses_s) * 1.5 if rules is not None else 0.0
    return 2 * bound_s(evidence) + evidence.timing.ttl_s + pauses_s + 10.0

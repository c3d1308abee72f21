"""Checks of who acts and why: the journal records both."""

from __future__ import annotations

from fencepost.core.noted import LONGEST_REASON, says_something
from fencepost.engine.run import attempt_of, current_run
from fencepost.errors import InvalidParameters


def person(by: object) -> str:
    """Return the name of the person; refuse an empty one."""
    if not isinstance(by, str) or not says_something(by):
        raise InvalidParameters("say who does this: by='ann'; the journal keeps it")
    return by.strip()


def reason_given(reason: object) -> str:
    """Return the reason of an act that needs one; refuse an empty one, and one that the journal would refuse later."""
    if not isinstance(reason, str) or not says_something(reason):
        raise InvalidParameters("say why: reason='…'; the journal keeps it")
    if len(reason.strip()) > LONGEST_REASON:
        raise InvalidParameters(f"a reason has {LONGEST_REASON:,} characters at most; nothing was done")
    return reason.strip()


def requesting_run() -> str | None:
    """Return how the run is called that asks, if a run does."""
    run = current_run()
    return None if run is None else attempt_of(run).label

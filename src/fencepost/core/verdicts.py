"""Exceptions that a job may raise to choose how its run ends.

They are not errors: a `Skip` is as good an end as a success. A job that catches `Exception` around such a `raise` also
catches them, and should re-raise them.
"""

from __future__ import annotations

from fencepost.core.duration import Duration, seconds


class Verdict(Exception):
    """Base class of these exceptions."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Verdict):
    """Retry later: ``raise Retry(after="5m", reason="the bank is closed")``.

    The attempt counts as failed, so the policy's `retries` applies. `after` replaces the back-off.
    """

    def __init__(self, after: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after_s = None if after is None else seconds(after, what="after")


class Fail(Verdict):
    """The run cannot succeed: it fails now, with this reason, even if retries are left."""


class Skip(Verdict):
    """There is nothing to do: the run ends as skipped, with this reason, and is not retried."""


class Cancel(Verdict):
    """Cancel the run: it ends as cancelled, with this reason, and is not retried."""

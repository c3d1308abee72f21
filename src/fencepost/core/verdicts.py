"""What a job may raise to say how its run should end, where neither returning nor failing says it.

They are no errors: a `Skip` is as good an end as a success. A job that catches `Exception` around such a `raise`
catches them too, and should let them pass.
"""

from __future__ import annotations

from fencepost.core.duration import Duration, seconds


class Verdict(Exception):
    """Base of what a job may raise about its own run."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Verdict):
    """Try again later: ``raise Retry(after="5m", reason="the bank is closed")``.

    It counts as a failed attempt, so the policy's `retries` bound it; `after` takes the place of the back-off.
    """

    def __init__(self, after: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after_s = None if after is None else seconds(after, what="after")


class Fail(Verdict):
    """It cannot succeed: the run is given up now, with this reason, whatever retries are left."""


class Skip(Verdict):
    """There is nothing to do: the run ends as skipped, with this reason, and is not tried again."""


class Cancel(Verdict):
    """Call the run off: it ends as cancelled, with this reason, and is not tried again."""

"""What was just done, as the page after it says. The address has a word and a number, never the sentence itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

_SENTENCES = {
    "triggered": "Run {n} was asked for.",
    "retried": "Run {n} was made, which repeats this one.",
    "cancelled": "The run was cancelled.",
    "stopping": "The node that runs it was asked to stop it.",
    "too-late": "It was too late: the run had ended.",
    "released": "The run may go on.",
    "paused": "The schedule is paused.",
    "resumed": "The schedule is planned again from now on.",
    "made": "The schedule was made. It is planned from now on.",
    "saved": "The schedule was saved.",
    "deleted": "The schedule was deleted.",
    "backfilled": "{n} runs were asked for.",
    "paused-queue": "It is paused.",
    "resumed-queue": "It is resumed: what waits is claimed.",
    "drained": "The node was asked to drain: it claims nothing more, and leaves when its runs are done.",
    "acknowledged": "You know of it: it is among what is known, until it happens anew.",
    "unacknowledged": "It needs a person again.",
    "changed": "The change was made.",
    "lock-released": "The lock was taken away from its holder.",
    "lock-was-free": "Nobody held the lock any more; nothing was done.",
}


def did_sentence(visit: Visit) -> str | None:
    """Return what was done before this page was shown; None if nothing was."""
    sentence = _SENTENCES.get(visit.query.get("did", ""))
    n = visit.query.get("n", "")
    return None if sentence is None else sentence.format(n=n if n.isascii() and n.isdigit() else "?")

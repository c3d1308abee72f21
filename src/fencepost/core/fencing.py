"""What a writer shows at a fence, and the one rule by which fences judge it. Pure.

A fence keeps a mark for what it guards: the highest token that wrote there, and which grant it belonged to. A writer
is let in if its token is higher (the mark is raised to it), or if it is the very one that raised the mark.

::

    mark               offered                 judged
    none               any token               let in, raised
    token 7, grant a   token 8, grant b        let in, raised
    token 7, grant a   token 7, grant a        let in
    token 7, grant a   token 6                 refused: a newer holder has written
    token 7, grant a   token 7, grant b        refused: two grants must not share a token
    any                a day ahead of the      refused: raised to, it would keep out everybody
                       fence's clock           who comes by honest time

**Not promised.** That a writer who is let in is still the holder: a fence knows of a successor only once it has come to
this fence. What is promised is the order of writers: after the successor's first write, none of the former's.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple, Protocol

from fencepost.errors import LeaseLost

AHEAD_US = 24 * 3600 * 1_000_000
"""Tokens follow the store's clock, in µs; one that is further ahead of the fence's clock than this is no honest one."""
LARGEST_TOKEN = 2**53 - 1
NOTHING_WRITTEN = "nothing was written"


class FencingToken(NamedTuple):
    """What a run or a lease shows at a fence.

    `key` is what it holds: the lock's name, or the run's exclusive key. Only tokens of one key are in order.
    """

    key: str
    token: int
    grant_id: str
    holder: str = ""


class Mark(NamedTuple):
    """What a fence remembers of the last writer that raised it."""

    token: int
    grant_id: str
    holder: str = ""


class HasFencing(Protocol):
    """A run or a lease."""

    @property
    def fencing(self) -> FencingToken: ...


Claimant = FencingToken | HasFencing
"""Whoever wants to write: a run, a lease, or what one of them shows."""


def fencing_of(claimant: Claimant) -> FencingToken:
    """Return what a run or a lease shows at a fence, unless it knows that it is lost: then `LeaseLost`.

    A `TypeError` says what would have been taken.
    """
    shown = claimant if isinstance(claimant, FencingToken) else getattr(claimant, "fencing", None)
    if not isinstance(shown, FencingToken):
        raise TypeError(f"a fence takes a run, a lease or a FencingToken, not {type(claimant).__name__}")
    if getattr(claimant, "lost", False):
        raise LeaseLost(shown.key, shown.token, f"it knew so itself, before it came to the fence; {NOTHING_WRITTEN}")
    return shown


def refusal(mark: Mark | None, offered: FencingToken, *, now_us: int | None) -> str | None:
    """Return why `offered` must not write, or None if it may. `now_us` is the fence's clock, None where it has none."""
    if now_us is not None and offered.token > now_us + AHEAD_US:
        return (
            f"token {offered.token} is more than a day ahead of the fence's clock ({now_us}), and was not believed; if "
            "the clock of the lock store was wrong once, bring the token back with: "
            f"fencepost locks reset {shlex.quote(offered.key)} --reason WHY"
        )
    if mark is None or offered.token > mark.token:
        return None
    if offered.token < mark.token:
        return f"a newer holder{_named(mark)} has written with token {mark.token}"
    if offered.grant_id != mark.grant_id:
        return f"another grant{_named(mark)} has written with the same token"
    return None


def _named(mark: Mark) -> str:
    return f" ({mark.holder})" if mark.holder else ""

"""The token that a writer presents to a fence, and the rule by which all fences accept or refuse it. Pure.

A fence keeps a mark for each resource: the highest token that wrote there, and the grant it belonged to. It accepts a
writer whose token is higher (and raises the mark to it), and the writer that raised the mark.

::

    mark               offered                 result
    none               any token               accepted, mark raised
    token 7, grant a   token 8, grant b        accepted, mark raised
    token 7, grant a   token 7, grant a        accepted
    token 7, grant a   token 6                 refused: a newer holder has written
    token 7, grant a   token 7, grant b        refused: two grants must not share a token
    any                a day ahead of the      refused: as a mark, it would lock out every holder
                       fence's clock           with a correct token

**Not promised.** That an accepted writer is still the holder: a fence learns of a new holder only when that holder
writes. The fence promises the order of writers: after the new holder's first write, none of the old holder's.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple, Protocol

from fencepost.errors import LeaseLost

AHEAD_US = 24 * 3600 * 1_000_000
"""Tokens follow the store's clock, in µs. One further ahead of the fence's clock than this is from a wrong clock."""
LARGEST_TOKEN = 2**53 - 1  # exact as a double, too, as in Lua and JavaScript; microseconds reach it in 2255
NOTHING_WRITTEN = "nothing was written"


class FencingToken(NamedTuple):
    """The token that a run or a lease presents to a fence.

    `key` is the lock's name or the run's exclusive key. Only tokens with the same key can be compared.
    """

    key: str
    token: int
    grant_id: str
    holder: str = ""


class Mark(NamedTuple):
    """What a fence remembers of the last writer that raised its mark."""

    token: int
    grant_id: str
    holder: str = ""


class HasFencing(Protocol):
    """A run or a lease."""

    @property
    def fencing(self) -> FencingToken: ...


Claimant = FencingToken | HasFencing
"""A writer: a run, a lease, or the `FencingToken` of one."""


def fencing_of(claimant: Claimant) -> FencingToken:
    """Return the token of a run or a lease, or raise `LeaseLost` if it knows that it is lost.

    Raises `TypeError` for anything else.
    """
    shown = claimant if isinstance(claimant, FencingToken) else getattr(claimant, "fencing", None)
    if not isinstance(shown, FencingToken):
        raise TypeError(f"a fence takes a run, a lease or a FencingToken, not {type(claimant).__name__}")
    if getattr(claimant, "lost", False):
        raise LeaseLost(shown.key, shown.token, f"this was known before the fence was asked; {NOTHING_WRITTEN}")
    return shown


def refusal(mark: Mark | None, offered: FencingToken, *, now_us: int | None) -> str | None:
    """Return why `offered` must not write, or None if it may. `now_us` is the fence's clock, None if it has none."""
    if now_us is not None and offered.token > now_us + AHEAD_US:
        return (
            f"token {offered.token} is more than a day ahead of the fence's clock ({now_us}), and was refused; if "
            "the clock of the lock store was wrong, reset the token with: "
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

"""The lease that the running code holds, for code that is too deep to be handed it."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.leases.lease import Lease

_current: ContextVar[Lease | None] = ContextVar("fencepost_current_lease", default=None)


def current_lease() -> Lease | None:
    """Return the innermost lease entered by this thread or task with ``with``, or None."""
    return _current.get()


def entered(lease: Lease) -> Token[Lease | None]:
    """Note that `lease` is entered."""
    return _current.set(lease)


def left(token: Token[Lease | None]) -> None:
    """Go back to what was current before, unless this is another context than the one that entered.

    So it is for a generator that somebody else finishes, and for a dependency that a web framework leaves on another
    thread. What the other context shows is not ours to change, and the lease has to be released all the same.
    """
    with suppress(ValueError):
        _current.reset(token)

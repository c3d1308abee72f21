"""The current lease of the running code, for functions that do not get it as an argument."""

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
    """Make `lease` the current one."""
    return _current.set(lease)


def left(token: Token[Lease | None]) -> None:
    """Restore the previous lease, unless this is another context than the one that entered the current one.

    The context differs if a generator is finished elsewhere, or if a web framework leaves a dependency on another
    thread. The other context is then left unchanged; the caller still releases the lease.
    """
    with suppress(ValueError):
        _current.reset(token)

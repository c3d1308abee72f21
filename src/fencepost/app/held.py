"""Whether a ledger is held: it may have been restored or copied, and nodes do nothing until a person decides.

See `fencepost.core.restored` for what is compared, and ``fencepost restored`` for deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.core.restored import LEASES, differences
from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LedgerMark
from fencepost.leases.urls import StoreUrl
from fencepost.ledger.standing import LedgerStanding, standing

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger

_HELD = "the ledger is held, nothing is planned and nothing is started"


def held_because(ledger: Ledger) -> str | None:
    """Return why nodes do nothing with this ledger until a person decides what it is; None if it is not held.

    Does not create a lease store, and ignores one that does not answer.
    """
    try:
        seen, changed = standing_of(ledger, with_leases=_has_leases(ledger))
    except (StoreUnavailable, StoreRefused):
        seen, changed = standing_of(ledger, with_leases=False)
    if changed:
        what = f"it is not the same {' and '.join(changed)} as noted, so it may have been restored or copied"
        return f"{_HELD}: {what}. Decide what it is: fencepost restored"
    return None if seen.held_why is None else f"{_HELD}: {seen.held_why}"


def standing_of(ledger: Ledger, *, with_leases: bool = True) -> tuple[LedgerStanding, tuple[str, ...]]:
    """Return the marks of the ledger and of its lease store, and which of them differ from the noted ones."""
    seen = ledger.read(lambda cursor: standing(ledger, cursor))
    leases = lease_identity(ledger) if with_leases else None
    present = seen.present if leases is None else {**seen.present, LEASES: leases}
    return seen._replace(present=present), differences(seen.noted or {}, present)


def lease_identity(ledger: Ledger) -> str | None:
    """Return the identity of the lease store; None unless it is separate from the ledger."""
    if not ledger.url.is_file:
        return None
    locks = Locks(store_from_url(ledger.url.lease_url(), ledger.runtime), runtime=ledger.runtime)
    try:
        locks.start()
        answer = locks.noted(LedgerMark(None, -1, -1))
    finally:
        locks.close()
    return None if answer is None else answer[0]


def _has_leases(ledger: Ledger) -> bool:
    from fencepost.leases.stores.sqlite import lease_file  # noqa: PLC0415 - SQLite only

    return ledger.url.is_file and lease_file(StoreUrl.parse(ledger.url.lease_url())).exists()

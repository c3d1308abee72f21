"""The state of a lease, read once: free, held, kept closed, or held by a session that is dead."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.grants import Held, LeaseRecord
from fencepost.leases.stores.sql.backend import Row
from fencepost.leases.stores.sql.statements import NEVER


@dataclass(frozen=True, slots=True)
class LeaseLook:
    """A lease row with its session, and the store's clock when they were read."""

    name: str
    token: int
    holder: str
    grant_id: str | None
    session_id: str | None
    acquired_at_us: int
    kept_until: int
    last_tick: int
    expires_at: int | None
    now: int
    ttl_us: int | None
    is_waited_for: bool | None = None

    @staticmethod
    def of(row: Row) -> LeaseLook:
        """Read a row of `Statements.look`."""
        name = row[0]
        return LeaseLook(name.decode() if isinstance(name, bytes) else name, *row[1:])

    @property
    def is_held(self) -> bool:
        """Whether a live session holds the name."""
        return self.session_id is not None and self.expires_at is not None and self.expires_at > self.now

    @property
    def is_dead(self) -> bool:
        """Whether the session that holds the name has expired or is gone."""
        return self.session_id is not None and not self.is_held

    @property
    def is_ahead(self) -> bool:
        """Whether the session expires later than a renewal now could make it: the clock has gone back since."""
        return self.expires_at is not None and self.ttl_us is not None and self.expires_at > self.now + self.ttl_us

    @property
    def free_in_s(self) -> float | None:
        """When to ask again, or None for now."""
        until = self.expires_at if self.is_held else self.kept_until
        return (until - self.now) / 1_000_000 if until is not None and until > self.now else None

    def held(self) -> Held | None:
        """Return the refusal that follows from this state, or None."""
        if self.free_in_s is None:
            return None
        by_session = self.is_held
        return Held(
            self.name,
            self.holder if by_session else None,
            self.token,
            self.grant_id if by_session else None,
            self.free_in_s,
            is_kept=not by_session,
        )

    def record(self) -> LeaseRecord:
        """Return the record for operators."""
        by_session = self.is_held
        return LeaseRecord(
            name=self.name,
            token=self.token,
            holder=self.holder if by_session else None,
            grant_id=self.grant_id if by_session else None,
            session_id=self.session_id if by_session else None,
            acquired_at_us=self.acquired_at_us if by_session else None,
            free_in_s=self.free_in_s,
            last_tick_us=None if self.last_tick == NEVER else self.last_tick,
            ttl_s=self.ttl_us / 1_000_000 if by_session and self.ttl_us is not None else None,
            is_waited_for=self.is_waited_for,
        )

"""The timings of a lease, validated together.

A holder must be dead, or at least have stopped itself, *before* the store grants the lock to another holder. In the
worst case, a renewal is due (`renew_every`), hangs until its timeout (`call_timeout`), is retried once after a pause
(`retry_every`), and only then the work gets SIGTERM (`term_grace`) and is finally killed (`kill`). All of that must fit
into the time for which the holder may trust its lease, which ends a `margin` before the lease expires at the store::

    renew_every + call_timeout + retry_every + term_grace + kill ≤ ttl − margin

The defaults are fractions of the ttl, so they scale with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.errors import InvalidTimings

# Survives a renewal that fails twice and a pause of seconds; another node takes over within half a minute.
DEFAULT_TTL_S = 30.0
SMALLEST_TTL_S = 0.2  # below this, the scheduling of a busy machine takes more than the margin
LARGEST_TTL_S = 7 * 86400.0  # after a week without a sign of life nobody waits for a holder
# How long runs may take to end when their node is shut down. Stopping the remaining runs and updating the ledger takes
# a few seconds more, so a node is done before Kubernetes kills it, 30 s after SIGTERM.
SHUTDOWN_GRACE = "20s"


@dataclass(frozen=True, slots=True)
class Timings:
    """All durations of one lease, in seconds. Create it with `Timings.of`, which validates."""

    ttl_s: float
    margin_s: float
    renew_every_s: float
    call_timeout_s: float
    retry_every_s: float
    term_grace_s: float
    kill_s: float

    @staticmethod
    def of(ttl: Duration = DEFAULT_TTL_S, **changes: Duration | None) -> Timings:
        """Scale the defaults to `ttl`, apply `changes` (``renew_every="5s"`` …), and validate.

        >>> Timings.of("30s").renew_every_s
        10.0
        """
        ttl_s = seconds(ttl, what="ttl")
        values = {name: ttl_s * share for name, share in _SHARES.items()}
        for name, value in changes.items():
            if name not in values:
                raise InvalidTimings(f"there is no timing {name!r}; there are: ttl, {', '.join(values)}")
            if value is not None:
                values[name] = seconds(value, what=name)
        timings = Timings(ttl_s=ttl_s, **{f"{name}_s": value for name, value in values.items()})
        timings._validate()
        return timings

    @property
    def trust_s(self) -> float:
        """How long a holder may trust a grant, counted from just before the request was sent."""
        return self.ttl_s - self.margin_s

    @property
    def stop_s(self) -> float:
        """How long it takes at most to stop the work: the grace after SIGTERM, then the kill."""
        return self.term_grace_s + self.kill_s

    def _validate(self) -> None:
        if not SMALLEST_TTL_S <= self.ttl_s <= LARGEST_TTL_S:
            raise InvalidTimings(
                f"ttl {spelled(self.ttl_s)} must be between {spelled(SMALLEST_TTL_S)} and {spelled(LARGEST_TTL_S)}"
            )
        for field in fields(self):
            if getattr(self, field.name) <= 0 and field.name not in ("term_grace_s", "kill_s"):
                raise InvalidTimings(f"{field.name.removesuffix('_s')} must be more than zero")
        parts = {name: getattr(self, f"{name}_s") for name in _SHARES if name != "margin"}
        needed, there_is = sum(parts.values()), self.trust_s
        if needed > there_is + 1e-9:
            spelled_out = " + ".join(f"{name} ({spelled(value)})" for name, value in parts.items())
            raise InvalidTimings(
                f"{spelled_out} = {spelled(round(needed, 3))} must be ≤ ttl ({spelled(self.ttl_s)}) − margin "
                f"({spelled(self.margin_s)}) = {spelled(round(max(there_is, 0.0), 3))}: "
                "increase the ttl or decrease one of the others"
            )


def usual_margin_s(ttl_s: float) -> float:
    """Return the margin of a ttl whose other timings were not set: for those who see a session from outside."""
    return ttl_s * _SHARES["margin"]


_SHARES = {
    "margin": 3 / 30,
    "renew_every": 10 / 30,
    "call_timeout": 3 / 30,
    "retry_every": 2 / 30,
    "term_grace": 5 / 30,
    "kill": 1 / 30,
}

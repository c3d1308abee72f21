"""Wrong passwords, and for how long no further one is compared.

After `FREE_FOR_PAIR` wrong passwords for an account from one address, `FREE_FOR_ACCOUNT` for an account from all
addresses, or `FREE_FOR_ADDRESS` from an address, within an hour, none is compared for 30 seconds; after each further
wrong one for twice as long, up to 15 minutes. An hour without a wrong one ends it, and so does the right password, for
the account. Addresses of IPv6 count by their first 64 bits: a client has as many as it likes of the others.

Where no address is given (all requests come through a proxy, and have its address), `FREE_FOR_PAIR` counts for the
account: those who guess one password must not lock out everyone who comes the same way.

**Promises.** A password that is refused so costs no hashing. Names that no account has are treated like others.

**Not promised.** That several server processes count together: each counts by itself, and from zero after a restart.
That an account stays usable while others guess its password from many addresses, or through the same proxy: it is
locked for its owner, too. The command line and API tokens are not. Of more than `MOST_KNOWN` accounts and addresses,
those that are longest ago are forgotten.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from fencepost.core.runtime import Runtime

FREE_FOR_PAIR = 5  # of an account and an address: a person mistypes two or three times
FREE_FOR_ACCOUNT = 50  # more: a stranger must not lock out its owner by five tries
FREE_FOR_ADDRESS = 20  # more: an office has one address
FIRST_WAIT_S = 30.0  # doubled with each further one: a thousand guesses take ten days
LONGEST_WAIT_S = 15 * 60.0  # an attacker must not lock a person out for longer
FORGOTTEN_AFTER_S = 3600.0  # mistakes of another day say nothing
MOST_KNOWN = 10_000  # bounds memory, whatever names are tried


@dataclass(slots=True)
class _Wrong:
    number: int = 0
    last_at: float = 0.0
    locked_until: float = 0.0


class Tries:
    """The wrong passwords that this process has seen. Keys are pairs of a kind and a name."""

    def __init__(self, runtime: Runtime) -> None:
        """Count by the clock of `runtime`."""
        self._runtime = runtime
        self._lock = runtime.lock()
        self._wrong: dict[tuple[str, str], _Wrong] = {}

    def wait_s(self, account: str, address: str | None) -> float:
        """Return for how long no password is compared for this account from this address; 0 if it is now."""
        with self._lock:
            now = self._runtime.monotonic()
            found = (self._wrong.get(key) for key, _ in _keys(account, address))
            return max((0.0, *(each.locked_until - now for each in found if each is not None)))

    def failed(self, account: str, address: str | None) -> None:
        """Count a wrong password."""
        with self._lock:
            now = self._runtime.monotonic()
            for key, free in _keys(account, address):
                wrong = self._wrong.pop(key, _Wrong())
                if now - wrong.last_at > FORGOTTEN_AFTER_S:
                    wrong = _Wrong()
                wrong.number, wrong.last_at = wrong.number + 1, now
                if wrong.number >= free:
                    wrong.locked_until = now + min(FIRST_WAIT_S * 2 ** min(wrong.number - free, 10), LONGEST_WAIT_S)
                self._wrong[key] = wrong  # at the end: the first is the one that is longest ago
            while len(self._wrong) > MOST_KNOWN:
                del self._wrong[next(iter(self._wrong))]

    def succeeded(self, account: str, address: str | None) -> None:
        """Forget the wrong passwords for an account; those for other accounts still count for the address."""
        with self._lock:
            for key, _ in _keys(account, address):
                if key[0] != "address":
                    self._wrong.pop(key, None)


def _keys(account: str, address: str | None) -> Collection[tuple[tuple[str, str], int]]:
    if address is None:
        return [(("account alone", account), FREE_FOR_PAIR)]
    place = _place(address)
    return [
        (("account", account), FREE_FOR_ACCOUNT),
        (("address", place), FREE_FOR_ADDRESS),
        (("pair", f"{place} {account}"), FREE_FOR_PAIR),
    ]


def _place(address: str) -> str:
    """Return what one client cannot change: an address, or the first 64 bits of one of IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))

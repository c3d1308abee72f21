"""Wrong passwords, and for how long no further one is compared.

After `FREE_FOR_ACCOUNT` wrong passwords for an account, or `FREE_FOR_ADDRESS` from an address, within an hour, none is
compared for 30 seconds; after each further wrong one for twice as long, up to 15 minutes. An hour without a wrong one
ends it, and so does the right password, for the account.

**Promises.** A password that is refused so costs no hashing. Names that no account has are treated like others.

**Not promised.** That several server processes count together: each counts by itself, and from zero after a restart.
That an account stays usable while others guess its password: it is locked for its owner, too. The command line and API
tokens are not. Of more than `MOST_KNOWN` accounts and addresses, those that are longest ago are forgotten.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fencepost.core.runtime import Runtime

FREE_FOR_ACCOUNT = 5  # a person mistypes two or three times
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

    def succeeded(self, account: str) -> None:
        """Forget the wrong passwords for an account."""
        with self._lock:
            self._wrong.pop(("account", account), None)


def _keys(account: str, address: str | None) -> Collection[tuple[tuple[str, str], int]]:
    of_account = (("account", account), FREE_FOR_ACCOUNT)
    return [of_account] if address is None else [of_account, (("address", address), FREE_FOR_ADDRESS)]

"""One-time links: how whoever starts the server on a terminal gets in, without an account.

The link shows a button, and the button uses it up: so a program that looks at links before people do (a chat, a mail
scanner) does not. It is printed on the terminal and written to no log.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime

LINK_LASTS_S = 600.0  # time to open the link in a browser; who finds it on the terminal later cannot use it


class OneTimeLink:
    """A secret that lets one person in, once, within ten minutes."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        """Let in `name`, who can reach the database."""
        self.name = name
        self._runtime = runtime
        self._lock = runtime.lock()
        self._secret = f"{runtime.new_id()}{runtime.new_id()}"
        self._until = runtime.monotonic() + LINK_LASTS_S
        self._is_used = False

    def __repr__(self) -> str:
        return f"<OneTimeLink for {self.name}>"

    @property
    def secret(self) -> str:
        """What the link has in it. For the terminal alone."""
        return self._secret

    def is_valid(self, secret: str) -> bool:
        """Whether a link with this secret would work now."""
        is_right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret.encode())
        return is_right and not self._is_used and self._runtime.monotonic() < self._until

    def use(self, secret: str) -> bool:
        """Use the link up; return whether it was valid. Of several at once, one gets in."""
        with self._lock:
            if not self.is_valid(secret):
                return False
            self._is_used = True
            return True

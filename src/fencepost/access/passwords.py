"""Passwords: hashed with Argon2id, by the parameters that its library recommends.

**Promises.** Checking takes as long for an account that does not exist as for one that does. A hash that was made with
older parameters is made anew when its password is next used.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from fencepost.errors import InvalidParameters, MissingExtra

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST = 12  # characters; what OWASP and NIST recommend where there is no second factor is 12 to 15
LONGEST = 1024  # hashing a longer one would only cost time


def hash_password(password: str) -> str:
    """Return the hash of a new password, or refuse one that is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidParameters(f"a password has {SHORTEST} to {LONGEST} characters; this one has {len(password)}")
    return _hasher().hash(password)


def is_right(password: str, hashed: str | None) -> bool:
    """Return whether `password` has this hash. None, for an account without one, takes as long and is never right."""
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - an extra

    try:
        _hasher().verify(hashed or _nobodys(), password[: LONGEST + 1])
    except (VerificationError, InvalidHashError):
        return False
    return hashed is not None


def is_outdated(hashed: str) -> bool:
    """Return whether a hash should be made anew."""
    return _hasher().check_needs_rehash(hashed)


@functools.cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise MissingExtra(
            "accounts need the package 'argon2-cffi': pip install './fencepost[web]' from a clone"
        ) from None
    return PasswordHasher()


@functools.cache
def _nobodys() -> str:
    """Return the hash of a password that nobody has: it is compared with where there is none."""
    return _hasher().hash("no account has this password")

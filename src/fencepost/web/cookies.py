"""The cookie of a login: its name, where it is valid, and how it is set and removed.

Over https the browser itself refuses a cookie of this name that was set without `Secure`, or by a neighbouring host:
``__Host-`` where we have the whole host, ``__Secure-`` under a prefix. On plain http, as on the loopback, there is no
such protection, and the name is another one: so the two are never taken for each other.

Under a prefix, the name has a mark of it. A browser also sends the cookie of ``/`` to ``/fencepost``, and on the
loopback that of any other port: of two with one name it would be open which one counts, and nobody could log in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from starlette.responses import Response

_NAME = "fencepost-login"


def cookie_name(*, is_https: bool, root_path: str) -> str:
    """Return what the cookie is called here."""
    name = f"{_NAME}-{hashlib.sha256(root_path.encode()).hexdigest()[:8]}" if root_path else _NAME
    if not is_https:
        return name
    return f"__Secure-{name}" if root_path else f"__Host-{name}"


def login_secret(cookies: Mapping[str, str], *, is_https: bool, root_path: str) -> str | None:
    """Return the secret of the login that a request brings; None if there is none."""
    return cookies.get(cookie_name(is_https=is_https, root_path=root_path)) or None


def set_login(response: Response, secret: str, *, lasts_s: float, is_https: bool, root_path: str) -> None:
    """Let the browser keep a login."""
    response.set_cookie(
        cookie_name(is_https=is_https, root_path=root_path),
        secret,
        max_age=int(lasts_s),
        path=root_path or "/",
        secure=is_https,
        httponly=True,
        samesite="strict",
    )


def remove_login(response: Response, *, is_https: bool, root_path: str) -> None:
    """Let the browser forget a login."""
    response.delete_cookie(
        cookie_name(is_https=is_https, root_path=root_path),
        path=root_path or "/",
        secure=is_https,
        httponly=True,
        samesite="strict",
    )

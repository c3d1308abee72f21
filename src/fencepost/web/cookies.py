"""The cookie of a login: its name, where it is valid, and how it is set and removed.

Over https the browser itself refuses a cookie of this name that was set without `Secure`, or by a neighbouring host:
``__Host-`` where we have the whole host, ``__Secure-`` under a prefix. On plain http, as on the loopback, there is no
such protection, and the name is another one: so the two are never taken for each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

_NAME = "fencepost-login"


def cookie_name(*, is_https: bool, root_path: str) -> str:
    """Return what the cookie is called here."""
    if not is_https:
        return _NAME
    return f"__Secure-{_NAME}" if root_path else f"__Host-{_NAME}"


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

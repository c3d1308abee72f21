"""The headers of every response, and the headers of a request as the guard reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from starlette.datastructures import MutableHeaders

FRAGMENT = "fencepost-fragment"
"""The header with which our script asks for the part of a page that changes."""
RawHeaders = Iterable[tuple[bytes, bytes]]

# Read by the guard, so more than one of them would leave open which one counts.
SINGLE = frozenset(
    {
        "host",
        "authorization",
        "cookie",
        "origin",
        "sec-fetch-site",
        "sec-fetch-mode",
        "content-type",
        "content-length",
        "x-fencepost-user",
        "x-fencepost-secret",
    }
)


def read_headers(raw: RawHeaders) -> dict[str, str]:
    """Return the headers by their names in lower case; of several with one name, the first."""
    read: dict[str, str] = {}
    for name, value in raw:
        read.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return read


def repeated(raw: RawHeaders, *, also: Iterable[str] = ()) -> list[str]:
    """Return the headers that may come once, and came more often."""
    single = SINGLE | {each.lower() for each in also}
    counted = Counter(name.decode("latin-1").lower() for name, _ in raw)
    return sorted(name for name, times in counted.items() if times > 1 and name in single)


def content_policy(nonce: str) -> str:
    """Return what a page of ours may load: its own style and pictures, and the one script with this nonce."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types fencepost"
    )


def protect(headers: MutableHeaders, *, nonce: str) -> None:
    """Add what every response has. A response that says how it may be cached keeps that; others are not stored."""
    headers["content-security-policy"] = content_policy(nonce)
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "no-referrer"
    headers["cross-origin-opener-policy"] = "same-origin"
    headers["cross-origin-resource-policy"] = "same-origin"
    headers["permissions-policy"] = "camera=(), microphone=(), geolocation=()"
    headers["x-frame-options"] = "DENY"  # for browsers that do not know frame-ancestors
    headers.setdefault("cache-control", "no-store")


def cookies_of(header: str | None) -> Mapping[str, str]:
    """Return the cookies of a request. A name that comes twice has no value: it would be open which one counts."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for each in (header or "").split(";"):
        name, equals, value = each.strip().partition("=")
        if not equals:
            continue
        if name in found:
            twice.add(name)
        found[name] = value.strip('"')
    return {name: value for name, value in found.items() if name not in twice}

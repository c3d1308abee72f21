"""Whether a request that changes something comes from one of our own pages.

Browsers say where a request comes from in `Sec-Fetch-Site`; those that do not, in `Origin`. A form of another site can
send neither a false one nor none. This holds for every way of identifying people that a browser repeats by itself:
cookies, proxies and host applications. An API token is sent by a program on purpose, and needs no such proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_from_our_pages(headers: Mapping[str, str]) -> bool:
    """Whether the headers of a request show that a page of the same origin sent it."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = headers.get("origin"), headers.get("host")
    if not origin or not host:
        return False
    try:
        named = urlsplit(origin)
    except ValueError:
        return False
    return named.scheme in ("http", "https") and named.netloc.lower() == host.lower()

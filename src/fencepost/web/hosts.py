"""Which names a server answers to. Else a page of another site could give its name our address (DNS rebinding).

A name is compared whole, without its port. There are no patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fencepost.errors import InvalidSetting

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_]([a-z0-9_\-.]{0,252}))(:[0-9]{1,5})?", re.ASCII)


def allowed_hosts(given: Iterable[str]) -> frozenset[str]:
    """Return the names that are allowed, the loopback's always among them; refuse what is not a name."""
    names = {each.strip().lower() for each in given}
    for name in names:
        match = _HOST.fullmatch(name)
        if match is None or match[3]:
            raise InvalidSetting(
                f"{name!r} is not the name of a host: write it as in the address bar, without a port: jobs.example.com"
            )
    return frozenset(names | set(LOOPBACK_HOSTS))


def host_name(header: str) -> str | None:
    """Return the name in a Host header, without its port; None if it is not one."""
    match = _HOST.fullmatch(header.lower())
    return match[1].removesuffix(".") if match else None

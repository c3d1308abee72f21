"""URLs of lease stores and ledgers: ``scheme://user:password@host:port,host:port/path?option=value``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fencepost.core.duration import seconds
from fencepost.errors import InvalidUrl

DEFAULT_CALL_TIMEOUT_S = 3.0  # a tenth of the default ttl, so that a renewal can be tried three times
_ENCODE = "write / ? # @ and the like in a user name or password as %2F %3F %23 %40"
COMMON_OPTIONS = frozenset({"accept_risk", "call_timeout"})
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed store URL. Its `str` and `repr` never show the password."""

    scheme: str
    hosts: tuple[tuple[str, int | None], ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def parse(text: str) -> StoreUrl:
        """Parse a URL. The message of `InvalidUrl` names the part that is wrong, but never contains a password."""
        if "://" not in text:
            raise InvalidUrl("write a URL as scheme://user:password@host:port/database; for a file, sqlite:///app.db")
        try:
            parts = urlsplit(text)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:  # its message could contain a part of a password
            raise InvalidUrl(f"the URL cannot be read; {_ENCODE}") from None
        if "#" in text and "@" not in parts.fragment:
            raise InvalidUrl("a URL must not have a part after #; write # as %23")
        if "@" in parts.netloc and "@" in parts.path:  # the "host" is the middle of a password
            raise InvalidUrl(f"the URL cannot be read; {_ENCODE}")
        account, _, places = parts.netloc.rpartition("@")
        user, _, password = account.partition(":")
        return StoreUrl(
            scheme=parts.scheme.lower(),
            hosts=_hosts(places, what_follows=f"{parts.path}?{parts.query}#{parts.fragment}"),
            user=unquote(user) or None,
            password=unquote(password) or None,
            path=unquote(parts.path),
            options=options,
        )

    def __str__(self) -> str:
        account = f"{self.user}{':***' if self.password else ''}@" if self.user or self.password else ""
        places = ",".join(f"[{host}]" if ":" in host else host for host, _ in self.hosts)
        if len(self.hosts) == 1 and self.hosts[0][1] is not None:
            places += f":{self.hosts[0][1]}"
        return f"{self.scheme}://{account}{places}{self.path}"

    @property
    def call_timeout_s(self) -> float:
        """How long one call to the store may take. Renewals have their own limit."""
        timeout_s = seconds(self.options.get("call_timeout", DEFAULT_CALL_TIMEOUT_S), what="call_timeout")
        if timeout_s <= 0:
            raise InvalidUrl("call_timeout must be more than zero")
        return timeout_s

    def accepted_risks(self) -> frozenset[str]:
        """Return the risks that the operator accepted with ``accept_risk=a,b``."""
        return frozenset(filter(None, self.options.get("accept_risk", "").split(",")))

    def only_options(self, known: Collection[str]) -> None:
        """Refuse unknown options, so that a misspelt one is not ignored."""
        unknown = sorted(set(self.options) - set(known) - COMMON_OPTIONS)
        if unknown:
            allowed = ", ".join(sorted(set(known) | COMMON_OPTIONS))
            raise InvalidUrl(f"{self.scheme}:// has no option {unknown[0]!r}; there are: {allowed}")


def _hosts(places: str, *, what_follows: str) -> tuple[tuple[str, int | None], ...]:
    try:
        return tuple(_host_and_port(place) for place in places.split(",") if place)
    except InvalidUrl:
        if "@" not in what_follows:
            raise
        # The apparent port is the beginning of a password that contains / ? or #, and must not be shown.
        raise InvalidUrl(f"the URL cannot be read; {_ENCODE}") from None


def _host_and_port(place: str) -> tuple[str, int | None]:
    host, bracket, rest = place.partition("]")
    if bracket:
        host, port = host.lstrip("["), rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not port:
        return unquote(host), None
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidUrl(f"port {port!r} of host {host!r} is not a port number")
    return unquote(host), int(port)


def identifier(text: str, *, what: str) -> str:
    """Return `text` if it is valid as an unquoted SQL identifier in every database."""
    if not _IDENTIFIER.fullmatch(text):
        raise InvalidUrl(f"{what}={text!r}: use at most 40 lower-case letters, digits and underscores, no digit first")
    return text


def sqlite_path(text: str) -> Path:
    """Return the file of a ``sqlite://`` URL's path: absolute, with symbolic links resolved.

    Each file must have only one name here, because other files are stored next to it. ``file:app.db`` is ``app.db``.
    """
    return Path(os.path.realpath(_file_name(text)))


def absolute_url(text: str) -> str:
    """Return a URL that means the same file after a change of the working directory; server URLs are not changed.

    An application resolves its URLs once, so that it later opens the same file in any working directory.
    """
    if "#" in text:  # invalid; the parser of the URL reports it
        return text
    scheme, _, rest = text.partition("://")
    place, question, options = rest.partition("?")
    name = unquote(place.removeprefix("/"))
    if scheme.lower() != "sqlite" or not place.startswith("/") or name in ("", ":memory:") or name.endswith("/"):
        return text
    return f"{scheme}:///{quote(os.path.join(os.getcwd(), _file_name(name)))}{question}{options}"


def _file_name(text: str) -> str:
    """Return the name of the file in the path of a ``sqlite://`` URL, which may be written as a URL of SQLite's own."""
    if not text.startswith("file:"):
        return text
    name = unquote(text.removeprefix("file:"))
    return name.removeprefix("//") if name.startswith("///") else name

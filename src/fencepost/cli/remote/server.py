"""Which server commands ask, if they do not open the ledger themselves: ``--server URL``, or ``FENCEPOST_SERVER``.

The API token is read from a file or from the environment, never from an argument: those are visible to other users.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from fencepost.errors import ConfigurationError

SERVER, TOKEN = "FENCEPOST_SERVER", "FENCEPOST_TOKEN"
_WITH_VALUE = ("--server", "--token-file")
_INSECURE = "--insecure-http"
_API = "/api/v1"
_NEVER = frozenset({"run", "serve", "migrate", "effects", "tune"})
_NOT_WHEN_SAID = _NEVER | {"exec", "demo", "chaos"}
_chosen: ContextVar[Server | None] = ContextVar("fencepost_server", default=None)
_is_asked: ContextVar[bool] = ContextVar("fencepost_server_is_asked", default=False)


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the API token for it. `is_said`: by an option, not by the environment."""

    url: SplitResult
    token: str = field(repr=False)
    is_said: bool

    @property
    def shown(self) -> str:
        """The address, for messages."""
        return f"{self.url.scheme}://{self.url.netloc}{self.url.path}"


def place_of(option: str, command: str) -> str | None:
    """Say where an option stands that was typed at the wrong place, behind `command`; None if it is no such option."""
    if option in _WITH_VALUE or option == _INSECURE:
        typed = {"--server": "--server URL", "--token-file": "--server URL --token-file FILE"}
        words = typed.get(option, f"{_INSECURE} --server URL")
        return f"{option} stands before the command: fencepost {words} {command}"
    return None


def server_words(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options for the server, which come before the command, and the other words."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0].partition("=")[0] in _WITH_VALUE or rest[0] == _INSECURE):
        name, equals, value = rest.pop(0).partition("=")
        if name in _WITH_VALUE and not equals:
            if not rest:
                raise ConfigurationError(f"{name} needs a value")
            value = rest.pop(0)
        given[name] = value
    return given, rest


@contextmanager
def chosen_by(given: dict[str, str], command: str) -> Iterator[None]:
    """Have commands within this block ask the server that options or the environment name, if any does."""
    server = _server(given)
    if server is not None and command in (_NOT_WHEN_SAID if server.is_said else _NEVER):
        by = "--server" if server.is_said else SERVER
        raise ConfigurationError(
            f"fencepost {command} does not work with a server ({by}): it needs the ledger, a store or files of its own"
        )
    token = _chosen.set(server)
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen_server(ledger: str) -> Server | None:
    """Return the server to ask; None if the ledger is to be opened. An option counts more than the environment."""
    server = _chosen.get()
    if server is None or not ledger:
        return server
    if server.is_said:
        raise ConfigurationError("give --server or --ledger, not both")
    return None


@contextmanager
def asking() -> Iterator[None]:
    """Mark that a server is asked, who knows by itself who acts."""
    token = _is_asked.set(True)
    try:
        yield
    finally:
        _is_asked.reset(token)


def refuse_by() -> None:
    """Refuse a name of the person who acts where a server is asked: the API token says who that is."""
    if _is_asked.get():
        raise ConfigurationError("--by does not work with a server: who acts is the one whose API token it is")


def refuse_server(ledger: str) -> None:
    """Refuse what needs the ledger itself where a server was chosen."""
    if chosen_server(ledger) is not None:
        raise ConfigurationError("this does not work with a server: it needs the ledger itself (--ledger URL)")


def _server(given: dict[str, str]) -> Server | None:
    text = given.get("--server") or os.environ.get(SERVER, "")
    if not text:
        if given:
            raise ConfigurationError(f"{' and '.join(given)} without --server URL or {SERVER}")
        return None
    url = _read_url(text, is_insecure=_INSECURE in given)
    return Server(url, _token(given.get("--token-file", "")), is_said="--server" in given)


def _read_url(text: str, *, is_insecure: bool) -> SplitResult:
    try:
        url = urlsplit(text.rstrip("/"))
        has_more = bool(url.query or url.fragment or url.username or url.password)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        is_url, has_more = False, False
    if not is_url or has_more:
        raise ConfigurationError("write the server as https://HOST:PORT/PREFIX, without user, query and fragment")
    if url.path.endswith(_API):
        raise ConfigurationError(f"give the server's address without {_API}: {text.rstrip('/').removesuffix(_API)}")
    if url.scheme == "http" and not is_insecure and not _is_loopback(str(url.hostname)):
        raise ConfigurationError(
            f"http://{url.hostname} would send the API token in clear text: use https, or {_INSECURE}"
        )
    return url


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(file: str) -> str:
    try:
        text = Path(file).read_text(encoding="ascii") if file else os.environ.get(TOKEN, "")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'not ASCII'}") from None
    token = text.strip()
    # Programs that Fencepost starts have the fencing token of their run in this variable: a number.
    if not token.startswith("fp_") or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"a server needs an API token, which begins with fp_: in {TOKEN}, or in a file that --token-file names; "
            "an admin makes one: fencepost api-tokens add NAME ROLE --expires-in 30d"
        )
    return token

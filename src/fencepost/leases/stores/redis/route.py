"""Finds the server that accepts writes: at a fixed address, or by asking sentinels for the current primary."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencepost.core.runtime import Runtime
from fencepost.errors import InvalidUrl
from fencepost.leases.stores.beside import within
from fencepost.leases.stores.redis.wire import SecureWire, Wire
from fencepost.leases.urls import StoreUrl

SERVER_PORT = 6379
SENTINEL_PORT = 26379
OPTIONS = frozenset({"prefix", "ca", "cert", "key", "sentinel_user", "sentinel_password"})
_TLS_OPTIONS = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
_SENTINEL_OPTIONS = {"sentinel_user", "sentinel_password"}

Address = tuple[str, int]
Clock = Callable[[], float]


class UnknownPrimary(RedisConnectionError):
    """The sentinels replied, and none monitors a primary with that name."""


class Route(Protocol):
    """A way to connect to the server. Its `str` names the server for messages, without secrets."""

    def connect(self, answer_by: float) -> Wire:
        """Return a new connection, or raise a `RedisError`, by the deadline."""
        ...


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections with the same settings to any address."""

    runtime: Runtime
    settings: Mapping[str, Any]
    is_secure: bool = False

    def dial(self, address: Address, answer_by: float) -> Wire:
        """Connect, or raise a `RedisError`, by the deadline."""
        left_s = answer_by - self.clock()
        try:
            return within(self.runtime, left_s, lambda: self._dialled(address, answer_by), Wire.hang_up)
        except TimeoutError:
            raise RedisTimeoutError("no connection in time") from None

    def clock(self) -> float:
        """Return the monotonic reading."""
        return self.runtime.monotonic()

    def _dialled(self, address: Address, answer_by: float) -> Wire:
        """Connect. Half of the time is for TCP, half for TLS: redis-py applies the timeout to each of them."""
        half_s = max((answer_by - self.clock()) / 2, 0.001)
        wire = (SecureWire if self.is_secure else Wire)(
            clock=self.clock,
            answer_by=answer_by,
            host=address[0],
            port=address[1],
            socket_connect_timeout=half_s,
            socket_timeout=half_s,
            protocol=2,
            client_name="fencepost",
            driver_info=None,
            **self.settings,
        )
        wire.connect()  # type: ignore[no-untyped-call]
        return wire


class DirectRoute:
    """One server at a fixed address."""

    def __init__(self, dialer: Dialer, address: Address) -> None:
        self._dialer = dialer
        self._address = address

    def __str__(self) -> str:
        return f"the server at {spelled(self._address)}"

    def connect(self, answer_by: float) -> Wire:
        """Connect to the address."""
        return self._dialer.dial(self._address, answer_by)


class SentinelRoute:
    """The primary that the sentinels name at the moment of connecting."""

    def __init__(self, *, dialer: Dialer, asking: Dialer, sentinels: tuple[Address, ...], name: str) -> None:
        self._dialer = dialer
        self._asking = asking
        self._sentinels = sentinels
        self._name = name

    def __str__(self) -> str:
        return f"the primary {self._name!r} of the sentinels {', '.join(map(spelled, self._sentinels))}"

    def connect(self, answer_by: float) -> Wire:
        """Ask, connect, and make sure that it is a primary: a sentinel may not know yet."""
        wire = self._dialer.dial(self._find_primary(answer_by), answer_by)
        try:
            role = wire.ask(("ROLE",))[0]
        except BaseException:
            wire.hang_up()
            raise
        if role != b"master":
            wire.hang_up()
            raise ReadOnlyError("the sentinels still name a server that is a replica now")
        return wire

    def _find_primary(self, answer_by: float) -> Address:
        failure: RedisError = UnknownPrimary(f"none of the sentinels knows a primary named {self._name!r}")
        for number, sentinel in enumerate(self._sentinels):
            waiting = len(self._sentinels) - number  # the remaining sentinels and the primary share the time
            now = self._asking.clock()
            try:
                found = self._ask(sentinel, now + (answer_by - now) / (waiting + 1))
            except RedisError as error:
                failure = error
                continue
            if found is not None:
                self._sentinels = (sentinel, *(other for other in self._sentinels if other != sentinel))
                return found
        raise failure

    def _ask(self, sentinel: Address, answer_by: float) -> Address | None:
        wire = self._asking.dial(sentinel, answer_by)
        try:
            found = wire.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name))
        finally:
            wire.hang_up()
        return None if found is None else (found[0].decode(), int(found[1]))


def route_from_url(url: StoreUrl, runtime: Runtime) -> Route:
    """Parse the URL, except the prefix, and return the route. Raises `InvalidUrl`."""
    url.only_options(OPTIONS)
    if not url.hosts:
        raise InvalidUrl(f"{url.scheme}:// names no server; write {url.scheme}://host:port/…")
    if url.scheme == "redis+sentinel":
        return _sentinel_route(url, runtime)
    if len(url.hosts) > 1:
        raise InvalidUrl("several addresses are sentinels: write redis+sentinel://host:port,host:port/name-of-primary")
    if unfit := sorted(_SENTINEL_OPTIONS & set(url.options)):
        raise InvalidUrl(f"the option {unfit[0]!r} needs redis+sentinel://")
    settings = {**_account(url.user, url.password), "db": _database(url.path.strip("/"))}
    is_secure = url.scheme == "rediss"
    dialer = Dialer(runtime, {**settings, **_tls(url, is_secure)}, is_secure)
    return DirectRoute(dialer, (url.hosts[0][0], url.hosts[0][1] or SERVER_PORT))


def spelled(address: Address) -> str:
    """Format an address as host:port."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _sentinel_route(url: StoreUrl, runtime: Runtime) -> SentinelRoute:
    _tls(url, is_secure=False)
    name, _, database = url.path.strip("/").partition("/")
    if not name:
        raise InvalidUrl("redis+sentinel:// needs the primary's name: redis+sentinel://host:port,host:port/name/0")
    options = url.options
    return SentinelRoute(
        dialer=Dialer(runtime, {**_account(url.user, url.password), "db": _database(database)}),
        asking=Dialer(runtime, _account(options.get("sentinel_user"), options.get("sentinel_password"))),
        sentinels=tuple((host, port or SENTINEL_PORT) for host, port in url.hosts),
        name=name,
    )


def _account(user: str | None, password: str | None) -> dict[str, str]:
    account = {"username": user, "password": password}
    return {word: value for word, value in account.items() if value}


def _database(text: str) -> int:
    if text and not text.isdecimal():
        raise InvalidUrl(f"database {text!r} is not a number; write redis://host:port/0")
    return int(text or 0)


def _tls(url: StoreUrl, is_secure: bool) -> dict[str, str]:
    given = {option: url.options[option] for option in _TLS_OPTIONS if option in url.options}
    if given and not is_secure:
        raise InvalidUrl(f"the option {next(iter(given))!r} needs rediss://")
    if ("cert" in given) != ("key" in given):
        raise InvalidUrl("the options 'cert' and 'key' go together")
    _try_files(given)
    return {_TLS_OPTIONS[option]: path for option, path in given.items()}


def _try_files(given: Mapping[str, str]) -> None:
    """Raise now, and not at every connection, if a file cannot be used."""
    try:
        if "ca" in given:
            ssl.create_default_context(cafile=given["ca"])
        if "cert" in given:
            ssl.create_default_context().load_cert_chain(given["cert"], given["key"])
    except OSError as error:
        names = ", ".join(Path(path).name for path in given.values())
        raise InvalidUrl(f"the files for TLS ({names}) cannot be used: {error}") from None

"""How requests say who they come from: by cookie, API token, a proxy's header, or the host application's callable.

A door is asked twice for each request: which credentials it brings (without asking the ledger), and who that is.
Only one way counts for a request: an API token, if it brings one; else the proxy or the host application, where one is
declared; else the cookie of a login.
"""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from anyio import from_thread
from starlette.requests import Request

from fencepost.access import Authentication, HostPrincipal
from fencepost.access.identity import PROXY
from fencepost.access.refusals import Unknown
from fencepost.core.audit_words import LOG_IN
from fencepost.core.rights import HumanAct, permissions_of
from fencepost.errors import FencepostError, InvalidSetting, NotAllowed, NotAuthenticated
from fencepost.web.cookies import login_secret
from fencepost.web.headers import cookies_of

if TYPE_CHECKING:
    from starlette.types import Scope as AsgiScope

    from fencepost.access import Authorized
    from fencepost.core.runtime import Runtime
    from fencepost.web.guard import Passing

_logger = logging.getLogger("fencepost.web")
_LONGEST_CREDENTIAL = 512  # characters; tokens and login secrets have 67 at most, and longer ones are not looked up
_SHORTEST_SECRET = 16  # characters: who can connect from the proxy's address must not guess it
TOKEN_MARK = "fp_"  # noqa: S105 - with which our API tokens begin
HOST_STREAM_S = 60.0  # how late it is noticed that someone has logged out of the proxy or the host application


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """What a request brings. `kind` is ``api token``, ``proxy``, ``host``, ``login`` or ``none``."""

    kind: str
    value: Any = None

    @property
    def is_deliberate(self) -> bool:
        """Whether a program sent it on purpose: browsers never add it by themselves."""
        return self.kind == "api token"


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A proxy that has identified people already, and says who they are in a header.

    It is believed only if the connection comes from one of `addresses`, and brings `secret` in `secret_header`.
    """

    addresses: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    secret: str
    user_header: str = "x-fencepost-user"
    secret_header: str = "x-fencepost-secret"  # noqa: S105 - the name of a header

    @staticmethod
    def of(addresses: Iterable[str], secret: str, *, user_header: str = "x-fencepost-user") -> ProxyHeader:
        """Read addresses and networks as they are typed; refuse an empty list and a short secret."""
        try:
            networks = tuple(ipaddress.ip_network(each.strip(), strict=False) for each in addresses)
        except ValueError as error:
            raise InvalidSetting(f"the addresses of the proxy: {error}") from None
        if not networks:
            raise InvalidSetting("say from which addresses the proxy comes: anyone could send its header otherwise")
        if len(secret) < _SHORTEST_SECRET:
            raise InvalidSetting(f"the secret of the proxy has to have {_SHORTEST_SECRET} characters or more")
        return ProxyHeader(networks, secret, user_header.lower())

    def user(self, passing: Passing) -> str | None:
        """Return who the proxy says it is; None if it is not the proxy that says so."""
        headers = passing.headers
        given = headers.get(self.secret_header, "").encode("latin-1")
        is_known = hmac.compare_digest(given, self.secret.encode()) and self._is_ours(passing.address)
        return (headers.get(self.user_header) or None) if is_known else None

    def _is_ours(self, address: str | None) -> bool:
        try:
            parsed = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        return any(parsed in network for network in self.addresses)


class Visitor:
    """Someone who was let in, for the length of a request or a stream."""

    def __init__(self, authorized: Authorized, kind: str) -> None:
        """Let in the caller of `authorized`, who was identified by a credential of this kind."""
        self.authorized = authorized
        self.kind = kind

    @property
    def name(self) -> str:
        """Who it is, for the head of the page."""
        return self.authorized.caller.name

    @property
    def how(self) -> str:
        """How that was found out."""
        return self.authorized.caller.how

    @property
    def can_log_out(self) -> bool:
        """Whether there is a login to end."""
        return self.kind == "login"

    @property
    def stream_lasts_s(self) -> float | None:
        """How long a stream may go on before it has to ask anew: where only the request shows who asks, not long."""
        return HOST_STREAM_S if self.kind in ("host", "proxy") else None

    def may_somewhere(self, act: HumanAct) -> bool:
        """Whether the caller has this right for any job at all."""
        allowed = permissions_of(self.authorized.caller, self.authorized.scope_key).jobs_for(act)
        return allowed is None or bool(allowed)

    def may_do(self, act: str) -> bool:
        """Return the same, for templates, by the name of the right."""
        return self.may_somewhere(HumanAct(act))

    def may_on(self, act: str, job: str) -> bool:
        """Whether the caller has this right for a job: for what a page offers. What is done is checked below."""
        return self.authorized.may(HumanAct(act), job)

    def must_say(self, act: str, job: str | None = None) -> bool:
        """Whether the caller's role has to give a reason for this: the field is marked then."""
        return self.authorized.must_say(HumanAct(act), job)

    def is_still_in(self) -> bool:
        """Whether the login or API token is still valid, and still lets one look."""
        try:
            self.authorized.check()
        except NotAuthenticated:
            return False
        return self.may_somewhere(HumanAct.LOOK)


HostPerson = HostPrincipal | str | None
HostCallable = Callable[[Request], HostPerson | Awaitable[HostPerson]]
"""The host application's: given a request, returns who it comes from, or None. It may be asynchronous."""


class Operated(Protocol):
    """What the pages are about: an application, or what stands for one where only its ledger is known."""

    @property
    def runtime(self) -> Runtime: ...
    @property
    def operations(self) -> Any: ...


class Door:
    """Knows who a request comes from. The ledger is opened when it is first asked for, not before."""

    def __init__(
        self,
        operated: Operated,
        *,
        proxy: ProxyHeader | None = None,
        host: HostCallable | None = None,
        is_behind_proxy: bool = False,
    ) -> None:
        """Let people operate `operated`, identified by a proxy or the host application where one is given.

        `is_behind_proxy`: all connections come from a proxy, so its address says nothing about the client.
        """
        self.is_behind_proxy = is_behind_proxy
        self.runtime = operated.runtime
        self.identity_headers: Sequence[str] = () if proxy is None else (proxy.user_header, proxy.secret_header)
        self.takes_passwords = proxy is None and host is None
        self._operated = operated
        self._proxy = proxy
        self._host = host
        self._opening = self.runtime.lock()
        self._opened: Authentication | None = None

    @property
    def authentication(self) -> Authentication:
        """Who may use the operations."""
        if self._opened is None:
            operations = self._operated.operations
            with self._opening:
                if self._opened is None:
                    self._opened = Authentication(operations)
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether the ledger was asked for already."""
        return self._opened is not None

    def credentials(self, passing: Passing, scope: AsgiScope) -> RequestCredentials:
        """Return the one credential of a request that counts."""
        return read_credentials(passing, scope, proxy=self._proxy, host=self._host)

    def entry(self, credentials: RequestCredentials, passing: Passing) -> Visitor | None:
        """Return who a request comes from; None if that is not known. Called on a thread: it asks the ledger."""
        if credentials.value is None:
            if any(each in passing.headers for each in self.identity_headers):
                self.count_refused(LOG_IN, PROXY, passing.address)
            return None
        try:
            found = self._authorized(credentials, passing)
        except NotAuthenticated:
            return None
        return None if found is None else Visitor(found, credentials.kind)

    def record_refused(self, visitor: Visitor, act: HumanAct, path: str) -> None:
        """Put on record that someone was refused who has this right for no job. Called on a thread."""
        error = NotAllowed(f"{visitor.name} may not {act} on any job")
        self.authentication.refusals.record(visitor.authorized.caller, act, error, {"path": path})

    def count_refused(self, act: str, how: str, address: str | None) -> None:
        """Count what was refused before it was known who asks. Called on a thread: it may ask the ledger."""
        try:
            self.authentication.refusals.count(Unknown(how, None, address, act))
        except FencepostError:
            _logger.warning("a refused request could not be put on record (%s)", act)

    def _authorized(self, credentials: RequestCredentials, passing: Passing) -> Authorized | None:
        known = self.authentication
        said = {"address": passing.address, "request_id": passing.request_id}
        match credentials.kind:
            case "api token":
                return known.by_api_token(credentials.value, **said)
            case "login":
                return known.by_login(credentials.value, **said, is_use=not passing.is_by_itself)
            case "proxy":
                return known.by_proxy(credentials.value, **said)
        person = self._vouched(credentials.value)
        return None if person is None else known.by_host(person, **said)

    def _vouched(self, scope: AsgiScope) -> HostPerson:
        """Ask the host application, on its own loop if it answers there."""
        if self._host is None:
            return None
        answer = self._host(Request(scope))
        if not inspect.isawaitable(answer):
            return answer
        return from_thread.run(_awaited, answer)


async def _awaited(answer: Awaitable[HostPerson]) -> HostPerson:
    return await answer


def read_credentials(
    passing: Passing, scope: AsgiScope, *, proxy: ProxyHeader | None, host: HostCallable | None
) -> RequestCredentials:
    """Return the one credential of a request that counts."""
    scheme, _, token = passing.headers.get("authorization", "").partition(" ")
    is_ours = host is None or token.startswith(TOKEN_MARK)  # a host application may have tokens of its own
    if scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST_CREDENTIAL and is_ours:
        return RequestCredentials("api token", token.strip())
    if proxy is not None:
        return RequestCredentials("proxy", proxy.user(passing))
    if host is not None:
        return RequestCredentials("host", scope)
    cookies = cookies_of(passing.headers.get("cookie"))
    secret = login_secret(cookies, is_https=passing.is_https, root_path=scope.get("root_path", ""))
    if secret and len(secret) <= _LONGEST_CREDENTIAL:
        return RequestCredentials("login", secret)
    return RequestCredentials("none")

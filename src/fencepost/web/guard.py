"""The guard: the outermost layer around everything that the application answers, streams included.

In this order, a request needs: a known kind of connection, one of each header that counts, a Host that is allowed, a
body within the limit, a page of ours as its sender if it changes something, a credential, and the right that its route
declares. What is refused never reaches the application.

**Promises.** Nothing but the routes in `OPEN_ROUTES` answers without a credential, not even with 404. Every response
has the headers of `fencepost.web.headers`. The client's address is the one of the connection: no header changes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from fencepost.core.audit_words import CROSS_SITE, OTHER_HOST, REPEATED
from fencepost.web.cross_site import SAFE_METHODS, is_from_our_pages
from fencepost.web.headers import FRAGMENT, protect, read_headers, repeated
from fencepost.web.hosts import host_name
from fencepost.web.routes import is_open, matched, right_of
from fencepost.web.threads import in_thread
from fencepost.web.troubles import BodyTooLarge, BodyTooSlow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as AsgiScope

    from fencepost.core.runtime import Runtime
    from fencepost.web.doors import Door, RequestCredentials, Visitor
    from fencepost.web.troubles import TroublePages

LARGEST_BODY = 262_144  # bytes: parameters of a run have at most 60,000, and a form spells them longer
LONGEST_TARGET = 8_192  # bytes of a path with its query
BODY_WITHIN_S = 30.0  # from its first byte to its last
PASSING = "fencepost.passing"
"""Where the guard leaves what it knows of a request, for the pages."""

_logger = logging.getLogger("fencepost.web")


@dataclass(slots=True)
class Passing:
    """What the guard knows of a request that it lets through. `entry` is None on open routes."""

    nonce: str
    request_id: str
    headers: Mapping[str, str]
    address: str | None
    is_https: bool
    runtime: Runtime
    is_api: bool = False
    entry: Visitor | None = None

    @property
    def is_by_itself(self) -> bool:
        """Whether an open page asks, without anyone doing something: its stream, and the part of it that changes."""
        return self.headers.get(FRAGMENT) == "1" or "text/event-stream" in self.headers.get("accept", "")


class _Refused(Exception):
    """A request is refused with this response."""

    def __init__(self, response: Response, why: str, *, act: str | None = None) -> None:
        """`act` is what goes on record, if it does: counted by address and minute, as it is not known who asks."""
        super().__init__(why)
        self.response = response
        self.act = act


class Guard:
    """Lets through what is allowed; see above."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        *,
        door: Door,
        hosts: frozenset[str],
        troubles: TroublePages,
        prefix: str = "",
        is_https: bool = False,
    ) -> None:
        """Guard `app`, whose routes are `routes`.

        `prefix` is the path under which a proxy in front shows us. `is_https`: that proxy speaks TLS for us.
        """
        self._app = app
        self._routes = routes
        self._door = door
        self._hosts = hosts
        self._troubles = troubles
        self._prefix = prefix
        self._is_https = is_https

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._http(self._under_prefix(dict(scope)), receive, send)
        else:
            raise RuntimeError(f"this application does not answer connections of type {scope['type']!r}")

    async def _http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        passing = self._passing(scope)
        scope[PASSING] = passing
        has_begun = has_ended = False

        async def protected(message: Message) -> None:
            nonlocal has_begun, has_ended
            has_ended = message["type"] == "http.response.body" and not message.get("more_body")
            if message["type"] == "http.response.start":
                has_begun = True
                protect(MutableHeaders(scope=message), nonce=passing.nonce)
            await send(message)

        try:
            await self._check(scope, passing)
            await self._app(scope, _bounded(receive, waits=scope["method"] in SAFE_METHODS), protected)
        except _Refused as refused:
            _logger.info("refused: %s (request %s)", refused, passing.request_id)
            if refused.act is not None:
                await in_thread(self._door.count_refused, refused.act, "unknown", passing.address)
            await self._troubles.of_kind(refused.response, passing)(scope, receive, protected)
        except Exception as error:
            if has_ended:
                return  # it was answered, and logged
            if has_begun:
                raise
            response = self._troubles.response(error, passing, root_path=scope.get("root_path", ""))
            await response(scope, receive, protected)

    async def _check(self, scope: AsgiScope, passing: Passing) -> None:
        """Raise if the request is not allowed; else leave in `passing` who it comes from."""
        _check_form(scope, self._door.identity_headers)
        self._check_host(passing.headers, is_probe=str(scope["path"]).endswith("/health"))
        route = matched(self._routes, scope)
        is_unsafe = scope["method"] not in SAFE_METHODS
        credentials = self._door.credentials(passing, scope)
        if is_unsafe and not credentials.is_deliberate and not is_from_our_pages(passing.headers):
            response = self._troubles.cross_site(passing, scope)
            raise _Refused(response, "it changes something, and came from elsewhere", act=CROSS_SITE)
        if route is not None and is_open(route):
            return
        await self._identify(scope, passing, credentials)
        await self._check_right(route, passing, scope)

    async def _identify(self, scope: AsgiScope, passing: Passing, credentials: RequestCredentials) -> None:
        passing.entry = await in_thread(self._door.entry, credentials, passing)
        if passing.entry is None:
            response = self._troubles.unknown_caller(passing, scope, has_token=credentials.kind == "api token")
            raise _Refused(response, "nobody is known by its credentials")

    async def _check_right(self, route: BaseRoute | None, passing: Passing, scope: AsgiScope) -> None:
        if route is None:
            return  # the router says 404 or 405, to those who have a credential
        act = right_of(route)
        if act is None:  # cannot be built; see refuse_undeclared
            raise _Refused(PlainTextResponse("this route declares no right\n", 500), "its route declares no right")
        entry = passing.entry
        if entry is None or not await in_thread(entry.may_somewhere, act):
            if entry is not None:
                await in_thread(self._door.record_refused, entry, act, str(scope["path"]))
            raise _Refused(self._troubles.not_allowed(act, passing, scope), f"{act} is allowed on no job")

    def _check_host(self, headers: Mapping[str, str], *, is_probe: bool) -> None:
        name = host_name(headers.get("host", ""))
        if name is None or name not in self._hosts:
            raise _Refused(
                PlainTextResponse(
                    "this server does not answer to that name; allow it by --allowed-host, or web(allowed_hosts=…)\n",
                    421,
                ),
                "its Host is not allowed",
                act=None if is_probe else OTHER_HOST,  # probes come by address, every few seconds
            )

    def _passing(self, scope: AsgiScope) -> Passing:
        client = scope.get("client")
        return Passing(
            nonce=self._door.runtime.new_id(),
            request_id=self._door.runtime.new_id()[:16],
            headers=read_headers(scope["headers"]),
            address=None if client is None else str(client[0]),
            is_https=self._is_https or scope.get("scheme") == "https",
            runtime=self._door.runtime,
            is_api=str(scope["path"]).removeprefix(scope.get("root_path", "")).startswith("/api/"),
        )

    def _under_prefix(self, scope: dict[str, Any]) -> dict[str, Any]:
        """Return the scope with our prefix, whether the proxy has taken it off the path or not."""
        if not self._prefix:
            return scope
        path = scope["path"]
        is_kept = path == self._prefix or path.startswith(self._prefix + "/")
        return {**scope, "root_path": self._prefix, "path": path if is_kept else self._prefix + path}


def _check_form(scope: AsgiScope, identity_headers: Sequence[str]) -> None:
    """Refuse what no browser and no honest program sends."""
    if twice := repeated(scope["headers"], also=identity_headers):
        raise _Refused(
            PlainTextResponse(f"these headers may come once: {', '.join(twice)}\n", 400),
            "repeated headers",
            act=REPEATED,
        )
    if len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) > LONGEST_TARGET:
        raise _Refused(PlainTextResponse("the address is too long\n", 414), "a long address")
    declared = read_headers(scope["headers"]).get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()) or int(declared[:20]) > LARGEST_BODY:
        raise _Refused(PlainTextResponse(f"a body has at most {LARGEST_BODY} bytes\n", 413), "a large body")


def _bounded(receive: Receive, *, waits: bool) -> Receive:
    """Return a `receive` that ends a body which is larger than allowed, or takes longer.

    `waits`: a request without a body, whose stream waits here until its client is gone.
    """
    seen, is_whole = 0, waits
    until = asyncio.get_running_loop().time() + BODY_WITHIN_S

    async def counting() -> Message:
        nonlocal seen, is_whole
        try:
            async with asyncio.timeout_at(None if is_whole else until):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow from None
        is_whole = not message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise BodyTooLarge
        return message

    return counting

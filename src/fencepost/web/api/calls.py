"""One request to REST, as a route sees it: who asks, under which key, and what version of it was seen."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from fencepost.access.repeating import KeyedAct, KeyedRequest, checked_key
from fencepost.app.records import LedgerRecord
from fencepost.core.rights import HumanAct
from fencepost.errors import InvalidParameters
from fencepost.web.api.replies import ApiReply, page, spelled_json
from fencepost.web.guard import PASSING, Passing

if TYPE_CHECKING:
    from fencepost.access import Authorized

T = TypeVar("T")
KEY_HEADER = "idempotency-key"
REPEATED_HEADER = "idempotency-replayed"
_TAG = re.compile(r'(?:W/)?"([0-9a-f]{1,64})"')
_SECRETS = ("password",)
"""Fields whose values are left out of the hash of a request, which is kept: they could be guessed from it."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that the guard has let through."""

    ask: Authorized
    right: HumanAct
    path: str
    query: Sequence[tuple[str, str]]
    keyed: KeyedRequest | None
    expect: str | None
    is_new: bool

    def act(
        self,
        do: Callable[[], T],
        said: Callable[[T], LedgerRecord],
        *,
        within: Callable[[Any], LedgerRecord] | None = None,
        job: str | None = None,
        status: int = 200,
        only_now: Callable[[T], dict[str, Any]] | None = None,
    ) -> ApiReply:
        """Do something, once if the request has a key.

        `said` makes the answer of what was done. `within` makes the same of what the act's transaction returned. What
        `only_now` returns is in this answer, and never in a repeated one.
        """
        done: list[T] = []

        def doing() -> T:
            done.append(do())
            return done[0]

        def text(result: T) -> str:
            return spelled_json(said(result).to_json())

        if self.keyed is None:
            told, headers, code = text(doing()), {}, status
        else:
            said_within = None if within is None else lambda result: spelled_json(within(result).to_json())
            kept = self.ask.once(self.keyed, KeyedAct(self.right, doing, text, said_within, job, status))
            told, code = kept.text, kept.status
            headers = {REPEATED_HEADER: "true"} if kept.is_repeated else {}
        if only_now is not None and done:
            told = spelled_json(json.loads(told) | only_now(done[0]))
        return ApiReply(told, code, headers)

    def page(self, records: Sequence[LedgerRecord], limit: int, **edge: Any) -> ApiReply:
        """Return a page, with a link to the next one if this one is full. `edge` is where that begins."""
        return page(records, None if len(records) < limit else self.link(**edge))

    def link(self, **edge: Any) -> str:
        """Return the address of the same list from another place on."""
        kept = [(name, value) for name, value in self.query if name not in edge]
        return f"{self.path}?{urlencode([*kept, *edge.items()])}"


def call_of(right: HumanAct, *, is_act: bool) -> Callable[[Request], Any]:
    """Return what makes the call of a request, for a route that needs `right`."""

    async def call(request: Request) -> ApiCall:
        passing: Passing = request.scope[PASSING]
        if passing.entry is None:
            raise RuntimeError("a route of the API was reached without a credential")
        key = passing.headers.get(KEY_HEADER)
        body = await request.body() if is_act else b""
        expect, is_new = _preconditions(passing.headers) if is_act else (None, False)
        return ApiCall(
            ask=passing.entry.authorized,
            right=right,
            path=request.scope["path"],
            query=request.query_params.multi_items(),
            keyed=None if key is None or not is_act else _keyed(request, key, body),
            expect=expect,
            is_new=is_new,
        )

    return call


def _keyed(request: Request, key: str, body: bytes) -> KeyedRequest:
    root = request.scope.get("root_path", "")
    path = f"{request.method} {str(request.scope['path']).removeprefix(root)}"
    said = [path, request.scope["query_string"].decode("latin-1"), _without_secrets(body)]
    return KeyedRequest(checked_key(key), path, hashlib.sha256("\0".join(said).encode()).hexdigest())


def _without_secrets(body: bytes) -> str:
    """Return the body without passwords: its hash is kept for a day."""
    try:
        read = json.loads(body)
    except ValueError:
        return body.decode("latin-1")
    if not isinstance(read, dict) or not any(name in read for name in _SECRETS):
        return body.decode("latin-1")
    return json.dumps({name: value for name, value in read.items() if name not in _SECRETS}, sort_keys=True)


def _preconditions(headers: Any) -> tuple[str | None, bool]:
    """Return the version that has to be there still, and whether nothing may be there yet."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    if unwanted is not None and unwanted.strip() != "*":
        raise InvalidParameters("If-None-Match of an act can only be *")
    if wanted is None or wanted.strip() == "*":
        return None, unwanted is not None
    found = _TAG.fullmatch(wanted.strip())
    if found is None:
        raise InvalidParameters('If-Match has one ETag, as a GET has shown it: "0123456789abcdef"')
    return found[1], unwanted is not None

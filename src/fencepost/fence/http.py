"""How a service responds to requests with a fencing token. Does no input or output of its own.

==========================================  ===========================================================
a request with an unsafe method, and        response
==========================================  ===========================================================
a token that is not older than the mark     from the application; the mark is raised to the token
an older token                              409, a problem of type `STALE`
no token                                    428, or from the application with ``required=False``
an invalid header                           400
a key that does not guard this service      400
marks that cannot be read                   503: it is unknown whether it may write, so it may not
==========================================  ===========================================================

Bodies are ``application/problem+json`` (RFC 9457). Methods that write nothing (GET, HEAD, OPTIONS, TRACE) are not
checked.

**Promises.** Once a token was accepted, no older token with the same key is accepted.

**Not promised.** That an accepted request is still the newest when the application writes. Raising the mark and
the application's own transaction are two steps. Between them, the request or this service may be paused while a
newer holder is accepted and writes. The window is as long as the request takes. To close it, keep the marks in the
database that is written to (`SqlMarks`) and make the check the last statement of the transaction::

    fence = request.scope["fencepost.fence"]      # WSGI: environ["fencepost.fence"]
    with engine.begin() as tx:
        tx.execute(…)
        fence.check(tx)                           # LeaseLost rolls it back and becomes a 409

**No authentication.** Any client that may send requests may send tokens, and a high token locks others out. Put the
middleware behind your authentication, and list the `keys` that guard the service.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from fencepost.core.fencing import NOTHING_WRITTEN, Claimant, FencingToken, fencing_of
from fencepost.errors import ConfigurationError, InvalidHeader, LeaseLost
from fencepost.fence.http_header import NAME, parsed
from fencepost.fence.marks import Marks, Stale

A = TypeVar("A")

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
PLACE = "fencepost.fence"
STALE = "urn:fencepost:problem:stale-token"
MISSING = "urn:fencepost:problem:token-required"
GARBLED = "urn:fencepost:problem:invalid-token"
UNKNOWN = "urn:fencepost:problem:marks-unavailable"
CONTENT_TYPE = "application/problem+json"

_LOG = logging.getLogger("fencepost.fence")


@dataclass(frozen=True, slots=True)
class Problem:
    """A response that is sent instead of the application's."""

    status: HTTPStatus
    type: str
    title: str
    detail: str
    more: Mapping[str, Any] | None = None

    @property
    def body(self) -> bytes:
        """The problem as JSON."""
        fields = {"type": self.type, "title": self.title, "status": int(self.status), "detail": self.detail}
        return json.dumps({**fields, **(self.more or {})}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The type and the length of the body."""
        return {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(self.body))}


@dataclass(slots=True)
class RequestFence:
    """The fence of one request: which token it has, and whether it may still write."""

    fencing: FencingToken
    marks: Marks
    stale: Stale | None = None  # the result of the last check

    def check(self, connection: Any = None) -> None:
        """Raise `LeaseLost` if a newer holder has been accepted since.

        With a connection to the database that has the marks, this locks the mark so that it cannot be raised until the
        transaction ends. Make it the last statement. Without a connection, this compares with the marks again, which
        narrows the window but does not close it.
        """
        if connection is None:
            self.stale = self.marks.admit(self.fencing)
        elif (check_in := getattr(self.marks, "check_in", None)) is not None:
            self.stale = check_in(connection, self.fencing)
        else:
            raise TypeError(
                f"{type(self.marks).__name__} are not in a database, so they cannot be checked in a transaction; keep "
                "the marks in the database that is written to, or call check() without a connection"
            )
        if self.stale is not None:
            raise LeaseLost(self.fencing.key, self.fencing.token, f"{self.stale.why}; {NOTHING_WRITTEN}")

    def problem(self, lost: LeaseLost) -> Problem:
        """Return the response to a stale writer, with its `body`, `status` and `headers`.

        For frameworks that convert exceptions into responses themselves. If `lost` is about another token than that of
        the request, such as a lease of the application's own, it is raised again.
        """
        if (lost.name, lost.token) != (self.fencing.key, self.fencing.token):
            raise lost
        return stale_problem(self.fencing, self.stale or Stale(None, lost.reason))


@dataclass(frozen=True, slots=True)
class RequestGate:
    """Which requests need a token, and which tokens are accepted. With `methods` None, all unsafe methods need one."""

    marks: Marks
    required: bool = True
    methods: Collection[str] | None = None
    keys: Collection[str] | None = None

    def guards(self, method: str) -> bool:
        """Whether a request with this method needs a token."""
        return method.upper() not in SAFE if self.methods is None else method.upper() in self.methods

    def judge(self, header: str | None) -> RequestFence | Problem | None:
        """Check the header of a request with a guarded method. None: the request passes without a fence. May block."""
        if header is None:
            return _missing() if self.required else None
        try:
            offered = parsed(header)
        except InvalidHeader as error:
            return _garbled(str(error))
        if self.keys is not None and offered.key not in self.keys:
            return _garbled(f"key {offered.key!r} does not guard this service")
        return self._admitted(offered)

    def _admitted(self, offered: FencingToken) -> RequestFence | Problem:
        try:
            stale = self.marks.admit(offered)
        except ConfigurationError:
            raise
        except Exception:  # noqa: BLE001 - after any error it is unknown whether the request may write
            _LOG.exception("could not read the mark of key %r, so a request was refused", offered.key)
            return _unknown()
        return RequestFence(offered, self.marks) if stale is None else stale_problem(offered, stale)


class HttpFence(Generic[A]):
    """Middleware around `app` that checks tokens; the options are those of `RequestGate`."""

    def __init__(
        self,
        app: A,
        *,
        marks: Marks,
        required: bool = True,
        methods: Collection[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._gate = RequestGate(marks, required=required, methods=methods, keys=keys)


def stale_problem(offered: FencingToken, stale: Stale) -> Problem:
    """Return the response to a stale writer, which has lost its lease and must not retry."""
    current = None if stale.mark is None else stale.mark.token
    return Problem(
        HTTPStatus.CONFLICT,
        STALE,
        "A stale writer was refused",
        f"{stale.why}; {NOTHING_WRITTEN}",
        {"key": offered.key, "token": offered.token, "current_token": current},
    )


def raise_if_stale(claimant: Claimant, response: Any) -> None:
    """Raise `LeaseLost` if a service refused the writer as stale. Takes a response of requests, httpx or urllib3."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if status != HTTPStatus.CONFLICT or CONTENT_TYPE not in response.headers.get("content-type", ""):
        return
    problem = response.json()
    if isinstance(problem, dict) and problem.get("type") == STALE:
        shown = fencing_of(claimant)
        raise LeaseLost(shown.key, shown.token, f"a service refused it: {problem.get('detail')}")


def _missing() -> Problem:
    return Problem(
        HTTPStatus.PRECONDITION_REQUIRED,
        MISSING,
        "A fencing token is required",
        f"a request that writes must have a token in the header {NAME}; {NOTHING_WRITTEN}",
    )


def _garbled(why: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, GARBLED, "The fencing token was not understood", f"{why}; {NOTHING_WRITTEN}")


def _unknown() -> Problem:
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        UNKNOWN,
        "The fence did not answer",
        f"it is unknown whether this token may still write; {NOTHING_WRITTEN}, try again",
    )

"""What a request gets that cannot be answered: a sentence, the right status, and never a traceback.

Browsers get a page, programs (those that send an API token, or ask for JSON) a problem document as in RFC 9457.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response

from fencepost.core.problems import CROSS_SITE, FAILED, REFUSED_BY_STATUS, document, kind_of
from fencepost.core.rights import NEEDS, WITHOUT_JOB
from fencepost.core.tick import instant
from fencepost.errors import (
    AlreadyRequested,
    ConfigurationError,
    DuplicateRequest,
    FencepostError,
    IllegalMove,
    LedgerHeld,
    LedgerUnavailable,
    NotAllowed,
    NotAuthenticated,
    NotInLedger,
    ReasonRequired,
    SchemaMismatch,
    StateChanged,
    StoreUnavailable,
    TooManyTries,
)
from fencepost.web.rendering import plain
from fencepost.web.visits import local_target

if TYPE_CHECKING:
    from starlette.types import Scope as AsgiScope

    from fencepost.core.rights import HumanAct
    from fencepost.core.runtime import Runtime
    from fencepost.web.guard import Passing

_logger = logging.getLogger("fencepost.web")


class RefusedBody(Exception):
    """The body of a request is not read to its end."""


class BodyTooLarge(RefusedBody):
    """The body of a request is larger than allowed, and did not say so beforehand."""


class BodyTooSlow(RefusedBody):
    """The body of a request took too long to arrive."""


@dataclass(frozen=True, slots=True)
class PageTrouble:
    """What went wrong, as it is told: status, heading and sentence; `word` is its type, if its status does not say."""

    status: int
    title: str
    sentence: str
    kind: str = "bad"
    word: str | None = None


_STATUSES: tuple[tuple[type[FencepostError], int, str], ...] = (
    (TooManyTries, 429, "Too many tries"),
    (NotAuthenticated, 401, "Not logged in"),
    (ReasonRequired, 422, "A reason is wanted"),
    (NotAllowed, 403, "Not allowed"),
    (NotInLedger, 404, "Not on record"),
    (AlreadyRequested, 409, "Under way already"),
    (DuplicateRequest, 409, "Used before"),
    (IllegalMove, 409, "Not possible any more"),
    (StateChanged, 409, "It has changed meanwhile"),
    (LedgerHeld, 409, "The ledger is held"),
    (LedgerUnavailable, 503, "The ledger is away"),
    (StoreUnavailable, 503, "The lease store is away"),
    (SchemaMismatch, 503, "Tables of another version"),
    (ConfigurationError, 400, "That cannot be"),
)


def trouble_of(error: Exception, request_id: str) -> PageTrouble:
    """Return what to tell of an error. Of what nobody expected, only a number that the log has, too."""
    if isinstance(error, BodyTooSlow):
        return PageTrouble(408, "Too slow", "The body of this request took too long to arrive. Nothing was done.")
    if isinstance(error, BodyTooLarge):
        return PageTrouble(413, "Too large", "The body of this request is too large.")
    for kind, status, title in _STATUSES:
        if isinstance(error, kind):
            known = kind_of(error)
            word = None if known is None else known.word
            return PageTrouble(status, title, _sentence(error), "warn" if status == 409 else "bad", word)
    _logger.error("a page failed (request %s)", request_id, exc_info=error)
    return PageTrouble(
        500, "This page failed", f"Nothing more is known here; the server's log has it as request {request_id}."
    )


def _sentence(error: Exception) -> str:
    if isinstance(error, LedgerUnavailable | StoreUnavailable):
        return "The database does not answer, so nothing can be shown or done. Nodes go on as far as they can."
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…", "?")) else ".")


class TroublePages:
    """Responses to what is refused or failed."""

    def __init__(self, runtime: Runtime, *, can_log_in: bool) -> None:
        """`can_log_in`: there is a page where people log in."""
        self._runtime = runtime
        self._can_log_in = can_log_in

    def response(self, error: Exception, passing: Passing, *, root_path: str) -> Response:
        """Return the response to an error."""
        found = trouble_of(error, passing.request_id)
        if found.status == 503:
            _logger.warning("%s: %s (request %s)", found.title, error, passing.request_id)
            now = instant(self._runtime.wall_us()).replace(microsecond=0).isoformat().replace("+00:00", "Z")
            found = replace(found, sentence=f"{found.sentence} It is {now} by this machine's clock.")
        return self._told(found, passing, root_path, refresh="5" if found.status == 503 else "")

    def cross_site(self, passing: Passing, scope: AsgiScope) -> Response:
        """Return the response to a form that another site has sent."""
        told = PageTrouble(
            403,
            "Not from this page",
            "This request came from another site, or does not say where it came from. Nothing was done.",
            word=CROSS_SITE,
        )
        return self._told(told, passing, scope.get("root_path", ""))

    def no_such_page(self, passing: Passing, *, root_path: str) -> Response:
        """Return the response to a path that no route has."""
        told = PageTrouble(404, "No such page", "There is nothing at this address.")
        return self._told(told, passing, root_path)

    def no_such_method(self, method: str, others: Collection[str], passing: Passing, *, root_path: str) -> Response:
        """Return the response to a method that no route of this path has; others have it."""
        told = PageTrouble(405, "Not done this way", f"This address has no {method}, only {' and '.join(others)}.")
        response = self._told(told, passing, root_path)
        response.headers["allow"] = ", ".join(others)
        return response

    def not_allowed(self, act: HumanAct, passing: Passing, scope: AsgiScope) -> Response:
        """Return the response to one who has a right for no job at all."""
        name = "You" if passing.entry is None else passing.entry.name
        where = " for all jobs" if act in WITHOUT_JOB else ""
        needed = f"{name} may not do this ({act}): it needs the role {NEEDS[act]}{where}"
        told = PageTrouble(403, "Not allowed", f"{needed}. An admin can give it: fencepost permissions.")
        return self._told(told, passing, scope.get("root_path", ""))

    def unknown_caller(self, passing: Passing, scope: AsgiScope, *, has_token: bool) -> Response:
        """Return the response to one who is not known: the login page, or 401 where a browser does not ask.

        What is wrong with an API token that was sent is not told.
        """
        root_path: str = scope.get("root_path", "")
        is_page = scope["method"] == "GET" and not _is_program(passing)
        if is_page and _is_from_another_site(passing):
            # The cookie is not sent along from there. A reload by this page itself sends it.
            target = local_target(_target(scope), root_path)
            values = {"title": "One moment", "kind": "", "sentence": "Opening the page…", "refresh": f"0;url={target}"}
            return HTMLResponse(plain("bare.html", {**values, "links": [("Go on", target)], "root_path": root_path}))
        if is_page and self._can_log_in:
            is_start = _target(scope) in (root_path, f"{root_path}/")
            query = "" if is_start else "?" + urlencode({"next": _target(scope)})
            return RedirectResponse(f"{root_path}/login{query}", 303)
        refused = "This API token is refused: it is not known, has expired or was revoked."
        sentence = refused if has_token else "Log in, or send a valid API token."
        response = self._told(PageTrouble(401, "Not logged in", sentence), passing, root_path)
        response.headers["www-authenticate"] = 'Bearer realm="fencepost"'
        return response

    def of_kind(self, response: Response, passing: Passing) -> Response:
        """Return the response as its reader expects it: REST has no plain text, but problems."""
        if not passing.is_api or response.media_type != "text/plain":
            return response
        sentence = bytes(response.body).decode().strip()
        return self._told(PageTrouble(response.status_code, "Refused", sentence), passing, "")

    def _told(self, found: PageTrouble, passing: Passing, root_path: str, *, refresh: str = "") -> Response:
        headers = {"retry-after": "5"} if found.status == 503 else {}
        if _is_program(passing):
            word = found.word or REFUSED_BY_STATUS.get(found.status, FAILED)
            problem = document(word, found.title, found.status, found.sentence)
            return Response(json.dumps(problem), found.status, headers, "application/problem+json")
        links = [("Back to Now", f"{root_path}/")] if found.status != 503 else []
        values = {
            "title": found.title,
            "kind": found.kind,
            "sentence": found.sentence,
            "refresh": refresh,
            "links": links,
        }
        return HTMLResponse(plain("bare.html", {**values, "root_path": root_path}), found.status, headers)


def _is_program(passing: Passing) -> bool:
    headers = passing.headers
    return passing.is_api or "authorization" in headers or "application/json" in headers.get("accept", "")


def _is_from_another_site(passing: Passing) -> bool:
    """Whether somebody follows a link of another site, such as a chat: then the cookie of a login stays behind."""
    headers = passing.headers
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") == "navigate"


def _target(scope: AsgiScope) -> str:
    query = scope["query_string"].decode("latin-1")
    return quote(str(scope["path"])) + (f"?{query}" if query else "")

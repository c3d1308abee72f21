"""Errors as REST sends them, and as its client raises them again: one table of classes, statuses and types. Pure.

A problem is a JSON document as RFC 9457 describes it. Its `type` is ``urn:fencepost:`` and a word of this table, which
stays the same from release to release; its `detail` is the sentence of the error.

**Promises.** An error that is in no row of the table is sent without its text: what nobody expected may contain
anything. What `error_of` returns has the class, the sentence and the fields of the error that `problem_of` was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fencepost import errors
from fencepost.core.secrets import scrub
from fencepost.errors import FencepostError

PREFIX = "urn:fencepost:"
LONGEST_DETAIL = 4_000  # as much as the error of a run has
RETRY_AFTER_S = 5  # sent with status 503; clients that follow it do not ask more often while the database is away
_AWAY = "the database does not answer, so nothing can be shown; whether anything was done is not known"


class ProblemKind(NamedTuple):
    """How one class of errors is sent. `sentence`: what is said in place of the error's own text."""

    error: type[FencepostError]
    status: int
    word: str
    title: str
    fields: tuple[str, ...] = ()
    sentence: str | None = None


_REQUEST = ("run_id", "job", "state", "requested_by", "requested_at")

PROBLEMS: tuple[ProblemKind, ...] = (
    ProblemKind(errors.TooManyTries, 429, "too-many-tries", "Too many tries"),
    ProblemKind(errors.NotAuthenticated, 401, "not-authenticated", "It is not known who asks"),
    ProblemKind(errors.LastAdmin, 409, "last-admin", "The last admin"),
    ProblemKind(errors.ReasonRequired, 422, "reason-required", "A reason is wanted"),
    ProblemKind(errors.NotAllowed, 403, "not-allowed", "Not allowed"),
    ProblemKind(errors.NoSuchRun, 404, "no-such-run", "Not on record"),
    ProblemKind(errors.NoSuchJob, 404, "no-such-job", "Not on record"),
    ProblemKind(errors.NoSuchSchedule, 404, "no-such-schedule", "Not on record"),
    ProblemKind(errors.NoSuchNode, 404, "no-such-node", "Not on record"),
    ProblemKind(errors.NoSuchLetter, 404, "no-such-letter", "Not on record"),
    ProblemKind(errors.NoSuchLock, 404, "no-such-lock", "Not on record"),
    ProblemKind(errors.NoSuchAccount, 404, "no-such-account", "Not on record"),
    ProblemKind(errors.NoSuchApiToken, 404, "no-such-api-token", "Not on record"),
    ProblemKind(errors.NotInLedger, 404, "not-in-ledger", "Not on record"),
    ProblemKind(errors.AlreadyRequested, 409, "already-requested", "Under way already", _REQUEST),
    ProblemKind(errors.DuplicateRequest, 409, "duplicate-request", "Used before"),
    ProblemKind(errors.IllegalMove, 409, "illegal-move", "Its state does not allow that", ("state", "move", "to")),
    ProblemKind(errors.StateChanged, 412, "state-changed", "It has changed since"),
    ProblemKind(errors.IdempotencyConflict, 422, "key-reused", "The key is of another request"),
    ProblemKind(errors.RequestUnderWay, 409, "request-under-way", "Begun before"),
    ProblemKind(errors.LedgerHeld, 409, "ledger-held", "The ledger is held"),
    ProblemKind(errors.LedgerUnavailable, 503, "ledger-unavailable", "The ledger is away", sentence=_AWAY),
    ProblemKind(errors.StoreUnavailable, 503, "store-unavailable", "The lease store is away", sentence=_AWAY),
    ProblemKind(errors.SchemaMismatch, 503, "schema-mismatch", "Tables of another version", sentence=_AWAY),
    ProblemKind(errors.AuditHeadMissing, 503, "audit-head-missing", "Nothing can be recorded in the audit"),
    ProblemKind(errors.LedgerRefused, 409, "refused", "Refused"),
    ProblemKind(errors.InvalidName, 422, "invalid-name", "Not a valid name"),
    ProblemKind(errors.InvalidParameters, 422, "invalid-parameters", "These values do not fit"),
    ProblemKind(errors.InvalidSchedule, 422, "invalid-schedule", "Not a valid schedule"),
    ProblemKind(errors.InvalidDuration, 422, "invalid-duration", "Not a valid duration"),
    ProblemKind(errors.InvalidTick, 422, "invalid-time", "Not a valid time"),
    ProblemKind(errors.ConfigurationError, 422, "not-possible", "Not possible"),
)
"""In the order in which an error is looked up: the first row whose class it is."""

INVALID_REQUEST = "invalid-request"
FAILED = "failed"
CROSS_SITE = "cross-site"
REFUSED_BY_STATUS: Mapping[int, str] = MappingProxyType(
    {
        400: INVALID_REQUEST,
        401: "not-authenticated",
        403: "not-allowed",
        404: "no-such-address",
        405: "method-not-allowed",
        408: "too-slow",
        413: "too-large",
        414: "address-too-long",
        421: "other-host",
        500: FAILED,
    }
)
"""How a request is refused that no route has seen, by its status: what no error of the table stands for."""
TYPES: tuple[str, ...] = tuple(
    f"{PREFIX}{word}"
    for word in dict.fromkeys([*(each.word for each in PROBLEMS), *REFUSED_BY_STATUS.values(), CROSS_SITE])
)
"""All types that REST sends."""


def kind_of(error: BaseException) -> ProblemKind | None:
    """Return how an error is sent; None if the table has nothing for it."""
    return next((each for each in PROBLEMS if isinstance(error, each.error)), None)


def problem_of(error: FencepostError) -> dict[str, Any] | None:
    """Return the document of an error; None if the table has none for it."""
    found = kind_of(error)
    if found is None or _is_of_the_driver(error):
        return None
    detail = found.sentence or scrub(str(error))[:LONGEST_DETAIL]
    return document(found.word, found.title, found.status, detail) | {
        name: getattr(error, name, None) for name in found.fields
    }


def document(word: str, title: str, status: int, detail: str) -> dict[str, Any]:
    """Return a problem."""
    return {"type": f"{PREFIX}{word}", "title": title, "status": status, "detail": detail}


def error_of(problem: Mapping[str, Any]) -> FencepostError:
    """Return the error that a problem was made of, to be raised; `ConfigurationError` for one that is not known."""
    word = str(problem.get("type", "")).removeprefix(PREFIX)
    found = next((each for each in PROBLEMS if each.word == word), None)
    kind = _by_status(problem.get("status")) if found is None else found.error
    detail = str(problem.get("detail") or problem.get("title") or "the server refused the request")
    error = kind.__new__(kind, detail)  # without __init__, which would write the sentence anew
    error.args = (detail,)
    for name in () if found is None else found.fields:
        setattr(error, name, problem.get(name))
    return error


def _by_status(status: Any) -> type[FencepostError]:
    """Return what a problem is whose type is no error's: one of the guard, of a proxy, or of another release."""
    known: dict[Any, type[FencepostError]] = {401: errors.NotAuthenticated, 403: errors.NotAllowed}
    known |= {404: errors.NotInLedger, 502: errors.LedgerUnavailable, 503: errors.LedgerUnavailable}
    return known.get(status, errors.ConfigurationError)


def _is_of_the_driver(error: FencepostError) -> bool:
    """Whether a database's own message is in it: that may name tables, hosts and values of others."""
    return isinstance(error, errors.LedgerRefused) and error.__cause__ is not None

"""Requests with a key, done once however often they are sent: ``authorized.once``. See `fencepost.ledger.answers`.

**Promises.** A repetition has the answer of the first, if the caller still may do what was done; it does nothing. The
same key with another request is refused. Where the first is still under way, or its answer was lost in a crash, the
repetition is refused, too: it does nothing, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.access.authority import Authority
from fencepost.core.rights import WITHOUT_JOB, HumanAct, Scope
from fencepost.errors import FencepostError, IdempotencyConflict, InvalidName, NoSuchJob, RequestUnderWay
from fencepost.ledger.answers import (
    BEGUN,
    LONGEST_KEY,
    AnsweredMeanwhile,
    Answering,
    KeptAnswer,
    RequestKey,
    answering,
    complete,
    find_answer,
)
from fencepost.ledger.ledger import Ledger

T = TypeVar("T")


class KeyedRequest(NamedTuple):
    """A request as it was sent: the key that its sender chose, its method and path, and a hash of all it says."""

    key: str
    path: str
    body_hash: str


class KeyedAct(NamedTuple, Generic[T]):
    """An act, the right that it needs, the job that it is about, if that is known, and how its answer is written.

    `said` writes the answer, from what `do` returns. `said_within` writes the same from what the act's transaction
    returned, so that it commits with the act; None where that is not known there: then it is written afterwards.
    """

    right: HumanAct
    do: Callable[[], T]
    said: Callable[[T], str]
    said_within: Callable[[Any], str] | None = None
    job: str | None = None
    status: int = 200


class Told(NamedTuple):
    """The answer to a request, and whether it is a repeated one."""

    status: int
    text: str
    is_repeated: bool


def once(authority: Authority, ledger: Ledger, request: KeyedRequest, act: KeyedAct[T]) -> Told:
    """Do `act`, unless it was done for this request before; return its answer."""
    mine = RequestKey(
        authority.identity.principal, checked_key(request.key), request.path, request.body_hash, ledger.runtime.new_id()
    )
    if (found := find_answer(ledger, mine.principal, mine.key)) is not None:
        return _repeated(authority, found, mine, act.right)
    try:
        with answering(Answering(mine, act.said_within or _later, act.status)):
            result = act.do()
    except (AnsweredMeanwhile, FencepostError) as error:
        # Two at once: the other one was first, and this one was refused because of it.
        found = find_answer(ledger, mine.principal, mine.key)
        if found is None or found.request.sending == mine.sending or _is_other(found, mine):
            if isinstance(error, AnsweredMeanwhile):
                raise _conflict(mine) from None
            raise
        return _repeated(authority, found, mine, act.right)
    text = act.said(result)
    kept = find_answer(ledger, mine.principal, mine.key)
    if kept is None or kept.status == BEGUN:
        with suppress(AnsweredMeanwhile):  # both had nothing to do
            complete(ledger, KeptAnswer(mine, act.status, act.job if kept is None else kept.job, text))
    return Told(act.status, text, is_repeated=False)


def _repeated(authority: Authority, found: KeptAnswer, mine: RequestKey, right: HumanAct) -> Told:
    if _is_other(found, mine):
        raise _conflict(mine)
    _require_again(authority.identity.scope(is_fresh=True), right, found.job)
    if found.status == BEGUN:
        raise RequestUnderWay(
            f"a request with the key {mine.key!r} was begun before, and its answer is not known: it is under way, or "
            "was cut off. Look at what it has done before you send it under another key"
        )
    return Told(found.status, found.text, is_repeated=True)


def _require_again(scope: Scope, right: HumanAct, job: str | None) -> None:
    """Raise unless the caller may do now what was done then."""
    if job is not None and right not in WITHOUT_JOB:
        if not scope.sees(job):
            raise NoSuchJob(job)
        scope.require(right, job)
    elif not (allowed := scope.jobs_for(right)) and allowed is not None:
        scope.require(right)


def _is_other(found: KeptAnswer, mine: RequestKey) -> bool:
    return (found.request.path, found.request.body_hash) != (mine.path, mine.body_hash)


def _conflict(mine: RequestKey) -> IdempotencyConflict:
    return IdempotencyConflict(mine.key, mine.path)


def _later(_: Any) -> None:
    """Say that the answer is not known within the transaction."""


def checked_key(key: str) -> str:
    """Return a key that every ledger keeps exactly: 1 to 60 visible ASCII characters."""
    if not 1 <= len(key) <= LONGEST_KEY or not all("!" <= each <= "~" for each in key):
        raise InvalidName(f"an Idempotency-Key has 1 to {LONGEST_KEY} visible ASCII characters")
    return key

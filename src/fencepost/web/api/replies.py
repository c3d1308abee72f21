"""What REST answers: records and pages of them as JSON, and problems as in RFC 9457."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from fencepost.app.records import LedgerRecord
from fencepost.core.problems import FAILED, INVALID_REQUEST, RETRY_AFTER_S, document, problem_of
from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from fastapi.exceptions import RequestValidationError

_logger = logging.getLogger("fencepost.web")
PROBLEM = "application/problem+json"
_MOST_ERRORS = 20  # fields that are named: a body within `LARGEST_BODY` may have thousands that are wrong


@dataclass(frozen=True, slots=True)
class ApiReply:
    """An answer: its text, status and headers."""

    text: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """Return it as a response."""
        return Response(self.text, self.status, dict(self.headers), "application/json")


def spelled_json(value: Any) -> str:
    """Return JSON. Whole numbers have all their digits, also beyond 2**53."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def reply(record: LedgerRecord | None, *, etag: str | None = None) -> ApiReply:
    """Return the answer that shows one record."""
    headers = {} if etag is None else {"etag": f'"{etag}"'}
    return ApiReply(spelled_json(None if record is None else record.to_json()), headers=headers)


def page(records: Sequence[LedgerRecord], next_link: str | None, **more: LedgerRecord | None) -> ApiReply:
    """Return the answer that shows a page of a list, and `more` beside it."""
    shown: dict[str, Any] = {"items": [each.to_json() for each in records], "next": next_link}
    beside = {name: None if each is None else each.to_json() for name, each in more.items()}
    return ApiReply(spelled_json(shown | beside))


def problem(error: FencepostError, request_id: str) -> Response:
    """Return the answer to what was refused. Of what the table of problems has no row for, only a number is sent."""
    found = problem_of(error)
    return failed(error, request_id) if found is None else problem_response(found)


def failed(error: BaseException, request_id: str) -> Response:
    """Return the answer to what nobody expected; the log has the rest, under the number."""
    _logger.error("a request failed (request %s)", request_id, exc_info=error)
    detail = f"nothing more is known here; the server's log has it as request {request_id}"
    return problem_response(document(FAILED, "This request failed", 500, detail))


def invalid(errors: Sequence[tuple[str, str]]) -> Response:
    """Return the answer to a request whose fields do not fit: pairs of a field and what is wrong with it."""
    shown = [{"field": name, "message": message} for name, message in errors[:_MOST_ERRORS]]
    detail = "; ".join(f"{each['field']}: {each['message']}" for each in shown)
    found = document(INVALID_REQUEST, "These values do not fit", 422, detail)
    return problem_response(found | {"errors": shown})


def invalid_request(error: RequestValidationError) -> Response:
    """Return the answer to a request that does not have the form of its route. It repeats none of its values."""
    return invalid([(".".join(map(str, each["loc"]))[:200], str(each["msg"])[:200]) for each in error.errors()])


def problem_response(found: Mapping[str, Any]) -> Response:
    """Return a problem as a response."""
    status = int(found["status"])
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="fencepost"'
    return Response(spelled_json(found), status, headers, PROBLEM)

"""The report of an attempt: its result, or its error, as texts that every ledger can store.

A report is made in the process that called the job's function, and passed to the code that decides about the run.

**Promises.** Making a report never fails, whatever was returned or raised. Texts are limited in length, and contain
neither passwords of URLs nor the values that SQLAlchemy adds to its errors.

A result that is not JSON, or too long, does not turn a success into a failure: the work is done, and repeating it would
be worse. The result is then missing, and a note gives the reason. Dates, decimals, UUIDs and members of enumerations
are stored as text.
"""

from __future__ import annotations

import json
import traceback
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import TracebackType
from typing import Any, NamedTuple
from uuid import UUID  # noqa: TID251 - only the type; the Runtime generates ids

from fencepost.core.duration import whole_us
from fencepost.core.masked_values import MASKED
from fencepost.core.texts import beginning, end, error_text, hide_values
from fencepost.core.verdicts import Cancel, Fail, Retry, Skip
from fencepost.errors import Hopeless

LONGEST_ERROR = 4_000  # a message with its causes; the log of the run has the rest
LONGEST_TRACE = 16_000  # the end of a deep recursion, where the cause is
LONGEST_RESULT = 60_000  # below the 64 kB of MySQL's TEXT, and of one message of a worker
LONGEST_CODE = 191  # an indexed column: see LONGEST_KEY in core/identity.py


class AttemptReport(NamedTuple):
    """How an attempt ended. `how` is one of the outcomes of runners."""

    how: str
    result: str | None = None
    error_code: str | None = None
    error: str | None = None
    trace: str | None = None
    reason: str | None = None
    retry_after_us: int | None = None


SUCCEEDED = AttemptReport("succeeded")


def report_of_result(result: object) -> AttemptReport:
    """Report that the function returned `result`."""
    if result is None:
        return SUCCEEDED
    try:
        text = _JSON.encode(result)
    except Exception as error:  # noqa: BLE001 - any error of a return value; the work is done
        return AttemptReport(
            "succeeded", reason=beginning(f"the result was not stored, because it is not JSON: {error}", LONGEST_ERROR)
        )
    text = MASKED.masked_json(text)
    if len(text) > LONGEST_RESULT:
        why = f"the result was not stored: it takes {len(text)} characters of JSON, and the limit is {LONGEST_RESULT}"
        return AttemptReport("succeeded", reason=why)
    return AttemptReport("succeeded", text)


def report_of_error(error: BaseException) -> AttemptReport:
    """Report that the function raised `error`: a verdict, an exit, or a failure."""
    if isinstance(error, Retry):
        after_us = None if error.after_s is None else whole_us(error.after_s)
        cause = None if error.__cause__ is None else trace_of(error)
        return AttemptReport(
            "retry", None, "retry", _message(error) or "the job asked for a retry", cause, None, after_us
        )
    if isinstance(error, Skip):
        return AttemptReport("skipped", reason=_message(error) or "the job said so")
    if isinstance(error, Cancel):
        return AttemptReport("cancelled", reason=_message(error) or "the job said so")
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return SUCCEEDED  # a script that was turned into a job may still end with sys.exit()
    if isinstance(error, Fail):
        cause = None if error.__cause__ is None else trace_of(error)
        return AttemptReport("given up", None, "failed", _message(error) or "the job said so", cause)
    how = "given up" if isinstance(error, Hopeless) else "failed"
    return AttemptReport(how, None, code_of(error), _message(error) or code_of(error), trace_of(error))


def code_of(error: BaseException) -> str:
    """Return the name of an error's class, with its module unless it is a built-in."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return beginning(name, LONGEST_CODE)


def trace_of(error: BaseException) -> str:
    """Return the text of the traceback, from the first frame outside Fencepost."""
    try:
        hide_values(error)
        lines = traceback.format_exception(type(error), error, _beyond_us(error.__traceback__))
        return end("".join(lines), LONGEST_TRACE)
    except Exception:  # noqa: BLE001 - an error that cannot be formatted must still be reported
        return f"{code_of(error)}: its traceback cannot be shown"


def _beyond_us(trace: TracebackType | None) -> TracebackType | None:
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("fencepost."):
        inner = inner.tb_next
    return inner or trace


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return f"exited with status {error.code}"
    try:
        return error_text(error, LONGEST_ERROR)
    except Exception:  # noqa: BLE001 - as above
        return f"{code_of(error)}: its message cannot be shown"


def _as_text(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID | PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_as_text)

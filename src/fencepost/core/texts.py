"""Prepares texts for storage and display: without secrets, limited in length, in characters every database accepts."""

from __future__ import annotations

from fencepost.core.masked_values import MASKED
from fencepost.core.secrets import scrub


def storable(text: str) -> str:
    """Escape the characters that some databases refuse: NUL, and unpaired surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def beginning(text: str, longest: int) -> str:
    """Return a text without secrets, and truncated at its end to at most `longest` characters."""
    # Truncate roughly first, because scrubbing takes time. Truncate exactly last: a cut could remove the @ that marks
    # a password.
    clean = storable(scrub(MASKED.masked(text)[: longest * 4]))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def end(text: str, longest: int) -> str:
    """Return a text without secrets, and truncated at its beginning to at most `longest` characters."""
    clean = storable(scrub(MASKED.masked(text)[-longest * 4 :]))
    return clean if len(clean) <= longest else "…" + clean[len(clean) - longest + 1 :]


def error_text(error: BaseException, longest: int = 1_000) -> str:
    """Return the message of an error, ready to be stored. Errors of its ``__str__`` are passed on."""
    hide_values(error)
    return beginning(str(error), longest)


def hide_values(error: BaseException) -> None:
    """Hide the parameters in errors of SQLAlchemy, and in their causes, because they are users' data."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if hasattr(each, "hide_parameters"):
            each.hide_parameters = True
        pending += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions


def shown(value: object) -> str:
    """Format a value for a message: short, and without passwords."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a failing __repr__ must not hide the actual error
        text = f"a {type(value).__name__}"
    return beginning(text, 60)

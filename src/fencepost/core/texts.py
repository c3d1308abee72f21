"""Texts that may be kept and shown: without secrets, of a bounded length, in characters every database takes."""

from __future__ import annotations

from fencepost.core.secrets import scrub


def storable(text: str) -> str:
    """Spell out what some database refuses in a text: NUL, and halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def beginning(text: str, longest: int) -> str:
    """Return a text fit to be kept: clean, and cut at its end to at most `longest` characters."""
    # Cut roughly first, for scrubbing takes time; cut finely last, lest a cut hide the @ that shows a password.
    clean = storable(scrub(text[: longest * 4]))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def end(text: str, longest: int) -> str:
    """Return a text fit to be kept: clean, and cut at its beginning to at most `longest` characters."""
    clean = storable(scrub(text[-longest * 4 :]))
    return clean if len(clean) <= longest else "…" + clean[len(clean) - longest + 1 :]


def told(error: BaseException, longest: int = 1_000) -> str:
    """Return the message of an error, fit to be kept; raises what making it raises."""
    hide_values(error)
    return beginning(str(error), longest)


def hide_values(error: BaseException) -> None:
    """Let errors of SQLAlchemy, here and among the causes, show no parameters: these are rows of users."""
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
    """Show a value in a sentence: short, and without passwords."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot even be shown is no reason to fail otherwise
        text = f"a {type(value).__name__}"
    return beginning(text, 60)

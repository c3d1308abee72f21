"""Who does something, and why: what the journal keeps of every act has to be said."""

from __future__ import annotations

from fencepost.errors import InvalidParameters


def person(by: object) -> str:
    """Return who acts, or refuse an act without a name."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidParameters("say who does this: by='ann'; the journal keeps it")
    return by.strip()


def reason_given(reason: object) -> str:
    """Return why somebody acts, where that cannot be seen from what is left; or refuse to do it without."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidParameters("say why: reason='…'; the journal keeps it")
    return reason.strip()

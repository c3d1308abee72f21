"""Suggests what a user may have meant by an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown `word`: the most similar known one, or a list of all.

    >>> suggestion("timeuot", ["timeout", "retries"])
    "did you mean 'timeout'?"
    """
    words = sorted(str(each) for each in known)
    near = nearest(word, words)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"there are: {', '.join(words)}" if words else "there are none"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to an unknown one; None if none is similar."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)

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
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(words)}" if words else "there are none"

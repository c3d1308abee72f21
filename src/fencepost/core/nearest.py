"""What somebody may have meant by a word that is none of the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """End a sentence about the unknown `word`: with the known one most like it, or with all of them.

    >>> suggestion("timeuot", ["timeout", "retries"])
    "did you mean 'timeout'?"
    """
    words = sorted(str(each) for each in known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(words)}" if words else "there are none"

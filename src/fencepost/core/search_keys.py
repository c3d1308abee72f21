"""Search keys: parameters of a job by which its runs are found over all history (``@app.job(search=["customer"])``).

A key is a name and a text. The text of a parameter is what stands in its JSON: a text is itself, anything else is its
JSON (``7``, ``true``, ``null``, ``1.5``, ``[1,2]``); dates, decimals, UUIDs and members of enumerations are stored as
texts. So 7 and ``"7"`` have the same key.

**Promises.** Keys fit the columns of every ledger. A text of more than 120 characters, or with characters that cannot
be printed, is stored as its hash, and found by the whole text.

**Not promised.** A key for a parameter that was omitted: the function's own default is not on record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from fencepost.core.identity import canonical_json

LONGEST_TEXT = 120  # the width of the column `value`; a longer text is stored as its hash
LONGEST_NAME = 60  # the width of the column `name`; a job with a longer one is refused
MOST_NAMES = 10  # each is a row per run

SearchKeys = tuple[tuple[str, str], ...]


def search_keys(names: Collection[str], params: Mapping[str, Any]) -> SearchKeys:
    """Return the keys of a run with these parameters, which are JSON values."""
    return tuple((name, fitted_text(search_text(params[name]))) for name in names if name in params)


def search_text(value: Any) -> str:
    """Return the text by which a value, in its JSON form, is searched for.

    >>> search_text("ann"), search_text(7), search_text(True)
    ('ann', '7', 'true')
    """
    return value if isinstance(value, str) else canonical_json(value)


def fitted_text(text: str) -> str:
    """Return the text as it is stored: itself, or its hash."""
    if len(text) <= LONGEST_TEXT and text.isprintable():
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def has_values(params: str, wanted: Mapping[str, str]) -> bool:
    """Whether parameters, in JSON as they are stored, have all of these texts."""
    try:
        found = json.loads(params)
    except ValueError:  # damaged
        return False
    if not isinstance(found, dict):
        return False
    return all(name in found and search_text(found[name]) == text for name, text in wanted.items())


def spellings(name: str, text: str) -> list[str]:
    """Return what stands in the stored JSON of a parameter with this text: one spelling per type it may have."""
    values: list[Any] = [text]
    try:
        other = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        if not isinstance(other, str) and canonical_json(other) == text:
            values.append(other)
    return [canonical_json({name: value})[1:-1] for value in values]

"""Masks secrets in texts that are stored or logged: errors, tracebacks, reasons, log records.

**Promises.** Secrets in the usual places are masked:

- the password of a URL, or the user name of an ``https://`` URL without a password;
- ``password=…``, ``access_token=…``, ``api_key=…``, ``Authorization``, cookies and similar names, as settings, in
  queries, percent-encoded, in dictionaries, in pairs, in XML, as headers, and as a line ``password: …`` by itself;
- passwords in SQL statements, and on the command lines of database clients;
- OAuth codes in a URL, ``Bearer …``, private keys, and tokens with a known form;
- the values of `Secret` parameters that this process has looked up (`fencepost.core.masked_values`).

Masking takes time in proportion to the length of the text, whatever it contains.

**Not promised.** That a secret is recognized if it stands alone and looks like any other word.

A fencing token is not a secret: ``token=1794733205004021`` is kept.
"""

from __future__ import annotations

from fencepost.core.masked_values import MASK, MASKED
from fencepost.core.secret_forms import FORMS, is_secret, may_contain

__all__ = ["MASK", "has_no_secret", "is_secret", "scrub", "scrubbed_from", "secret_spans"]


def scrub(text: str) -> str:
    """Mask the secrets in a text.

    >>> scrub("cannot reach redis://app:s3cret@cache:6379/0")
    'cannot reach redis://app:***@cache:6379/0'
    >>> scrub("GET https://api/pay?access_token=abc123&day=3 failed")
    'GET https://api/pay?access_token=***&day=3 failed'
    """
    return scrubbed_from(text, 0)


def scrubbed_from(text: str, place: int) -> str:
    """Mask the secrets in a text, and return it from `place` on: what stands before is only the context.

    >>> scrubbed_from("password=abc" "def is long", len("password=abc"))
    '*** is long'
    """
    kept: list[str] = []
    for start, end in secret_spans(text):
        if end > place:
            kept += (text[place:start], MASK)
            place = end
    kept.append(text[place:])
    return "".join(kept)


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Return where secrets are, in order. Spans do not overlap or touch."""
    low = _lower(text)
    merged: list[tuple[int, int]] = []
    found = [span for form in FORMS for span in form(text, low)] if may_contain(low) else []
    for start, end in sorted([*found, *MASKED.spans(text)] if MASKED else found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def has_no_secret(text: str) -> bool:
    """Whether `secret_spans` certainly finds nothing in this text, and in any part of it. Much faster."""
    return not MASKED and not may_contain(_lower(text))


def _lower(text: str) -> str:
    """Return a copy of the same length: the only letter whose lower case is two characters is replaced."""
    return text.replace("İ", "i").lower()

"""Masking secrets in texts that are kept or logged: errors, tracebacks, reasons, log records.

**Promises.** What stands in the usual places is masked: the password of a URL, or a name without one before the host
of an ``https://`` URL; ``password=…``, ``access_token=…``, ``api_key=…``, ``Authorization``, cookies and their like, as
settings, in queries, percent-encoded, in dictionaries, in pairs, in XML, as headers, and as a line ``password: …`` by
itself; passwords in SQL that gives them, and on the command lines of database clients; codes of OAuth in a URL;
``Bearer …``; private keys; tokens whose form is known. Masking takes time in proportion to the text, whatever it says.

**Not promised.** That a secret is recognized that stands somewhere by itself, and looks like any other word.

A fencing token is no secret: ``token=1794733205004021`` stays.
"""

from __future__ import annotations

from fencepost.core.secret_forms import FORMS, is_secret

__all__ = ["MASK", "is_secret", "scrub"]

MASK = "***"


def scrub(text: str) -> str:
    """Mask the secrets in a text.

    >>> scrub("cannot reach redis://app:s3cret@cache:6379/0")
    'cannot reach redis://app:***@cache:6379/0'
    >>> scrub("GET https://api/pay?access_token=abc123&day=3 failed")
    'GET https://api/pay?access_token=***&day=3 failed'
    """
    low = text.replace("İ", "i").lower()  # the one letter that is two when it is small, and places have to agree
    spans = sorted(span for form in FORMS for span in form(text, low))
    if not spans:
        return text
    kept: list[str] = []
    place = 0
    for start, end in spans:
        if start > place or not place:
            kept += (text[place:start], MASK)
        place = max(place, end)
    kept.append(text[place:])
    return "".join(kept)

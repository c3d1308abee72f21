"""How a text is written in the encodings that promise to mask it: `fencepost.core.masked_values`.

Libraries disagree on what they encode, and how. Here are the usual dialects of each encoding. A text of letters and
digits, as most tokens are, has one form in all of them but Base64, so that it is no dearer to look for.

**Promises.** Percent-encoding as Python, requests, urllib3, browsers, Java and Go write it, with digits in capitals or
not. HTML as Python, Jinja2, Go, PHP, JavaScript and XML write it. Python's ``repr`` of the text, of its bytes, and of a
longer text with other quotes, also as ``ascii`` writes it. JSON as Python, PHP, Go, Jinja2 and Django write it. Base64
with both alphabets; of long texts, also in lines of 76 or 64 characters.

**Not promised.** Two encodings on top of each other. More than an encoding needs, such as a number for each character.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Collection, Iterator
from urllib.parse import quote

_NOT_ENCODED = re.compile(r"[A-Za-z0-9_.-]*")  # by any of them, but Base64
_PERCENT_LEFT = tuple(  # what is left as it is, beside letters, digits, '_', '.', '-' and '~'
    frozenset(each)
    for each in (
        "",
        "/",  # Python
        "!'()*",  # JavaScript: encodeURIComponent
        "!#$&'()*+,/:;=?@",  # JavaScript: encodeURI
        "!#$&'()*+,/:;=?@[]",  # requests: a whole URL in which a percent sign has no digits
        "!#$%&'()*+,/:;=?@[]",  # requests: any other URL
        "!$&'()*+,/:;=@",  # urllib3: a path
        "!$&'()*+,/:;=?@",  # urllib3: a query
    )
)
_CODES = {each: f"%{ord(each):02X}" for each in "!#$&'()*+,/:;=?@[]%"}  # that of '%' is last: the others begin with it
_CODED = re.compile(r"%(?:[A-F][0-9A-F]|[0-9][A-F])")
_HTML_QUOTES = (  # the apostrophe and the quotation mark
    ("'", '"'),  # only where they have to be: Python with quote=False
    ("'", "&quot;"),  # PHP before 8.1
    ("&#x27;", "&quot;"),  # Python, Django, React
    ("&#39;", "&#34;"),  # Jinja2, Go
    ("&#39;", "&quot;"),  # lodash
    ("&#039;", "&quot;"),  # PHP
    ("&apos;", "&quot;"),  # XML
)
_BOTH_QUOTES = "'\""
_JSON_ALSO = (
    {"/": "\\/"},  # PHP
    {"<": "\\u003c"},  # what many do by hand, for a script in HTML
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"},  # Go
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"},  # Jinja2
    {"<": "\\u003C", ">": "\\u003E", "&": "\\u0026"},  # Django
)
_WRAPPED_AT = (76, 64)  # characters: MIME and Python; PEM and openssl
_LINE_BREAKS = ("\n", "\\n")  # the latter where the lines are shown in a literal


def spellings(text: str) -> set[str]:
    """Return the text in each of the encodings, and as it is."""
    coded = text.encode("utf-8", "surrogatepass")
    plain, safe = _base64(coded)
    if _NOT_ENCODED.fullmatch(text):
        return {text, plain, safe}
    return {
        text,
        plain,
        safe,
        *_percent_encoded(text, coded),
        *_in_html(text),
        *_in_python(text, coded),
        *_in_json(text),
    }


def wrapped(text: str) -> Iterator[str]:
    """Yield its Base64 in lines, if it is that long."""
    plain, _ = _base64(text.encode("utf-8", "surrogatepass"))
    for width in _WRAPPED_AT:
        if len(plain) > width:
            lines = [plain[place : place + width] for place in range(0, len(plain), width)]
            yield from (line_break.join(lines) for line_break in _LINE_BREAKS)


def _base64(coded: bytes) -> tuple[str, str]:
    return base64.b64encode(coded).decode().rstrip("="), base64.urlsafe_b64encode(coded).decode().rstrip("=")


def _percent_encoded(text: str, coded: bytes) -> Iterator[str]:
    most = quote(coded, safe="")
    forms = {_decoded(most, left) for left in {left.intersection(text) for left in _PERCENT_LEFT}}
    forms.add(most.replace("%20", "+"))  # a form: Python and Go
    forms.add(_decoded(most, "*").replace("%20", "+").replace("~", "%7E"))  # browsers and Java
    yield from forms
    yield from (_CODED.sub(lambda found: found[0].lower(), each) for each in forms)


def _decoded(most: str, characters: Collection[str]) -> str:
    """Return it without the codes of these characters. To encode anew takes far longer."""
    for each, code in _CODES.items():
        if each in characters:
            most = most.replace(code, each)
    return most


def _in_html(text: str) -> Iterator[str]:
    least = html.escape(text, quote=False)
    for apostrophe, quotation_mark in _HTML_QUOTES:
        yield least.replace("'", apostrophe).replace('"', quotation_mark)


def _in_python(text: str, coded: bytes) -> Iterator[str]:
    """Yield what `repr` writes. It escapes apostrophes where the whole text has quotation marks as well."""
    end = len(repr(_BOTH_QUOTES)) - 1
    yield repr(text)[1:-1]
    yield repr(text + _BOTH_QUOTES)[1:-end]
    yield ascii(text)[1:-1]
    yield ascii(text + _BOTH_QUOTES)[1:-end]
    yield repr(coded)[2:-1]
    yield repr(coded + _BOTH_QUOTES.encode())[2:-end]


def _in_json(text: str) -> Iterator[str]:
    for each in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield each
        for also in _JSON_ALSO:
            form = each
            for character, code in also.items():
                form = form.replace(character, code)
            yield form

"""Pages from templates. All that is inserted is escaped, and characters that nobody sees are spelled out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from fencepost.web import svg, zones
from fencepost.web.commands import curl_line, shell_line
from fencepost.web.static_files import static_version
from fencepost.web.visits import segment

if TYPE_CHECKING:
    from fencepost.web.visits import Visit

_TEMPLATES = Path(__file__).parent / "templates"
# Control characters, halves of surrogate pairs, and what turns the direction of writing: they can hide what is there.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b-\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


def visible(value: Any) -> Any:
    """Return a text in which every character can be seen; what is no text, and what is markup, stays as it is."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", str(value))
    return value


def as_json(value: Any) -> str:
    """Return a value as JSON for people."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def in_one_line(value: Any) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def in_pairs(value: Any) -> str:
    """Return the details of an entry for people: ``role viewer · of user:carol``; what is no mapping, as JSON."""
    if not isinstance(value, Mapping):
        return in_one_line(value)
    return " · ".join(f"{name} {each if isinstance(each, str) else in_one_line(each)}" for name, each in value.items())


def beginning(text: Any, longest: int = 160) -> str:
    """Return a text as one line, cut if it is long."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
        auto_reload=False,
    )
    found.filters |= {
        "sentence": ended,
        "json": as_json,
        "oneline": in_one_line,
        "pairs": in_pairs,
        "beginning": beginning,
        "segment": segment,
        "duration": zones.duration,
        "utc": zones.in_utc,
    }
    found.globals |= {"svg": svg, "shell_line": shell_line, "curl_line": curl_line, "static_version": static_version()}
    return found


def render(visit: Visit, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Draw a page for a visit; for our script, only the part that changes."""
    return HTMLResponse(drawn(visit, template, **values), status)


def drawn(visit: Visit, template: str, **values: Any) -> str:
    """Return the text of a page."""
    now = values.get("now")
    entry = visit.passing.entry
    return (
        environment()
        .get_template(template)
        .render(
            visit=visit,
            url=visit.url,
            here=visit.here,
            entry=entry,
            pauses=[] if entry is None else entry.authorized.pauses.list(),
            nonce=visit.passing.nonce,
            layout="fragment.html" if visit.is_fragment else "layout.html",
            when=_when(visit, now),
            **values,
        )
    )


def _when(visit: Visit, now: datetime | None) -> Any:
    zone = visit.zone

    def when(at: datetime | None, own: str | None = None, *, exact: bool = False, relative: bool = False) -> Markup:
        """Return an instant as an element, with its exact value and how long ago it was."""
        if at is None:
            return Markup("")
        shown = zone.spelled(at, own=own, exact=exact)
        since = "" if now is None else zones.ago(at, now)
        hint = " · ".join(filter(None, (zones.in_utc(at), since)))
        text = since if relative and since else shown
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            zones.in_utc(at), f"{shown} · {hint}" if relative else hint, text
        )

    return when


def plain(template: str, values: Mapping[str, Any]) -> str:
    """Return the text of a page that needs no visit, such as that of a ledger that is away."""
    return environment().get_template(template).render(**values)


def ended(text: str) -> str:
    """Return a message as a sentence, with the point that it lacks."""
    return text if text.endswith((".", "…", "?", "!")) else f"{text}."

"""The header in which a writer sends its token to a service. Pure.

::

    Fencepost-Token: key="ledger:1f0c62d7a9be:job:settle", token="1790000000000000", grant="node-1/17/1"

The value is a Structured Field (RFC 9651), a dictionary of strings. The token is a string too, because an integer there
has at most 15 digits and tokens have 16. Values with characters outside ASCII are Display Strings (``%"caf%c3%a9"``).
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from fencepost.core.fencing import LARGEST_TOKEN, Claimant, FencingToken, fencing_of
from fencepost.errors import InvalidHeader

NAME = "Fencepost-Token"
LONGEST = 4096  # characters; servers commonly limit one header line to 8 KB
_LONGEST_TEXT = 800  # characters of a key or grant; Fencepost's own have at most 191 and a prefix

_MEMBER = re.compile(
    r"""[ \t]*(?P<name>[a-z*][a-z0-9_.*-]*)=(?:
        %"(?P<display>(?:[ !#$&-~]|%[0-9a-f]{2})*)"
      | "(?P<string>(?:[ !#-\[\]-~]|\\["\\])*)"
      | (?P<integer>[0-9]{1,16})
    )[ \t]*(?P<comma>,|\Z)""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[ -~]*")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,16}")


def fence_headers(claimant: Claimant) -> dict[str, str]:
    """Return the header that a run or a lease sends to a service with the middleware."""
    shown = fencing_of(claimant)
    members = {"key": shown.key, "token": str(shown.token), "grant": shown.grant_id}
    return {NAME: ", ".join(f"{name}={_spelled(text)}" for name, text in members.items())}


def parsed(header: str) -> FencingToken:
    """Parse the header. Raise `InvalidHeader`, with the reason, if it is not valid."""
    members = _members(header)
    missing = [name for name in ("key", "token", "grant") if not members.get(name)]
    if missing:
        raise InvalidHeader(f"{NAME} lacks {' and '.join(missing)}")
    if not _WHOLE_NUMBER.fullmatch(members["token"]) or not 0 < int(members["token"]) <= LARGEST_TOKEN:
        raise InvalidHeader(f"the token in {NAME} must be a whole number from 1 to {LARGEST_TOKEN}")
    for name in ("key", "grant"):
        if not members[name].isprintable() or len(members[name]) > _LONGEST_TEXT:
            raise InvalidHeader(f"the {name} in {NAME} must be printable text of at most {_LONGEST_TEXT} characters")
    return FencingToken(members["key"], int(members["token"]), members["grant"])


def _members(header: str) -> dict[str, str]:
    if len(header) > LONGEST:
        raise InvalidHeader(f"{NAME} is longer than {LONGEST} characters")
    members: dict[str, str] = {}
    at, goes_on = 0, True
    while goes_on:
        match = _MEMBER.match(header, at)
        if match is None:
            raise InvalidHeader(f'{NAME} is not of the form key="…", token="…", grant="…" (at character {at + 1})')
        if match["name"] in members:  # two readers of the header could each take a different one
            raise InvalidHeader(f"{NAME} has more than one {match['name']}")
        members[match["name"]] = _text(match)
        at, goes_on = match.end(), match["comma"] == ","
    return members


def _text(match: re.Match[str]) -> str:
    if match["string"] is not None:
        return re.sub(r'\\(["\\])', r"\1", match["string"])
    if match["integer"] is not None:
        return match["integer"]
    try:
        return unquote_to_bytes(match["display"]).decode()
    except UnicodeDecodeError:
        raise InvalidHeader(f"the {match['name']} in {NAME} is not valid UTF-8") from None


def _spelled(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return '%"' + "".join(map(_spelled_byte, text.encode())) + '"'


def _spelled_byte(byte: int) -> str:
    character = chr(byte)
    return character if " " <= character <= "~" and character not in '%"' else f"%{byte:02x}"

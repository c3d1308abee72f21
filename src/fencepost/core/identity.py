"""Names, the keys under which a run is recorded once, and fingerprints.

An *origin key* is unique in the ledger, so a repeated request gets the same run::

    tick:<due µs>:<schedule>                    a due time, whichever node planned it
    backfill:<schedule>:<due µs>:<backfill>     the same window, run again deliberately, once per back-fill
    request:<key>                               a request, under the key its sender chose
    part:<run>:<step>:<partition>:<turn>        a partition of a bulk job's run
    again:<run>:<request>                       a completed run of a bulk job, repeated deliberately

Keys of ticks begin with their time, so that ticks planned together are close together in an index.

**Promises.** Every key has at most 191 characters, the most that every ledger can index. A text that is longer, or that
some database would not store or compare exactly (unprintable characters, white space at its ends), is replaced by its
beginning and a SHA-256 of the whole text. Different texts still have different keys.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from fencepost.core.names import holder_name
from fencepost.errors import InvalidName

BACKFILL = "backfill:"  # precedes the schedule, the due time and the key of a back-fill
REQUEST = "request:"  # precedes the key that the sender of a request chose
LONGEST_KEY = 191  # the longest text that MySQL indexes with four bytes a character
LONGEST_NAME = 120  # with a prefix it still fits into a key
LONGEST_SCHEDULE_ID = 160  # the name of a job, a colon, and a name of the schedule's own
_HASH_LENGTH = 64  # SHA-256 in hexadecimal digits
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_WORD = re.compile(r"\w[\w.\-]*")
_WORD_OF_SCHEDULE = re.compile(r"\w[\w.\-:]*")


def job_name(name: object) -> str:
    """Return `name` if it is a valid job name, else raise `InvalidName`."""
    return _checked(name, what="job name")


def schedule_id(name: object) -> str:
    """Return `name` if it is a valid schedule id, else raise `InvalidName`. It may contain colons: ``report:42``."""
    return _checked(name, what="schedule id")


def queue_name(name: object) -> str:
    """Return `name` if it is a valid queue name, else raise `InvalidName`."""
    return _checked(name, what="queue name")


def node_name(*, host: str, pid: int, start_id: str) -> str:
    """Return the name of one start of one process. `start_id` is random: containers may reuse host name and pid."""
    shown = re.sub(r"[^\w.\-]", "-", host)[:LONGEST_NAME] or "host"
    return holder_name(host=shown, pid=pid, start_id=start_id)


def tick_key(schedule: str, due_us: int) -> str:
    """Return the origin key of a schedule's due time."""
    return fitted(f"tick:{due_us}:{schedule}")


def backfill_key(schedule: str, due_us: int, backfill_id: str) -> str:
    """Return the origin key of a due time in one back-fill. Another back-fill may run the same due time again."""
    return fitted(f"{BACKFILL}{schedule}:{due_us}:{backfill_id}")


def request_key(key: object) -> str:
    """Return the origin key of a request for which its sender chose `key`."""
    if not isinstance(key, str) or not key:
        raise InvalidName(f"the key of a request must be a text of at least one character, not {key!r}")
    return fitted(f"{REQUEST}{key}")


def params_hash(job: str, params: Mapping[str, Any]) -> str:
    """Return the fingerprint of a job's parameters. Their order does not matter."""
    return fingerprint(["params", job, params])


def request_hash(
    job: str,
    params: Mapping[str, Any],
    *,
    window_us: tuple[int, int] | None = None,
    available_at_us: int | None = None,
) -> str:
    """Return the fingerprint of a request. The same key with another fingerprint is a conflict."""
    return fingerprint(["request", job, params, window_us, available_at_us])


def canonical_json(value: object) -> str:
    """Return `value` as JSON in canonical form, from which fingerprints are computed."""
    return _CANONICAL.encode(value)


def fitted(text: str) -> str:
    """Return `text`, or its beginning and a hash, so that every ledger stores and compares it exactly."""
    if len(text) <= LONGEST_KEY and text.isprintable() and text == text.strip():
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    start = "".join(each if each.isprintable() else "?" for each in text[: LONGEST_KEY - _HASH_LENGTH - 1])
    return f"{start.strip()}#{digest}"


def fingerprint(value: object) -> str:
    """Return a hash of a JSON value: equal for equal values, and different for different ones."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _checked(name: object, *, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} must be a text, not {type(name).__name__}")
    return _well_formed(name, what)


@functools.lru_cache(maxsize=4096)
def _well_formed(name: str, what: str) -> str:
    is_schedule = what == "schedule id"
    word, longest = (_WORD_OF_SCHEDULE, LONGEST_SCHEDULE_ID) if is_schedule else (_WORD, LONGEST_NAME)
    shown = repr(name if len(name) <= 40 else name[:37] + "…")
    if not 1 <= len(name) <= longest:
        raise InvalidName(f"{what} {shown} has {len(name)} characters; it must have 1 to {longest}")
    # Each part between slashes begins with a letter, so none is empty, "." or "..": names appear in URLs.
    if not all(word.fullmatch(part) for part in name.split("/")):
        raise InvalidName(
            f"{what} {shown} must consist of letters, digits and _ . {': ' if is_schedule else ''}- "
            "with / between parts, and each part must begin with a letter, a digit or _"
        )
    if not unicodedata.is_normalized("NFC", name):
        raise InvalidName(f"{what} {shown} is not in Unicode form NFC: write accents and letters as one character")
    return name

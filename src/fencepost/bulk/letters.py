"""Dead letters: items that could not be processed, put aside in the transaction of the chunk they were part of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.identity import fitted
from fencepost.core.positions import packed
from fencepost.core.report import code_of
from fencepost.core.texts import beginning
from fencepost.fence.landing import Landing
from fencepost.fence.writer import Writer

NEW, REPLAYED, DROPPED = "new", "replayed", "dropped"
_LONGEST_ERROR = 4_000
_LONGEST_PAYLOAD = 60_000


class Letter(NamedTuple):
    """An item that failed: its name for people, itself as JSON, why, and after how many tries."""

    item_key: str
    payload: str
    error_code: str
    error: str
    attempt: int


def letter_of(item: Any, label: str, error: BaseException, *, step: str, instance: str, tries: int) -> Letter:
    """Write a letter; an item that has no JSON form is described instead, and cannot be replayed."""
    envelope = {"step": step, "instance": instance}
    try:
        names = list(getattr(item, "_fields", ()))
        text = json.dumps({**envelope, "item": packed(item), **({"names": names} if names else {})})
    except (TypeError, ValueError):
        text = json.dumps({**envelope, "shown": beginning(repr(item), _LONGEST_PAYLOAD // 2)})
    if len(text) > _LONGEST_PAYLOAD:
        text = json.dumps({**envelope, "shown": beginning(repr(item), _LONGEST_PAYLOAD // 2)})
    return Letter(
        fitted(label or "?"), text, code_of(error), beginning(str(error) or code_of(error), _LONGEST_ERROR), tries
    )


def put_aside(tx: Any, letters: Sequence[Letter], writer: Writer) -> None:
    """Insert letters, within the caller's transaction."""
    landing = Landing(tx, writer)
    table = landing.table("dead_letter")
    columns = "job, run_id, item_key, payload, error_code, error, attempt, created_at, state"
    statement = f"INSERT INTO {table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, {landing.now}, '{NEW}')"  # noqa: S608 - ours
    for letter in letters:
        landing.execute(statement, [writer.job, writer.run_id, *letter])

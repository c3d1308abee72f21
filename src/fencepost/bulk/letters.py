"""Dead letters: items that could not be processed, stored in the transaction of their chunk.

A letter has the item as JSON, the error and the number of tries. The letter of a record that could not be parsed has
the raw record instead, which the reader parses again in a replay. A letter is `new` until an operator replays or drops
it. States change by compare-and-set, so of two concurrent changes one succeeds.

Each database numbers its letters independently, so a letter is identified by its database and its id.
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from fencepost.bulk.reader import Unread
from fencepost.core.identity import fitted
from fencepost.core.positions import packed, unpacked
from fencepost.core.report import code_of
from fencepost.core.texts import beginning, error_text
from fencepost.errors import InvalidBulk
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.writer import Writer
from fencepost.ledger.naming import ledger_in, without_ledger

NEW, REPLAYED, DROPPED = "new", "replayed", "dropped"
STATES = (NEW, REPLAYED, DROPPED)
_LONGEST_ERROR = 4_000  # as much as the error of a run has
_LONGEST_PAYLOAD = 60_000  # characters; of a longer item, only a description is stored
_LONGEST_PARAMS = 2_000  # they are stored with every letter
_BATCH = 500  # parameters per statement stay below every driver's limit


class Letter(NamedTuple):
    """A failed item: its label, the item as JSON, the error, and the number of tries."""

    item_key: str
    payload: str
    error_code: str
    error: str
    attempt: int


class StoredLetter(NamedTuple):
    """A letter as stored in its database. `created_at` is in µs."""

    id: int
    job: str
    run_id: int | None
    item_key: str
    payload: str
    error_code: str
    error: str
    attempt: int
    created_at: int
    state: str

    @property
    def step(self) -> str:
        """The step that the item belongs to."""
        return str(self._envelope.get("step", ""))

    @property
    def instance(self) -> str:
        """The instance of its run."""
        return without_ledger(str(self._envelope.get("instance", "")))

    @property
    def params(self) -> dict[str, Any] | None:
        """The parameters of its run, as they were recorded; None if unknown."""
        found = self._envelope.get("params")
        return found if isinstance(found, dict) else None

    def is_of(self, ledger: str) -> bool:
        """Whether its run belongs to this ledger, given by the short form of its identity; True if unknown."""
        return ledger_in(str(self._envelope.get("instance", ""))) in ("", ledger)

    @property
    def shown(self) -> str:
        """The item for display: its JSON or its description, or the raw record if it could not be parsed."""
        envelope, unread = self._envelope, self.unread
        if unread is not None:
            raw = unread.raw
            return json.dumps(
                raw if isinstance(raw, str) else raw.decode("ascii", "backslashreplace"), ensure_ascii=False
            )
        return json.dumps(envelope["item"], ensure_ascii=False) if "item" in envelope else str(envelope.get("shown"))

    @property
    def can_be_replayed(self) -> bool:
        """Whether the letter has the item itself or its raw record."""
        return not self._envelope.keys().isdisjoint(("item", "raw"))

    @property
    def unread(self) -> Unread | None:
        """The raw record, if it could not be parsed. There is no item then."""
        envelope = self._envelope
        if "raw" not in envelope:
            return None
        return Unread(unpacked(envelope["raw"]), self.error, self.item_key, envelope.get("context"))

    def item(self) -> Any:
        """Return the item as the step's `process` gets it. Raise `InvalidBulk`, with the reason, if there is none.

        A row comes back as a row with the same names, and a plain tuple as a tuple. Items of other classes are not
        stored.
        """
        envelope = self._envelope
        if "item" not in envelope:
            raise InvalidBulk(
                f"dead letter {self.id} ({self.item_key}) cannot be replayed: its item had no JSON form or was too "
                "long, so only a description was stored. Read the input again (fencepost bulk again RUN), or drop it"
            )
        item = unpacked(envelope["item"])
        if "names" in envelope:
            return _row(tuple(envelope["names"]))(*item)
        return tuple(item) if envelope.get("kind") == "tuple" else item

    @property
    def _envelope(self) -> dict[str, Any]:
        try:
            found = json.loads(self.payload)
        except (TypeError, ValueError):  # not a row of ours
            return {"shown": self.payload}
        return found if isinstance(found, dict) else {"shown": self.payload}


_COLUMNS = ", ".join(StoredLetter._fields)


@lru_cache(maxsize=256)
def _row(names: tuple[str, ...]) -> Any:
    """Return a named tuple type, like that of the readers' rows."""
    return namedtuple("Row", names, rename=True)


def letter_of(
    item: Any,
    label: str,
    error: BaseException,
    *,
    step: str,
    instance: str,
    tries: int,
    params: Mapping[str, Any] | None = None,
) -> Letter:
    """Return the letter of a failed item. An item without a JSON form is described instead, and cannot be replayed.

    `params` are the recorded parameters of its run, because the letter may be kept for longer than the run. Long
    parameters are not stored with each letter.
    """
    envelope: dict[str, Any] = {"step": step, "instance": instance}
    if params is not None and len(json.dumps(params)) <= _LONGEST_PARAMS:
        envelope["params"] = params
    try:
        text = json.dumps({**envelope, **_content(item)})
    except (TypeError, ValueError, RecursionError):
        text = ""
    if not text or len(text) > _LONGEST_PAYLOAD:
        shown = repr(item.raw if isinstance(item, Unread) else item)
        text = json.dumps({**envelope, "shown": beginning(shown, _LONGEST_PAYLOAD // 2)})
    return Letter(fitted(label or "?"), text, code_of(error), _error_of(error), tries)


def _content(item: Any) -> dict[str, Any]:
    if isinstance(item, Unread):
        return {"raw": packed(item.raw), "context": item.context}
    return {"item": packed(item), **_kind(item)}


def _kind(item: Any) -> dict[str, Any]:
    """Return what JSON cannot express: whether a list was a row or a tuple."""
    names = list(getattr(item, "_fields", ()))
    if names:
        return {"names": names}
    return {"kind": "tuple"} if isinstance(item, tuple) else {}


def _error_of(error: BaseException) -> str:
    return error_text(error, _LONGEST_ERROR) or code_of(error)


def put_aside(tx: Any, letters: Sequence[Letter], writer: Writer) -> None:
    """Insert letters in the caller's transaction."""
    landing = EffectStatements(tx, writer)
    table = landing.table("dead_letter")
    columns = "job, run_id, item_key, payload, error_code, error, attempt, created_at, state"
    statement = f"INSERT INTO {table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, {landing.now}, '{NEW}')"
    for letter in letters:
        landing.execute(statement, [writer.job, writer.run_id, *letter])


# -- what operators do with them ---------------------------------------------------------------------------------------


class LetterFilter(NamedTuple):
    """Selects letters of these jobs, in this state (None: any)."""

    jobs: tuple[str, ...]
    state: str | None = None


def letters(
    tx: Any,
    writer: Writer,
    wanted: LetterFilter,
    *,
    before_id: int | None = None,
    after_id: int | None = None,
    limit: int = 100,
) -> list[StoredLetter]:
    """Return a page of letters, newest first; with `after_id`, those after it, oldest first.

    There is one query for each job, so that a page is always read from the index.
    """
    landing, is_rising = EffectStatements(tx, writer), after_id is not None
    where, values = _bounds(wanted.state, before_id, after_id)
    order = "id" if is_rising else "id DESC"
    query = (
        f"SELECT {_COLUMNS} FROM {landing.table('dead_letter')} WHERE job = %s{where} ORDER BY {order} LIMIT {limit:d}"
    )
    found = [StoredLetter(*row) for job in wanted.jobs for row in landing.execute(query, [job, *values]).rows]
    return sorted(found, key=attrgetter("id"), reverse=not is_rising)[:limit]


def _bounds(state: str | None, before_id: int | None, after_id: int | None) -> tuple[str, list[Any]]:
    given = (("state =", state), ("id <", before_id), ("id >", after_id))
    there = [(sql, value) for sql, value in given if value is not None]
    return "".join(f" AND {sql} %s" for sql, _ in there), [value for _, value in there]


def letters_by_id(tx: Any, writer: Writer, jobs: Iterable[str], ids: Sequence[int]) -> list[StoredLetter]:
    """Return the letters with these ids that exist, in the order of their ids."""
    landing, known = EffectStatements(tx, writer), set(jobs)
    found = []
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        marks = ", ".join(["%s"] * len(some))
        query = f"SELECT {_COLUMNS} FROM {landing.table('dead_letter')} WHERE id IN ({marks}) ORDER BY id"
        found += [StoredLetter(*row) for row in landing.execute(query, list(some)).rows]
    return sorted((each for each in found if each.job in known), key=attrgetter("id"))


def settle(tx: Any, writer: Writer, letter_id: int, state: str) -> bool:
    """Mark a letter as replayed or dropped; False if it is no longer new."""
    landing = EffectStatements(tx, writer)
    statement = f"UPDATE {landing.table('dead_letter')} SET state = %s WHERE id = %s AND state = '{NEW}'"
    return landing.execute(statement, [state, letter_id]).count == 1


def fail_again(tx: Any, writer: Writer, letter_id: int, error: BaseException) -> None:
    """Store the error of a letter that has failed again in a replay."""
    landing = EffectStatements(tx, writer)
    sets = "error_code = %s, error = %s, attempt = attempt + 1"
    statement = f"UPDATE {landing.table('dead_letter')} SET {sets} WHERE id = %s AND state = '{NEW}'"
    landing.execute(statement, [code_of(error), _error_of(error), letter_id])

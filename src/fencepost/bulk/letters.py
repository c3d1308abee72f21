"""Dead letters: items that could not be processed, put aside in the transaction of the chunk they were part of.

A letter has the item itself as JSON, why it failed and how often it was tried; the letter of a record that could not be
understood has what stands in the input, which the reader reads once more in a replay. It is `new` until somebody has it
replayed or drops it; from one state to the next it goes by compare-and-set, so that of two who would do so one does.

Their ids are counted in each database by itself: a letter is named by its database and its id.
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
from fencepost.core.texts import beginning, told
from fencepost.errors import InvalidBulk
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.writer import Writer
from fencepost.ledger.naming import ledger_in, without_ledger

NEW, REPLAYED, DROPPED = "new", "replayed", "dropped"
STATES = (NEW, REPLAYED, DROPPED)
_LONGEST_ERROR = 4_000
_LONGEST_PAYLOAD = 60_000
_LONGEST_PARAMS = 2_000
_BATCH = 500


class Letter(NamedTuple):
    """An item that failed: its name for people, itself as JSON, why, and after how many tries."""

    item_key: str
    payload: str
    error_code: str
    error: str
    attempt: int


class StoredLetter(NamedTuple):
    """A letter as it stands in its database. `created_at` is µs."""

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
        """The step whose item it is."""
        return str(self._envelope.get("step", ""))

    @property
    def instance(self) -> str:
        """What its run stood for."""
        return without_ledger(str(self._envelope.get("instance", "")))

    @property
    def params(self) -> dict[str, Any] | None:
        """The parameters of its run, as they were recorded; None if nobody knows."""
        found = self._envelope.get("params")
        return found if isinstance(found, dict) else None

    def is_of(self, ledger: str) -> bool:
        """Whether its run is one of this ledger, by the short form of its identity; True if nobody knows."""
        return ledger_in(str(self._envelope.get("instance", ""))) in ("", ledger)

    @property
    def shown(self) -> str:
        """The item for people: as JSON, or as its description; the text of what could not be read."""
        envelope, unread = self._envelope, self.unread
        if unread is not None:
            raw = unread.raw
            return json.dumps(
                raw if isinstance(raw, str) else raw.decode("ascii", "backslashreplace"), ensure_ascii=False
            )
        return json.dumps(envelope["item"], ensure_ascii=False) if "item" in envelope else str(envelope.get("shown"))

    @property
    def can_be_replayed(self) -> bool:
        """Whether the item itself is kept, or the text that it was to be read from."""
        return not self._envelope.keys().isdisjoint(("item", "raw"))

    @property
    def unread(self) -> Unread | None:
        """What stands in the input, if it could not be understood there; then there is no item yet."""
        envelope = self._envelope
        if "raw" not in envelope:
            return None
        return Unread(unpacked(envelope["raw"]), self.error, self.item_key, envelope.get("context"))

    def item(self) -> Any:
        """Return the item as the step's `process` gets it; `InvalidBulk` says why there is none.

        A row comes back as a row with the same names, a plain tuple as a tuple; of other classes there is none.
        """
        envelope = self._envelope
        if "item" not in envelope:
            raise InvalidBulk(
                f"dead letter {self.id} ({self.item_key}) cannot be replayed: its item had no JSON form, or was too "
                "long, and only a description was kept. Have it read again (fencepost bulk again RUN), or drop it"
            )
        item = unpacked(envelope["item"])
        if "names" in envelope:
            return _row(tuple(envelope["names"]))(*item)
        return tuple(item) if envelope.get("kind") == "tuple" else item

    @property
    def _envelope(self) -> dict[str, Any]:
        try:
            found = json.loads(self.payload)
        except (TypeError, ValueError):  # somebody else's row
            return {"shown": self.payload}
        return found if isinstance(found, dict) else {"shown": self.payload}


_COLUMNS = ", ".join(StoredLetter._fields)


@lru_cache(maxsize=256)
def _row(names: tuple[str, ...]) -> Any:
    """Return a tuple with names, like the rows that readers make."""
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
    """Write a letter; an item that has no JSON form is described instead, and cannot be replayed.

    `params` are those of its run, as they were recorded: the letter may be kept for longer than the run. Long ones are
    not kept with each letter.
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
    return Letter(fitted(label or "?"), text, code_of(error), _told(error), tries)


def _content(item: Any) -> dict[str, Any]:
    if isinstance(item, Unread):
        return {"raw": packed(item.raw), "context": item.context}
    return {"item": packed(item), **_kind(item)}


def _kind(item: Any) -> dict[str, Any]:
    """Say what JSON cannot: that a list was a row, or a tuple."""
    names = list(getattr(item, "_fields", ()))
    if names:
        return {"names": names}
    return {"kind": "tuple"} if isinstance(item, tuple) else {}


def _told(error: BaseException) -> str:
    return told(error, _LONGEST_ERROR) or code_of(error)


def put_aside(tx: Any, letters: Sequence[Letter], writer: Writer) -> None:
    """Insert letters, within the caller's transaction."""
    landing = EffectStatements(tx, writer)
    table = landing.table("dead_letter")
    columns = "job, run_id, item_key, payload, error_code, error, attempt, created_at, state"
    statement = f"INSERT INTO {table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, {landing.now}, '{NEW}')"
    for letter in letters:
        landing.execute(statement, [writer.job, writer.run_id, *letter])


# -- what operators do with them ---------------------------------------------------------------------------------------


class LetterFilter(NamedTuple):
    """Which letters are asked for: of these jobs, in this state (None: any)."""

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
    """Return a page of letters, newest first; with `after_id` those after it, oldest first.

    Each job is asked for by itself: so a page is read from the index, whatever else there is.
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
    """Return those of these letters that are there, in the order of their ids."""
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
    """Note why a letter that was to be replayed has failed once more."""
    landing = EffectStatements(tx, writer)
    sets = "error_code = %s, error = %s, attempt = attempt + 1"
    statement = f"UPDATE {landing.table('dead_letter')} SET {sets} WHERE id = %s AND state = '{NEW}'"
    landing.execute(statement, [code_of(error), _told(error), letter_id])

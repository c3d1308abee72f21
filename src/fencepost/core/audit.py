"""The audit chain: entries that cannot be changed, removed or inserted without breaking the hashes behind them.

::

    hash(n) = SHA-256("fencepost.audit.1" + hash(n − 1) + entry(n))        hash(0) is 64 zeros

An entry is the exact JSON text that was hashed, so no database can change what is compared. An *anchor* is a pair of a
number and a hash that was copied out of the database: into a log, a file, a Git repository.

**Promises.** A change, a removal or an insertion by a person who does not recompute the chain is found. One who
recomputes it with full access to the database is found against any anchor that was taken before.

**Not promised.** Entries behind the last anchor are not protected from a person who rewrites the whole chain. The chain
does not show that the name in an entry is that of the person who acted: only how that person was identified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fencepost.core.identity import canonical_json

FORMAT = "fencepost.audit.1"
FIRST = "0" * 64
"""The hash before the first entry."""

PRUNED = "prune audit"
"""The act of an entry that says which beginning of the chain was removed."""

COPIED = ("at", "who", "act", "job", "run_id")
"""What stands in columns of its own, too, so that it can be searched by. Verification compares both."""


class ChainRow(NamedTuple):
    """One entry as it is stored. `copied` are the values of the columns that repeat parts of the entry."""

    n: int
    entry: str
    prev: str
    hash: str
    copied: tuple[Any, ...] = ()


class ChainEnd(NamedTuple):
    """The number and hash of the last entry: the head of a chain, an anchor, or the end of what was pruned."""

    n: int
    hash: str


NOTHING = ChainEnd(0, FIRST)
"""The end of an empty chain."""


class Damage(StrEnum):
    """What can be wrong with a chain."""

    EDITED = "edited"  # the text of an entry, or a column that repeats a part of it, is not what was hashed
    REMOVED = "removed"  # numbers are missing
    INSERTED = "inserted"  # an entry does not continue the one before it
    CUT_OFF = "cut off"  # the newest entries are missing: the head names later ones
    HEAD_CHANGED = "head changed"  # the head does not name the last entry
    ROLLED_BACK = "rolled back"  # an anchor names a later entry than there is
    REWRITTEN = "rewritten"  # an anchor names another hash for an entry that is there


@dataclass(frozen=True, slots=True)
class Break:
    """One place where a chain is broken, and what it looks like there."""

    n: int
    damage: Damage
    reason: str

    def __str__(self) -> str:
        return f"entry {self.n}: {self.damage}: {self.reason}"


def entry_text(fields: Mapping[str, Any]) -> str:
    """Return the text of an entry: what is None is left out, and the order of keys is fixed."""
    return canonical_json({name: value for name, value in fields.items() if value is not None})


def chain_hash(prev: str, entry: str) -> str:
    """Return the hash of an entry that follows the one with the hash `prev`."""
    return hashlib.sha256(f"{FORMAT}{prev}{entry}".encode()).hexdigest()


def copied_from(entry: str) -> tuple[Any, ...]:
    """Return what the columns beside an entry have to say."""
    fields = json.loads(entry)
    return tuple(fields.get(name) for name in COPIED)


def breaks(
    rows: Iterable[ChainRow],
    *,
    head: ChainEnd,
    floor: ChainEnd = NOTHING,
    anchors: Sequence[ChainEnd] = (),
) -> Iterator[Break]:
    """Compare a chain with itself, with its head, and with anchors; yield what does not fit, in order.

    `rows` come in the order of their numbers, from after `floor` on: the end of what was pruned.
    """
    wanted = _by_number(anchors)
    yield from _against(wanted, floor)
    last, is_pruned = floor, floor == NOTHING
    for row in rows:
        yield from _at(row, last)
        last = ChainEnd(row.n, row.hash)
        is_pruned = is_pruned or pruned_by(row.entry) == floor
        yield from _against(wanted, last)
    if not is_pruned:
        yield Break(
            floor.n, Damage.REMOVED, f"entries 1 to {floor.n} are missing, and no entry says that they were pruned"
        )
    yield from _at_the_end(last, head)
    for n in sorted(n for n in wanted if n > last.n):
        yield Break(n, Damage.ROLLED_BACK, f"an anchor names it, and the chain ends with entry {last.n}")


def pruned_by(entry: str) -> ChainEnd | None:
    """Return the end of what an entry says was pruned; None if it is about something else."""
    try:
        said = json.loads(entry)
        if said["act"] != PRUNED:
            return None
        return ChainEnd(said["detail"]["through"], said["detail"]["hash"])
    except (ValueError, KeyError, TypeError):
        return None


def _at(row: ChainRow, last: ChainEnd) -> Iterator[Break]:
    if row.n > last.n + 1:
        missing = f"entries {last.n + 1} to {row.n - 1} are" if row.n > last.n + 2 else f"entry {last.n + 1} is"
        yield Break(last.n + 1, Damage.REMOVED, f"{missing} missing")
    elif row.prev != last.hash:
        yield Break(row.n, Damage.INSERTED, f"it does not continue entry {last.n}")
    if chain_hash(row.prev, row.entry) != row.hash:
        yield Break(row.n, Damage.EDITED, "its text does not have the hash that was recorded")
    elif (changed := _changed_columns(row)) is not None:
        yield Break(row.n, Damage.EDITED, changed)


def _changed_columns(row: ChainRow) -> str | None:
    """Say which columns differ from the entry; None if all are alike, or none were given."""
    if not row.copied:
        return None
    try:
        said = copied_from(row.entry)
        number = json.loads(row.entry).get("n")
    except (ValueError, AttributeError):
        return "its text is not a JSON object"
    if number != row.n:
        return f"its text says that it is entry {number}"
    differing = [name for name, here, there in zip(COPIED, row.copied, said, strict=True) if here != there]
    return f"the columns {', '.join(differing)} are not what its text says" if differing else None


def _at_the_end(last: ChainEnd, head: ChainEnd) -> Iterator[Break]:
    if head.n > last.n:
        yield Break(last.n + 1, Damage.CUT_OFF, f"the head names entry {head.n}, and the chain ends with {last.n}")
    elif head != last:
        yield Break(head.n, Damage.HEAD_CHANGED, f"the head names entry {head.n}, and the chain ends with {last.n}")


def _by_number(anchors: Sequence[ChainEnd]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for anchor in anchors:
        found.setdefault(anchor.n, set()).add(anchor.hash)
    return found


def _against(anchors: Mapping[int, set[str]], here: ChainEnd) -> Iterator[Break]:
    if anchors.get(here.n, {here.hash}) != {here.hash}:
        yield Break(here.n, Damage.REWRITTEN, "an anchor names another hash for it")

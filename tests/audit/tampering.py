"""Random changes to the rows of the audit in a real database: each has to be found.

Changes that recompute hashes, or set everything back, are compared with an anchor that was taken before; all others are
found by the chain alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from sqlalchemy import Table, delete, insert, select

from fencepost.app.operations import Operations
from fencepost.app.records.audit import AnchorRecord
from fencepost.core.audit import FIRST, PRUNED, chain_hash, copied_from, entry_text
from fencepost.core.rights import Caller, Scope
from fencepost.ledger import auditing
from fencepost.ledger.auditing import AuditAct
from fencepost.ledger.ledger import Ledger

ENTRIES = 12
Row = dict[str, Any]
_BEFORE = 2**40


class Tampered:
    """A chain in a ledger, which is changed and put right again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        tables = ledger.tables.operating
        self._audit, self._head = tables["audit"], tables["audit_head"]
        for number in range(ENTRIES):
            act = AuditAct(Caller("ann", address="192.0.2.7"), "retry", job="settle", run_id=number, reason="why")
            ledger.write(lambda cursor, act=act: auditing.append(ledger, cursor, [act]))  # type: ignore[misc]
        self._verifier = Operations(ledger, Scope.direct()).audit
        self.anchor: AnchorRecord = self._verifier.anchor()
        self._rows, self._heads = self._read(self._audit), self._read(self._head)

    def unseen(self, seed: int) -> str | None:
        """Make the change that a seed stands for; return what it was if it is not found."""
        dice = Random(seed)
        name, change, needs_anchor = KINDS[seed % len(KINDS)]
        rows, heads = [dict(each) for each in self._rows], [dict(each) for each in self._heads]
        while (rows, heads) == (self._rows, self._heads):
            change(dice, rows, heads)
        self._write(rows, heads)
        try:
            found = self._verifier.verify([self.anchor] if needs_anchor else [])
            return name if found.is_intact else None
        finally:
            self._write(self._rows, self._heads)

    def is_intact(self) -> bool:
        return bool(self._verifier.verify([self.anchor]).is_intact)

    def _read(self, table: Table) -> list[Row]:
        columns = [column.name for column in table.columns]
        key = next(iter(table.primary_key.columns))
        rows = self._ledger.read(lambda cursor: self._ledger.rows(cursor, select(table).order_by(key)))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _write(self, rows: list[Row], heads: list[Row]) -> None:
        def work(cursor: Any) -> None:
            for table, wanted in ((self._audit, rows), (self._head, heads)):
                self._ledger.change(cursor, delete(table))
                for row in wanted:
                    self._ledger.change(cursor, insert(table).values(row).inline())

        self._ledger.write(work)


Change = Callable[[Random, list[Row], list[Row]], None]
_TEXTS = ("who", "act", "job", "entry", "prev", "hash")


def _edit(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """Another value in any column but the number."""
    row, name = dice.choice(rows), dice.choice((*_TEXTS, "at", "run_id"))
    if name == "entry":
        said = json.loads(row["entry"])
        said[dice.choice(sorted(said))] = dice.choice(["mallory", 7, None])
        row["entry"] = json.dumps(said)
    elif name in ("at", "run_id"):
        row[name] = dice.choice([-1, 0, row[name] + 1, 2**60])
    elif name in ("prev", "hash"):
        row[name] = dice.choice(["", "0" * 63 + "1", row[name].upper() + "x", row[name][:-1] + "g"])[:64]
    else:
        row[name] = dice.choice(["mallory", "", row[name].upper() if row[name] else "X", f"{row[name]} "])


def _renumber(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    dice.choice(rows)["n"] = dice.choice([-3, 0, 99, _BEFORE])


def _remove(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    at = dice.randrange(len(rows))
    del rows[at : at + dice.randrange(1, 4)]


def _put_in(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """A copy of an entry under a number of its own, with hashes that fit or not."""
    row = dict(dice.choice(rows))
    row["n"] = dice.choice([0, -1, ENTRIES + 1, 50])
    if dice.random() < 0.5:
        row["entry"] = entry_text({**json.loads(row["entry"]), "n": row["n"], "who": "mallory"})
        row |= {"prev": rows[-1]["hash"], "hash": chain_hash(rows[-1]["hash"], row["entry"]), "who": "mallory"}
    rows.append(row)


def _swap(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    one, other = dice.sample(rows, 2)
    one["n"], other["n"] = other["n"], one["n"]


def _forged_in_place(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """One entry rewritten with its own hash, and nothing behind it."""
    row = dice.choice(rows[:-1])
    row["entry"] = entry_text({**json.loads(row["entry"]), "who": "mallory"})
    row |= {"hash": chain_hash(row["prev"], row["entry"]), "who": "mallory"}


def _cut_off(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    del rows[dice.randrange(1, len(rows)) :]


def _set_head(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    what = dice.choice(["n", "hash", "gone", "floor_n", "floor_hash"])
    if what == "gone":
        heads.clear()
    elif what in ("n", "floor_n"):
        heads[0][what] += dice.choice([1, -1, 5])
    else:
        heads[0][what] = "f" * 64


def _roll_back(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """As a dump would that is put back: the head fits."""
    del rows[dice.randrange(1, len(rows)) :]
    heads[0] |= {"n": rows[-1]["n"], "hash": rows[-1]["hash"]}


def _rewrite(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """Change an entry, and recompute all behind it."""
    _rehash(rows, heads, dice.randrange(len(rows)), who=f"mallory{dice.randrange(99)}")


def _fork(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """Continue from an earlier entry with others, as a second server would from a copy."""
    start = dice.randrange(1, len(rows))
    _rehash(rows, heads, start, reason="on the other side")
    del rows[max(start + 1, len(rows) - dice.randrange(3)) :]
    heads[0] |= {"n": rows[-1]["n"], "hash": rows[-1]["hash"]}


def _begin_anew(dice: Random, rows: list[Row], heads: list[Row]) -> None:
    """Remove a beginning, say that it was pruned, and recompute the rest."""
    through = dice.randrange(1, len(rows) - 1)
    floor = rows[through - 1]["hash"]
    del rows[:through]
    said = {
        "n": rows[-1]["n"],
        "at": rows[-1]["at"],
        "who": "ann",
        "act": PRUNED,
        "detail": {"through": through, "hash": floor},
    }
    rows[-1]["entry"] = entry_text(said)
    heads[0] |= {"floor_n": through, "floor_hash": floor}
    _rehash(rows, heads, 0, first=floor)


def _rehash(rows: list[Row], heads: list[Row], start: int, *, first: str = FIRST, **said: Any) -> None:
    prev = rows[start - 1]["hash"] if start else first
    for number, row in enumerate(rows[start:]):
        entry = entry_text({**json.loads(row["entry"]), **(said if number == 0 else {})})
        copied = dict(zip(("at", "who", "act", "job", "run_id"), copied_from(entry), strict=True))
        row |= {"entry": entry, "prev": prev, "hash": chain_hash(prev, entry), **copied}
        prev = row["hash"]
    heads[0] |= {"n": rows[-1]["n"], "hash": prev}


KINDS: tuple[tuple[str, Change, bool], ...] = (
    ("edit", _edit, False),
    ("another number", _renumber, False),
    ("removal", _remove, False),
    ("insertion", _put_in, False),
    ("swap", _swap, False),
    ("forged in place", _forged_in_place, False),
    ("cut off", _cut_off, False),
    ("head", _set_head, False),
    ("roll back", _roll_back, True),
    ("rewrite", _rewrite, True),
    ("fork", _fork, True),
    ("begin anew", _begin_anew, True),
)

"""The audit chain: what was changed afterwards is found, what was not is left alone."""

import json
import random

import pytest

from fencepost.core.audit import FIRST, PRUNED, ChainEnd, ChainRow, Damage, breaks, chain_hash, copied_from, entry_text


def made(count: int, *, act: str = "retry") -> list[ChainRow]:
    rows: list[ChainRow] = []
    prev = FIRST
    for n in range(1, count + 1):
        entry = entry_text({"n": n, "at": 1000 + n, "who": "ann", "act": act, "job": "settle", "run_id": n})
        rows.append(ChainRow(n, entry, prev, chain_hash(prev, entry), copied_from(entry)))
        prev = rows[-1].hash
    return rows


def head(rows: list[ChainRow]) -> ChainEnd:
    return ChainEnd(rows[-1].n, rows[-1].hash)


def found(rows: list[ChainRow], **words: object) -> list[Damage]:
    words.setdefault("head", ChainEnd(9, made(9)[-1].hash))
    return [each.damage for each in breaks(rows, **words)]  # type: ignore[arg-type]


def edited(row: ChainRow, **fields: object) -> ChainRow:
    return row._replace(entry=entry_text({**json.loads(row.entry), **fields}))


def rehashed(rows: list[ChainRow], start: int) -> list[ChainRow]:
    """What a forger with full access does: compute all hashes anew."""
    kept = rows[:start]
    for row in rows[start:]:
        prev = kept[-1].hash if kept else FIRST
        kept.append(ChainRow(row.n, row.entry, prev, chain_hash(prev, row.entry), copied_from(row.entry)))
    return kept


def test_untouched_chain_has_no_break():
    assert found(made(9)) == []


def test_empty_chain_has_no_break():
    assert list(breaks([], head=ChainEnd(0, FIRST))) == []


def test_edited_text_is_found():
    rows = made(9)
    rows[4] = edited(rows[4], who="bob")
    assert found(rows) == [Damage.EDITED]


def test_edited_column_is_found_though_the_text_is_untouched():
    rows = made(9)
    rows[4] = rows[4]._replace(copied=(rows[4].copied[0], "bob", *rows[4].copied[2:]))
    assert found(rows) == [Damage.EDITED]


def test_edited_text_with_its_own_hash_made_anew_is_found_by_the_entry_behind_it():
    rows = made(9)
    forged = edited(rows[4], who="bob")
    rows[4] = forged._replace(hash=chain_hash(forged.prev, forged.entry), copied=copied_from(forged.entry))
    assert found(rows) == [Damage.INSERTED]


@pytest.mark.parametrize("at", [0, 4, 7])
def test_removed_entry_is_found(at):
    rows = made(9)
    del rows[at]
    assert found(rows) == [Damage.REMOVED]


def test_removed_end_is_found_by_the_head():
    assert found(made(9)[:6]) == [Damage.CUT_OFF]


def test_removed_end_whose_head_was_set_back_is_found_by_an_anchor():
    rows = made(9)
    assert found(rows[:6], head=head(rows[:6])) == []
    assert found(rows[:6], head=head(rows[:6]), anchors=[head(rows)]) == [Damage.ROLLED_BACK]


def test_chain_computed_anew_is_found_by_an_anchor_behind_the_change_alone():
    rows = made(9)
    forged = rows[:]
    forged[4] = edited(forged[4], who="bob")
    forged = rehashed(forged, 4)
    assert found(forged, head=head(forged)) == []
    assert found(forged, head=head(forged), anchors=[ChainEnd(4, rows[3].hash)]) == []
    assert found(forged, head=head(forged), anchors=[ChainEnd(7, rows[6].hash)]) == [Damage.REWRITTEN]


def test_head_that_names_an_earlier_entry_is_found():
    rows = made(9)
    assert found(rows, head=head(rows[:5])) == [Damage.HEAD_CHANGED]


def pruned(rows: list[ChainRow], through: int) -> list[ChainRow]:
    """Remove a beginning as the ledger does: with an entry that says so."""
    said = {"n": rows[-1].n + 1, "act": PRUNED, "detail": {"through": through, "hash": rows[through - 1].hash}}
    entry = entry_text({**said, "at": 1, "who": "eve"})
    last = rows[-1].hash
    return [*rows[through:], ChainRow(rows[-1].n + 1, entry, last, chain_hash(last, entry), copied_from(entry))]


def test_pruned_beginning_is_no_break_and_an_anchor_at_its_end_is_compared():
    rows = made(9)
    floor, kept = head(rows[:3]), pruned(rows, 3)
    assert found(kept, floor=floor, head=head(kept)) == []
    assert found(kept, floor=floor, head=head(kept), anchors=[floor]) == []
    assert found(kept, floor=floor, head=head(kept), anchors=[ChainEnd(3, FIRST)]) == [Damage.REWRITTEN]


def test_beginning_that_was_removed_by_moving_the_floor_is_found():
    rows = made(9)
    assert found(rows[3:], floor=head(rows[:3])) == [Damage.REMOVED]
    kept = pruned(rows, 3)
    assert found(kept[2:], floor=head(rows[:5]), head=head(kept)) == [Damage.REMOVED]
    assert found([], floor=head(rows), head=head(rows)) == [Damage.REMOVED]


def test_entry_that_is_not_json_is_found_and_does_not_end_the_search():
    rows = made(9)
    broken = rows[4]._replace(entry="[")
    rows[4] = broken._replace(hash=chain_hash(broken.prev, "["))
    assert found(rows) == [Damage.EDITED, Damage.INSERTED]


@pytest.mark.parametrize("seed", range(500))
def test_random_tampering_is_found_against_the_head_or_an_anchor(seed):
    chance = random.Random(seed)
    rows = made(12)
    anchor, honest_head = head(rows), head(rows)
    tampered = rows[:]
    at = chance.randrange(len(tampered))
    kind = chance.choice(["edit", "remove", "insert", "swap", "cut", "column", "rewrite", "floor"])
    floor = ChainEnd(0, FIRST)
    if kind in ("edit", "rewrite"):
        tampered[at] = edited(tampered[at], who=f"mallory{seed}")
    elif kind == "remove":
        del tampered[at]
    elif kind == "insert":
        forged = edited(tampered[at], act="cancel")
        tampered.insert(at, forged._replace(hash=chain_hash(forged.prev, forged.entry)))
    elif kind == "swap":
        other = (at + 1 + chance.randrange(len(tampered) - 1)) % len(tampered)
        tampered[at], tampered[other] = (
            tampered[other]._replace(n=tampered[at].n),
            tampered[at]._replace(n=tampered[other].n),
        )
    elif kind == "cut":
        del tampered[at:]
    elif kind == "floor":
        floor = head(tampered[: at + 1])
        del tampered[: at + 1]
    else:
        tampered[at] = tampered[at]._replace(copied=(0, *tampered[at].copied[1:]))
    if kind == "rewrite":
        tampered = rehashed(tampered, at)
        assert list(breaks(tampered, head=head(tampered), anchors=[anchor])), kind
    else:
        assert list(breaks(tampered, head=honest_head, floor=floor)), kind

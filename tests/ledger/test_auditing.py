"""The audit in the ledger: one chain, however many write; no act without its entry."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select, update

from fencepost.core.audit import FIRST, ChainEnd, Damage, breaks
from fencepost.core.masked_values import MASKED, MaskedValues
from fencepost.core.noted import Noted
from fencepost.core.rights import Caller, HumanAct
from fencepost.ledger import auditing, journal
from fencepost.ledger.auditing import AuditAct
from fencepost.ledger.journal import About

ANN = Caller("ann", how="login", address="10.0.0.7", request_id="r-1")


def note(ledger, act=HumanAct.RETRY, **words):
    return ledger.write(lambda cursor: auditing.append(ledger, cursor, [AuditAct(ANN, act, **words)]))


def found(ledger, anchors=()):
    state = auditing.state(ledger)
    rows = auditing.chain(ledger, after_n=state.floor.n, through_n=2**62)
    return [each.damage for each in breaks(rows, head=state.head, floor=state.floor, anchors=anchors)]


def test_entry_says_who_did_what_and_how_that_person_was_known(ledger):
    note(ledger, job="settle", run_id=7, reason="asked by 전화", detail={"from": "dead", "to": "queued"})
    [row] = auditing.entries(ledger)
    assert (row.n, row.who, row.act, row.job, row.run_id) == (1, "ann", "retry", "settle", 7)
    said = json.loads(row.entry)
    assert (said["how"], said["from"], said["request"], said["outcome"]) == ("login", "10.0.0.7", "r-1", "done")
    assert (said["reason"], said["detail"]) == ("asked by 전화", {"from": "dead", "to": "queued"})
    assert said["at"] == row.at > 1_700_000_000_000_000
    assert found(ledger) == []


def test_values_of_secrets_stand_in_no_entry(ledger):
    before = vars(MASKED).copy()
    vars(MASKED).update(vars(MaskedValues()))
    try:
        kept = MASKED.add("correct-horse")
        detail = {"key": "for correct-horse", "jobs": ["settle", "x correct-horse"], "params": {"of": "correct-horse"}}
        note(ledger, reason="it is correct-horse", detail={**detail, "begun": 7})
        about = About(by="ann", detail=detail)
        ledger.write(lambda cursor: journal.note(ledger, cursor, Noted.RUN_TRIGGERED, about))
    finally:
        vars(MASKED).update(before)
    del kept
    [other, row] = auditing.entries(ledger)
    [line] = journal.entries(ledger)
    said = json.loads(row.entry)
    assert (said["reason"], "correct-horse" in f"{row.entry}{other.entry}{line.detail}") == ("it is ***", False)
    assert json.loads(line.detail) == json.loads(other.entry)["detail"]
    assert said["detail"] == {
        "key": "for ***", "jobs": ["settle", "x ***"], "params": {"of": "***"}, "begun": 7
    }  # fmt: skip
    assert found(ledger) == []


def test_secret_that_stands_in_the_hash_of_what_was_pruned_is_left_there(ledger):
    for _ in range(3):
        note(ledger, job="settle")
    [*_, row, _, _] = auditing.chain(ledger, after_n=0, through_n=10)
    before = vars(MASKED).copy()
    vars(MASKED).update(vars(MaskedValues()))
    try:
        kept = MASKED.add(row.hash[20:26])
        act = AuditAct(ANN, HumanAct.PRUNE_AUDIT, detail={"of": f"x {row.hash[20:26]}"})
        auditing.prune_through(ledger, row.n, act)
    finally:
        vars(MASKED).update(before)
    del kept
    assert found(ledger) == []
    detail = json.loads(auditing.entries(ledger)[0].entry)["detail"]
    assert detail == {"of": "x ***", "through": row.n, "hash": row.hash}


def test_act_that_fails_leaves_no_entry_and_an_entry_that_fails_undoes_the_act(ledger):
    table = ledger.tables.deploy

    def act(cursor):
        ledger.change(cursor, insert(table).values(fingerprint="x", first_seen_at=1))
        auditing.append(ledger, cursor, [AuditAct(ANN, HumanAct.RETRY)])
        raise KeyError("after the entry")

    with pytest.raises(KeyError):
        ledger.write(act)
    assert auditing.entries(ledger) == []
    assert ledger.read(lambda cursor: ledger.rows(cursor, select(table.c.fingerprint))) == []


def test_writers_at_once_make_one_chain(ledger):
    def some(writer):
        for turn in range(12):
            note(ledger, run_id=writer * 100 + turn)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(8)))
    state = auditing.state(ledger)
    assert state.head.n == 96
    assert found(ledger) == []
    assert {row.run_id for row in auditing.entries(ledger, limit=200)} == {
        w * 100 + t for w in range(8) for t in range(12)
    }


def test_tampering_with_a_row_is_found(ledger):
    for n in range(5):
        note(ledger, run_id=n)
    anchor = auditing.state(ledger).head
    audit = ledger.tables.operating["audit"]
    ledger.write(lambda cursor: ledger.change(cursor, update(audit).where(audit.c.n == 3).values(who="bob")))
    assert found(ledger) == [Damage.EDITED]
    assert found(ledger, [anchor]) == [Damage.EDITED]


def test_a_ledger_set_back_is_found_by_an_anchor(ledger):
    note(ledger)
    before = auditing.state(ledger).head
    note(ledger)
    anchor = auditing.state(ledger).head
    tables = ledger.tables.operating

    def set_back(cursor):
        ledger.change(cursor, tables["audit"].delete().where(tables["audit"].c.n > before.n))
        ledger.change(cursor, update(tables["audit_head"]).values(n=before.n, hash=before.hash))

    ledger.write(set_back)
    assert found(ledger) == []
    assert found(ledger, [anchor]) == [Damage.ROLLED_BACK]


def test_entries_are_found_by_job_person_and_run_newest_first(ledger):
    note(ledger, job="settle", run_id=1)
    note(ledger, job="report", run_id=2)
    note(ledger, HumanAct.CANCEL, job="settle", run_id=3)
    assert [row.n for row in auditing.entries(ledger, jobs={"settle"})] == [3, 1]
    assert [row.n for row in auditing.entries(ledger, jobs=frozenset())] == []
    assert [row.n for row in auditing.entries(ledger, acts=["retry"])] == [2, 1]
    assert [row.n for row in auditing.entries(ledger, run_id=2)] == [2]
    assert [row.n for row in auditing.entries(ledger, who="bob")] == []
    assert [row.n for row in auditing.entries(ledger, before_n=3, limit=1)] == [2]


def test_pruning_removes_a_whole_beginning_and_the_rest_still_verifies(ledger):
    for n in range(6):
        note(ledger, run_id=n)
    anchor = ChainEnd(4, auditing.entries(ledger, before_n=5, limit=1)[0].hash)
    state = auditing.prune_through(ledger, 4, AuditAct(ANN, "prune audit", reason="a year old"))
    assert (state.floor, state.head.n) == (anchor, 7)
    assert [row.n for row in auditing.entries(ledger)] == [7, 6, 5]
    assert found(ledger, [anchor]) == []
    assert json.loads(auditing.entries(ledger, limit=1)[0].entry)["detail"] == {"hash": anchor.hash, "through": 4}


def test_pruning_never_removes_the_newest_entry_and_twice_is_once(ledger):
    note(ledger)
    assert auditing.prune_through(ledger, 99, AuditAct(ANN, "prune audit")).floor == ChainEnd(0, FIRST)
    note(ledger)
    assert auditing.prune_through(ledger, 1, AuditAct(ANN, "prune audit")).floor.n == 1
    assert auditing.prune_through(ledger, 1, AuditAct(ANN, "prune audit")).head.n == 3


def test_odd_names_and_reasons_are_kept_as_they_can_be_kept(ledger):
    caller = Caller("n\x00" + "a" * 300)
    odd = AuditAct(caller, HumanAct.RETRY, reason="\ud800 half")
    ledger.write(lambda cursor: auditing.append(ledger, cursor, [odd]))
    [row] = auditing.entries(ledger)
    assert len(row.who) <= auditing.LONGEST_WHO
    assert found(ledger) == []

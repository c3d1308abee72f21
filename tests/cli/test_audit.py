"""``fencepost audit``: exit codes, anchors from files, and an export that a small program can verify."""

import hashlib
import json
import sqlite3

import pytest


def tamper(ledger: str, sql: str) -> None:
    with sqlite3.connect(ledger.removeprefix("sqlite:///")) as connection:
        connection.execute(sql)


def test_intact_chain_ends_with_0_and_a_broken_one_with_1(act, ledger):
    for n in range(3):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann", "--reason", f"<b>{n}</b>")
    done = act("audit", "verify")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "intact: 3 entries, 1 to 3; compared with no anchor")
    tamper(ledger, "UPDATE fencepost_audit SET entry = replace(entry, 'ann', 'bob') WHERE n = 2")
    done = act("audit", "verify")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "broken: edited"
    assert "entry 2: edited" in done.stdout


def test_list_shows_who_did_what_newest_first(act):
    act("trigger", "add", "-p", "a=1", "--by", "ann", "--reason", "because")
    act("cancel", "1", "--by", "bob")
    found = act("audit", "list", "--json").json
    assert [(each["n"], each["who"], each["act"], each["how"]) for each in found] == [
        (2, "bob", "run cancelled", "direct"),
        (1, "ann", "run triggered", "direct"),
    ]
    assert "because" in act("audit", "list", "--who", "ann").stdout
    assert "no such entry" in act("audit", "list", "--act", "retry").stdout
    assert [each["n"] for each in act("audit", "list", "--act", "cancel", "--json").json] == [2]
    unknown = act("audit", "list", "--act", "retried")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "the audit has no act 'retried'; did you mean 'run retried'?" in unknown.stderr


def test_list_shows_whose_access_was_changed_and_how(act):
    act("permissions", "give", "proxy:eve", "operator", "--job", "add", "--reason", "on call")
    shown = " ".join(act("audit", "list").stdout.split())
    assert all(words in shown for words in ("change access", "on call", "of=proxy:eve", "role=operator", "jobs=add"))


def test_anchor_in_a_file_finds_a_ledger_that_was_set_back(act, ledger, tmp_path):
    act("trigger", "add", "-p", "a=1", "--by", "ann")
    act("trigger", "add", "-p", "a=2", "--by", "ann")
    file = tmp_path / "anchors.jsonl"
    file.write_text(act("audit", "anchor").stdout)
    assert act("audit", "verify", "--anchor", str(file)).returncode == 0
    tamper(ledger, "DELETE FROM fencepost_audit WHERE n = 2")
    tamper(ledger, "UPDATE fencepost_audit_head SET n = 1, hash = (SELECT hash FROM fencepost_audit WHERE n = 1)")
    assert act("audit", "verify").returncode == 0
    done = act("audit", "verify", "--anchor", str(file))
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "broken: rolled back")


def test_file_without_an_anchor_is_refused(act, tmp_path):
    file = tmp_path / "empty"
    file.write_text("nothing\n")
    done = act("audit", "verify", "--anchor", str(file))
    assert done.returncode == 2
    assert "nothing was compared" in done.stderr
    assert act("audit", "verify", "--anchor", str(tmp_path / "absent")).returncode == 2


def test_export_can_be_verified_without_this_package(act):
    for n in range(3):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann")
    prev = "0" * 64
    for line in act("audit", "export").stdout.splitlines():
        row = json.loads(line)
        assert row["prev"] == prev
        prev = hashlib.sha256(("fencepost.audit.1" + prev + row["entry"]).encode()).hexdigest()
        assert row["hash"] == prev
    assert json.loads(act("audit", "anchor").stdout)["hash"] == prev


def test_pruned_chain_still_verifies_and_says_who_pruned_it(act):
    for n in range(3):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann")
    now = json.loads(act("audit", "anchor").stdout)["at"]
    assert act("audit", "prune", "--before", now).returncode == 2  # a reason is needed
    assert "future" in act("audit", "prune", "--before", "2100-01-01T00:00Z", "--reason", "old").stderr
    done = act("audit", "prune", "--before", now, "--reason", "old", "--by", "eve")
    assert (done.returncode, done.stdout) == (0, "removed 2 entries\n")
    assert act("audit", "verify").stdout.startswith("intact: 2 entries, 3 to 4")
    [newest] = act("audit", "list", "--limit", "1", "--json").json
    assert (newest["who"], newest["act"], newest["reason"]) == ("eve", "prune audit", "old")


def test_anchors_of_pruned_entries_alone_show_nothing_and_that_is_said(act, tmp_path):
    for n in range(3):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann")
    file = tmp_path / "anchors.jsonl"
    file.write_text("".join(line for line in act("audit", "anchor").stdout).replace('"n": 3', '"n": 1'))
    now = json.loads(act("audit", "anchor").stdout)["at"]
    act("audit", "prune", "--before", now, "--reason", "old")
    done = act("audit", "verify", "--anchor", str(file))
    assert done.returncode == 2
    assert "1 anchor of entries that were pruned could not be compared" in done.stdout


def test_line_that_was_an_anchor_and_cannot_be_read_is_refused(act, tmp_path):
    act("trigger", "add", "-p", "a=1", "--by", "ann")
    whole = act("audit", "anchor").stdout
    file = tmp_path / "anchors.jsonl"
    file.write_text(whole + whole[: len(whole) // 2] + ' "hash"\n')
    done = act("audit", "verify", "--anchor", str(file))
    assert done.returncode == 2
    assert "not an anchor" in done.stderr


def test_beginning_removed_past_the_command_is_found(act, ledger):
    for n in range(4):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann")
    moved = "floor_n = 2, floor_hash = (SELECT hash FROM fencepost_audit WHERE n = 2)"
    tamper(ledger, f"UPDATE fencepost_audit_head SET {moved}")
    tamper(ledger, "DELETE FROM fencepost_audit WHERE n <= 2")
    done = act("audit", "verify")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "broken: removed")


def test_deleted_head_is_broken_and_acts_are_refused_with_a_sentence(act, ledger):
    act("trigger", "add", "-p", "a=1", "--by", "ann")
    tamper(ledger, "DELETE FROM fencepost_audit_head")
    done = act("audit", "verify")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "broken: head changed")
    refused = act("trigger", "add", "-p", "a=2", "--by", "ann")
    assert refused.returncode == 2
    assert "was deleted" in refused.stderr
    assert len(act("runs", "--json").json) == 1


@pytest.mark.parametrize(
    ("change", "at", "shown"),
    [
        ("at = 9999999999999999999", None, "(damaged)"),
        ("at = -99999999999999999", None, "(damaged)"),
        ("at = 'soon'", None, "(damaged)"),
        ("who = X'ff41'", "2", "Z (damaged)"),
        ("who = CAST(X'ff41' AS TEXT)", "2", "Z (damaged)"),
        ("entry = X'ff41'", "2", "Z (damaged)"),
        ("entry = CAST(X'ff41' AS TEXT)", "2", "Z (damaged)"),
        ("""entry = '{"reason": 3}'""", "2", "Z (damaged)"),
    ],
)
def test_list_shows_a_row_that_was_edited_by_hand_as_damaged(act, ledger, change, at, shown):
    act("trigger", "add", "-p", "a=1", "--by", "ann")
    act("trigger", "add", "-p", "a=2", "--by", "bob")
    tamper(ledger, f"UPDATE fencepost_audit SET {change} WHERE n = 1")
    intact, damaged = act("audit", "list", "--json").json
    assert (intact["n"], intact["who"], intact["damaged"]) == (2, "bob", False)
    assert (damaged["n"], damaged["damaged"], damaged["at"] and damaged["at"][:1]) == (1, True, at)
    assert damaged["who"] == ("\\xffA" if "who" in change else "ann")
    text = act("audit", "list").stdout
    assert shown in text
    assert text.count("damaged") == 1


def test_list_of_a_misspelt_job_suggests_the_right_one(act):
    done = act("audit", "list", "--job", "ad")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'add'" in done.stderr
    assert "no such entry" in act("audit", "list", "--job", "add").stdout


def test_prune_takes_an_age(act, ledger):
    for n in range(3):
        act("trigger", "add", "-p", f"a={n}", "--by", "ann")
    assert act("audit", "prune", "--before", "24h", "--reason", "old").stdout == "removed 0 entries\n"
    tamper(ledger, "UPDATE fencepost_audit SET at = at - 48 * 3600 * 1000000 WHERE n = 1")
    assert act("audit", "prune", "--before", "24h", "--reason", "old").stdout == "removed 1 entry\n"
    refused = act("audit", "prune", "--before", "2025-01-01", "--reason", "old")
    assert (refused.returncode, "or give --tz" in refused.stderr) == (2, True)

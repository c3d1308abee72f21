"""``fencepost restored``: a person decides what a ledger is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fencepost.app.composing import publish
from fencepost.engine.same_ledger import SameLedger
from tests.cli.inside import call, shop


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """A ledger whose evidence is noted, and another file with the same content in its place."""
    path = tmp_path / "ledger.db"
    app = shop(f"sqlite:///{path}")
    publish(app)
    connection = app.ledger.connect("test")
    SameLedger(ledger=app.ledger, runtime=app.runtime, emit=lambda _: None).check(connection)
    connection.rest()
    app.close()
    shutil.copyfile(path, tmp_path / "copy.db")
    (tmp_path / "copy.db").rename(path)
    return f"sqlite:///{path}"


def test_it_shows_that_there_is_something_to_decide_and_then_that_there_is_not(ledger: str) -> None:
    shown = call("restored", ledger=ledger)
    assert (shown.returncode, "not the same file as noted" in shown.stdout) == (3, True)
    assert "say why, with --reason" in call("restored", "--accept", ledger=ledger).stderr
    done = call("restored", "--accept", "--reason", "a dump", "--by", "ann", ledger=ledger)
    assert (done.returncode, "accepted: " in done.stdout) == (0, True)
    assert call("restored", "--json", ledger=ledger).json["held"] is False
    [entry] = [each for each in call("journal", "--json", ledger=ledger).json if each["what"] == "ledger accepted"]
    assert (entry["by"], entry["reason"]) == ("ann", "a dump")


def test_why_says_first_that_somebody_has_to_decide(ledger: str) -> None:
    asked = call("why", "settle", ledger=ledger)
    assert (asked.returncode, asked.stderr.count("not the same file as noted")) == (0, 1)
    assert "fencepost restored" in asked.stderr
    assert call("why", "settle", "--json", ledger=ledger).json, "what machines read is as before"
    run = call("trigger", "add", "-p", "a=1", "--json", ledger=ledger).json["run"]
    assert "the ledger is held" in call("show", str(run), ledger=ledger).stdout
    assert call("restored", "--accept", "--pending", "run", "--reason", "a dump", ledger=ledger).returncode == 0
    assert call("why", "settle", ledger=ledger).stderr == ""
    assert "there is no living node" in call("show", str(run), ledger=ledger).stdout


@pytest.mark.parametrize("decision", ["--accept", "--as-copy"])
def test_where_nothing_was_noticed_nothing_is_decided_by_mistake(ledger: str, decision: str) -> None:
    assert call("restored", "--accept", "--reason", "a dump", ledger=ledger).returncode == 0
    known = call("restored", "--json", ledger=ledger).json["id"]
    again = call("restored", decision, "--reason", "the wrong ledger", ledger=ledger)
    assert (again.returncode, "there is nothing to decide" in again.stderr) == (2, True)
    assert call("restored", "--json", ledger=ledger).json["id"] == known
    meant = call("restored", decision, "--unnoticed", "--reason", "a snapshot of the disk", ledger=ledger)
    assert meant.returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--accept", "--as-copy", "--reason", "x"), "--accept or --as-copy?"),
        (("--accept", "--pending", "perhaps", "--reason", "x"), "there are hold, run, cancel"),
    ],
)
def test_what_makes_no_sense_is_refused(ledger: str, words: tuple[str, ...], says: str) -> None:
    refused = call("restored", *words, ledger=ledger)
    assert (refused.returncode, says in refused.stderr) == (2, True)

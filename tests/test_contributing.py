"""CONTRIBUTING names the files that an addition touches, and it stays as few: what is counted there is checked here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from fencepost.core import misfire, words
from fencepost.core.runs import Requested
from fencepost.engine.runners import kinds
from fencepost.ledger.history import RunRow
from fencepost.ledger.run_rows import PASSED_KINDS
from fencepost.schema.revisions import oldest_workable, steps_in

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src/fencepost"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
_ROW = re.compile(r"^\| (an? [^|]+) \| ([^|]+) \| (\d+) \| ([^|]+) \|$", re.MULTILINE)
_PATH = re.compile(r"`((?:[\w<>]+/)*[\w<>]+(?:\.(?:py|md|toml)|/))`")
_READ_ONLY = re.compile(r"following `[^`]+`|\([^()]*`engine/loop_step.py`[^()]*\)")  # contracts, which nobody changes
WANTED = {
    *("a lease store", "a misfire policy", "a runner", "a column of `run`", "a command", "a reader of bulk jobs"),
    *("an event", "a claim order", "a page of the docs", "a loop", "a web page", "a route of REST"),
}


def rows() -> dict[str, tuple[str, int, str]]:
    return {what: (touched, int(count), more) for what, touched, count, more in _ROW.findall(TEXT)}


def is_there(path: str) -> bool:
    """Whether a file, or for one that is yet to be written its folder, is there."""
    known = path if "<" not in path else path[: path.index("<")].rpartition("/")[0]
    return any((folder / known).exists() for folder in (SRC, ROOT))


def test_every_kind_of_addition_is_described() -> None:
    assert rows().keys() == WANTED


def test_every_file_that_is_named_is_there() -> None:
    section = TEXT[TEXT.index("## How to add") : TEXT.index("## House rules")]
    named = _PATH.findall(section)
    assert len(named) > 30
    assert [path for path in named if not is_there(path)] == []


def test_as_many_files_are_named_as_are_counted() -> None:
    for what, (touched, count, _) in rows().items():
        named = set(_PATH.findall(_READ_ONLY.sub("", touched)))
        elsewhere = "the place that emits it" in touched
        assert len(named) + elsewhere == count, what
        assert count <= 5, what


def test_the_order_of_claims_stands_in_one_place() -> None:
    found = [
        path.relative_to(SRC) for path in SRC.rglob("*.py") if re.search(r"priority DESC, \w*\.?av", path.read_text())
    ]
    assert found == []
    users = {path.name for path in SRC.rglob("*.py") if "claim_order" in path.read_text()}
    assert users >= {
        "statements_postgres.py",
        "statements_mysql.py",
        "statements_sqlite.py",
        "tables.py",
        "claiming.py",
    }


def test_every_word_of_misfire_has_a_rule() -> None:
    assert tuple(misfire._RULES) == get_args(words.MisfireKind)


def test_every_kind_of_job_has_a_runner_that_can_be_made() -> None:
    for kind in kinds.KINDS.values():
        assert callable(kinds._make(kind))


def test_what_is_asked_for_is_a_column_of_the_same_name() -> None:
    worked_out = {"sla_us": "sla_at"}
    columns = [worked_out.get(name, name) for name in PASSED_KINDS]
    assert len(columns) == len(Requested._fields) - 1  # search keys are rows of their own
    assert set(columns) <= set(RunRow._fields)


def test_a_file_is_all_that_a_step_needs(tmp_path: Path) -> None:
    for name in ("r0002_from_0001_more.py", "r0001_first.py", "__init__.py", "r0003_from_0003_less.py", "notes.txt"):
        (tmp_path / name).touch()
    known = steps_in(tmp_path)
    assert known == ("0001", "0002_from_0001", "0003_from_0003")
    assert oldest_workable(known) == "0002_from_0001", "a step that takes something away can wait"

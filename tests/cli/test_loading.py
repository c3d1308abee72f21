"""What a command loads. What cron starts every minute must not wait for what it does not need."""

import subprocess
import sys
from typing import Any
from unittest.mock import patch

import pytest
import typer.main

from fencepost.cli import letters
from tests.cli.inside import call

BUILD = typer.main.get_command_from_info
HEAVY = ("sqlalchemy", "alembic", "typer", "rich", "asyncio", "fencepost.app", "fencepost.engine", "fencepost.ledger")


def loaded(statement: str, among: tuple[str, ...]) -> list[str]:
    code = f"import sys; {statement}; print([name for name in {among!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(eval(done.stdout.splitlines()[-1]))


def test_exec_loads_neither_the_engine_nor_what_draws_tables() -> None:
    assert loaded("import fencepost.cli.exec", HEAVY) == []


def test_help_loads_no_database() -> None:
    database = ("sqlalchemy", "alembic", "fencepost.app", "fencepost.engine", "fencepost.ledger.ledger")
    assert loaded("import fencepost.cli.app", database) == []


def test_a_lock_alone_loads_no_schedules() -> None:
    assert loaded("import fencepost", ("cronsim", "fencepost.core.schedule", "fencepost.core.policy")) == []


def test_an_application_loads_no_database_that_it_does_not_use() -> None:
    assert loaded("import fencepost.app", ("sqlalchemy.dialects.postgresql", "psycopg", "pymysql")) == []


def test_a_command_builds_its_own_branch_alone() -> None:
    built: list[str] = []

    def note_and_build(command_info: Any, **words: Any) -> Any:
        built.append(command_info.name)
        return BUILD(command_info, **words)

    with patch("typer.main.get_command_from_info", note_and_build):
        assert call("runs", "--help").returncode == 0
        assert built == ["runs"]
        assert call("dead", "show", "--help").returncode == 0
        assert set(built) == {"runs", *(each.name for each in letters.app.registered_commands)}


@pytest.mark.parametrize("words", [("--help",), ("runz",)])
def test_help_and_a_word_that_is_no_command_know_all_of_them(words: tuple[str, ...]) -> None:
    said = call(*words)
    assert "runs" in said.stdout + said.stderr

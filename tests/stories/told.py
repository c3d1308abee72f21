"""A story as its program tells it, and the database in which it left its effects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import NullPool, text

ROOT = Path(__file__).parent.parent.parent
AS_PROMISED, WENT_WRONG = 0, 3
DEADLINE_S = 110
# What goes wrong without protection is the story's own plain SQL, alike on both: one shows that its test can fail.
only_on_postgresql = pytest.mark.parametrize("place", ["postgresql"], indirect=True)


@dataclass(frozen=True)
class Told:
    """How the program ended, and what it said."""

    status: int
    output: str

    @property
    def not_so(self) -> set[str]:
        """The claims that the program itself found to be false."""
        lines = (line.strip() for line in self.output.splitlines())
        return {line.removeprefix("✗ not so: ") for line in lines if line.startswith("✗")}


@dataclass(frozen=True)
class Place:
    """An empty database for the effects, and another one, on a server, for whatever is to be elsewhere."""

    url: str
    other_url: str

    def tell(self, story: str, *options: str) -> Told:
        """Let the program tell its story here; one that could not be told is a failure of the test."""
        program = str(ROOT / "examples" / "stories" / f"{story}.py")
        given = ["--url", self.url, "--other", self.other_url, *options]
        return tell(program, *given)

    def rows(self, sql: str, *, elsewhere: bool = False) -> list[tuple[Any, ...]]:
        """Ask the database what is there now."""
        scheme, rest = (self.other_url if elsewhere else self.url).split("://", 1)
        driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[scheme]
        with sqlalchemy.create_engine(f"{driver}://{rest}", poolclass=NullPool).connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql))]


def tell(program: str, *options: str) -> Told:
    """Run a story's program."""
    done = subprocess.run(
        [sys.executable, program, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode in (AS_PROMISED, WENT_WRONG), done.stdout + done.stderr
    return Told(done.returncode, done.stdout)

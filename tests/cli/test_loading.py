"""What a command loads. What cron starts every minute must not wait for what it does not need."""

import subprocess
import sys

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

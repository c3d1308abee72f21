"""``fencepost migrate``: tables made once, statements printed for those who may not make them, newer ones refused."""

from pathlib import Path

import pytest

from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.cli.command import fencepost
from tests.cli.inside import call


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


def test_tables_are_made_once(url: str) -> None:
    first = call("migrate", "--ledger", url, "--json").json
    assert first["steps"] == ["0001"]
    again = call("migrate", "--ledger", url, "--json").json
    assert again == {**first, "steps": []}
    assert "nothing was done" in call("migrate", "--ledger", url).stdout
    assert call("runs", "--json", "--ledger", url).json == []


def test_a_ledger_without_tables_says_what_to_run(postgres_url: str) -> None:
    done = call("jobs", "--ledger", postgres_url)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "fencepost migrate --ledger" in done.stderr


def test_no_password_is_shown(postgres: Postgres) -> None:
    url = f"postgresql://postgres:s3cret@{postgres.address}/postgres?prefix=p1_"
    for words in (["jobs"], ["migrate"], ["migrate", "--json"]):
        done = call(*words, "--ledger", url)
        assert "s3cret" not in done.stdout + done.stderr


def test_newer_tables_are_refused(url: str) -> None:
    call("migrate", "--ledger", url)
    _set_revision(url, "9999")
    calls = [call(*words, ledger=url) for words in (["runs"], ["migrate"])]
    for done in (*calls, fencepost("run", "tests.cli.shop:app", env={"FENCEPOST_URL": url})):
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "newer Fencepost (revision 9999)" in done.stderr


@pytest.mark.parametrize(
    ("dialect", "word"), [("postgresql", "BIGINT GENERATED"), ("mysql", "AUTO_INCREMENT"), ("sqlite", "AUTOINCREMENT")]
)
def test_statements_can_be_printed_without_a_database(dialect: str, word: str) -> None:
    script = call("migrate", "--sql", "--dialect", dialect).stdout
    assert word in script
    assert "CREATE TABLE fencepost_run" in script
    assert call("migrate", "--sql", "--dialect", dialect, "--json").json["sql"].strip() == script.strip()


def test_printed_statements_are_those_that_migrate_runs(postgres: Postgres, postgres_url: str) -> None:
    import psycopg

    script = call("migrate", "--sql", "--ledger", postgres_url).stdout
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(script)
    assert call("migrate", "--ledger", postgres_url, "--json").json["steps"] == []


def test_mariadb_takes_them_too() -> None:
    with MariaDB() as server:
        assert call("migrate", "--ledger", server.url, "--json").json["steps"] == ["0001"]
        assert call("jobs", "--json", "--ledger", server.url).json == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--dialect", "postgresql"], "--sql"),
        (["--sql", "--dialect", "oracle"], "oracle"),
        (["--sql", "--dialect", "sqlite", "--ledger", "sqlite:///x.db"], "either"),
        (["--ledger", "redis://cache"], "redis://"),
    ],
)
def test_bad_words(words: list[str], expected: str) -> None:
    done = call("migrate", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert expected in done.stderr


def _set_revision(url: str, revision: str) -> None:
    from fencepost.ledger.ledger import open_ledger
    from fencepost.threaded import ThreadedRuntime

    book = open_ledger(url, ThreadedRuntime())
    book.write(lambda cursor: cursor.execute(f"UPDATE {book.tables.name('version')} SET version_num = '{revision}'"))
    book.close()

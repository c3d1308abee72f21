"""``fencepost migrate``: tables made once, statements printed for those who may not make them, newer ones refused."""

from pathlib import Path

import pytest

from fencepost.errors import LedgerRefused
from fencepost.ledger.migrations import STEPS
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.wait import until
from tests.cli.command import fencepost
from tests.cli.inside import call, shop


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


def test_tables_are_made_once(url: str) -> None:
    first = call("migrate", "--ledger", url, "--json").json
    assert first["steps"] == list(STEPS)
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
        assert words != ["jobs"] or "with the password in place of ***" in done.stderr


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


@pytest.mark.parametrize("way", ["migrated", "printed"])
def test_nodes_then_need_no_right_to_make_tables(postgres: Postgres, postgres_url: str, way: str) -> None:
    import psycopg

    url = f"{postgres_url}&schema={way}"
    role = f"clerk_{way}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        if way == "printed":
            connection.execute(call("migrate", "--sql", "--ledger", url).stdout)
        else:
            assert call("migrate", "--ledger", url).returncode == 0
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {way} TO {role}")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {way} TO {role}")
    as_clerk = url.replace("postgres@", f"{role}@")
    assert as_clerk != url
    app = shop(as_clerk)
    with app.running(grace="5s"):
        run = app.enqueue("add", params={"a": 1}).run_id
        until(lambda: app.operations.run(run).state == "succeeded", 30, what="it ran")
    app.close()
    assert "nothing was done" in call("migrate", "--ledger", as_clerk).stdout


def test_a_node_that_may_not_call_the_checks_does_not_start_and_says_what_to_grant(
    postgres: Postgres, postgres_url: str
) -> None:
    import psycopg

    url = f"{postgres_url}&schema=hardened"
    call("migrate", "--ledger", url)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE cautious LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA hardened TO cautious")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hardened TO cautious")
        connection.execute("REVOKE EXECUTE ON ALL PROCEDURES IN SCHEMA hardened FROM PUBLIC")
        app = shop(url.replace("postgres@", "cautious@"))
        with pytest.raises(LedgerRefused, match="EXECUTE") as refused:
            app.start()
        grants = str(refused.value).partition("let the owner run: ")[2]
        connection.execute(grants)
        with app.running(grace="5s"):
            run = app.enqueue("add", params={"a": 1}).run_id
            until(lambda: app.operations.run(run).state == "succeeded", 30, what="it ran")
        app.close()


def test_mariadb_takes_what_is_printed() -> None:
    import pymysql
    from pymysql.constants import CLIENT

    with MariaDB() as server:
        script = call("migrate", "--sql", "--ledger", server.url).stdout
        assert "fencepost_session" in script
        login = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "fencepost"}
        with pymysql.connect(**login, client_flag=CLIENT.MULTI_STATEMENTS) as connection, connection.cursor() as cursor:
            cursor.execute(script)
            while cursor.nextset():
                pass
        assert call("migrate", "--ledger", server.url, "--json").json["steps"] == []


def test_mariadb_takes_them_too() -> None:
    with MariaDB() as server:
        assert call("migrate", "--ledger", server.url, "--json").json["steps"] == list(STEPS)
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


def test_contracting_without_anything_to_take_away_does_nothing(url: str) -> None:
    call("migrate", "--ledger", url)
    done = call("migrate", "--contract", "--ledger", url, "--json").json
    assert (done["steps"], done["to_contract"]) == ([], [])


def test_effects_are_contracted_only_with_the_ledger_that_knows_the_nodes(tmp_path: Path) -> None:
    shop, ledger = f"sqlite:///{tmp_path}/shop.db", f"sqlite:///{tmp_path}/ledger.db"
    call("migrate", "--ledger", ledger)
    assert "only the ledger knows which nodes live" in call("effects", "install", shop, "--contract").stderr
    assert "add --contract" in call("effects", "install", shop, "--ledger", ledger).stderr
    assert call("effects", "install", shop, "--contract", "--ledger", ledger).returncode == 0

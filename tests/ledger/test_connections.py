"""Connections to the ledger: they end in time, come back, are not shared with a forked child, and tell no secret."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from fencepost.core.runs import Requested
from fencepost.errors import InvalidUrl, LedgerRefused, LedgerUnavailable, MissingExtra
from fencepost.leases.schemes import store_from_url
from fencepost.ledger import dialects, history, migrations, requests
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.mysql import _numbers
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.urls import LedgerUrl, lease_url
from fencepost.testing import Stopwatch, until
from testbed import wait
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.proxy import Proxy
from tests.children import in_child
from tests.servers import RUNTIME

Opened = Callable[[str], Ledger]
REQUEST = Requested(job="settle", type="manual")
SERVERS = ("postgresql", "mysql")


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Postgres | MariaDB:
    return request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")


@pytest.fixture
def proxy(server: Postgres | MariaDB) -> Iterator[Proxy]:
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy, ledger_url: str, opened: Opened) -> Ledger:
    ledger = opened(f"{proxy.through(ledger_url)}&call_timeout=700ms")
    # On a busy machine, the first answer is late.
    wait.until(lambda: history.runs(ledger) == [], 30, ignoring=(LedgerUnavailable,))
    return ledger


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("has_written", [False, True])
def test_whoever_falls_silent_within_a_transaction_keeps_its_locks_no_longer_than_that_is_borne(
    ledger: Ledger, has_written: bool
) -> None:
    ledger.bound_silence(1.0)
    requests.enqueue(ledger, [REQUEST])
    table = ledger.tables.name("run")
    silent, other = ledger.connect("silent"), ledger.connect("other")
    with pytest.raises(LedgerUnavailable), silent.transaction() as cursor:
        cursor.execute(f"SELECT id FROM {table} FOR UPDATE")
        if has_written:
            cursor.execute(f"UPDATE {table} SET why = 'written'")
        with Stopwatch() as took:
            other.write(lambda cursor: cursor.execute(f"UPDATE {table} SET why = 'done'"))
        assert took.awake_s < 5.0 < ledger.dialect.timeout_s
    other.rest()
    assert [run.why for run in history.runs(ledger)] == ["done"]


@pytest.mark.parametrize("kind", SERVERS)
class TestFaults:
    def test_a_server_that_falls_silent_is_given_up_in_time(self, proxied: Ledger, proxy: Proxy) -> None:
        proxy.hold()
        with Stopwatch() as took:
            with pytest.raises(LedgerUnavailable):
                history.runs(proxied)
            with pytest.raises(LedgerUnavailable):
                requests.enqueue(proxied, [REQUEST])
        assert took.awake_s < 8

    def test_after_a_cut_the_next_call_is_made_on_a_fresh_connection(self, proxied: Ledger, proxy: Proxy) -> None:
        connection = proxied.connect("test")
        assert connection.read(proxied.dialect.now_us) > 0
        proxy.cut()
        assert connection.read(proxied.dialect.now_us) > 0
        proxy.cut()
        assert connection.write(proxied.dialect.now_us) > 0
        proxy.cut()
        assert requests.enqueue(proxied, [REQUEST])[0].is_new
        connection.rest()

    def test_a_commit_without_an_answer_is_unknown_and_the_request_can_be_repeated(
        self, proxied: Ledger, proxy: Proxy
    ) -> None:
        request = REQUEST._replace(origin_key="request:once")
        connection = proxied.connect("test")
        with pytest.raises(LedgerUnavailable), connection.transaction() as cursor:
            proxied_record(proxied, cursor, request)
            proxy.swallow_replies()
        proxy.flow()
        connection.rest()
        until(partial(history.runs, proxied), 30, "the transaction to be committed")
        [again] = requests.enqueue(proxied, [request])
        assert not again.is_new
        assert len(history.runs(proxied)) == 1

    def test_a_server_that_is_not_there_is_told_in_a_sentence(self, proxied: Ledger, proxy: Proxy) -> None:
        proxy.refuse()
        proxied.close()
        with pytest.raises(LedgerUnavailable, match=r"(PostgreSQL|MySQL) at 127.0.0.1"):
            history.runs(proxied)


def proxied_record(ledger: Ledger, cursor: object, request: Requested) -> None:
    from fencepost.ledger.recording import record

    record(ledger, cursor, [request])  # type: ignore[arg-type]


class TestConflicts:
    @pytest.mark.parametrize("kind", SERVERS)
    def test_a_deadlock_is_repeated_and_both_get_through(self, ledger: Ledger, kind: str) -> None:
        table = ledger.tables.name("exclusive")
        quoted = "`key`" if kind == "mysql" else "key"
        for key in ("a", "b"):
            ledger.write(lambda cursor, key=key: cursor.execute(f"INSERT INTO {table} VALUES ('{key}', NULL, 0)"))
        meet = threading.Barrier(2, timeout=30)
        tries: list[str] = []

        def add(first: str, second: str) -> None:
            def work(cursor) -> None:
                tries.append(first)
                cursor.execute(f"UPDATE {table} SET token = token + 1 WHERE {quoted} = '{first}'")
                if len(tries) <= 2:
                    meet.wait()
                cursor.execute(f"UPDATE {table} SET token = token + 1 WHERE {quoted} = '{second}'")

            ledger.write(work)

        threads = [threading.Thread(target=add, args=order) for order in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        def tokens(cursor) -> list[int]:
            cursor.execute(f"SELECT token FROM {table}")
            return [row[0] for row in cursor.fetchall()]

        assert ledger.read(tokens) == [2, 2]
        # The victim may take its first row anew before the other has woken to it, and lose once more.
        assert len(tries) > 2

    def test_writers_of_one_process_take_turns_on_sqlite(self, tmp_path: Path, opened: Opened) -> None:
        ledger = opened(f"sqlite:///{tmp_path}/app.db")
        migrations.migrate(ledger)
        threads = [
            threading.Thread(target=lambda: [requests.enqueue(ledger, [REQUEST]) for _ in range(10)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert history.counts(ledger) == {"queued": 80}

    def test_a_second_transaction_within_the_first_is_refused_in_time_on_sqlite(
        self, tmp_path: Path, opened: Opened
    ) -> None:
        ledger = opened(f"sqlite:///{tmp_path}/app.db?call_timeout=200ms")
        migrations.migrate(ledger)
        with ledger.connect("first").transaction(), pytest.raises(LedgerUnavailable, match="was busy for 200ms"):
            requests.enqueue(ledger, [REQUEST])
        assert requests.enqueue(ledger, [REQUEST])[0].is_new


class TestForks:
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_uses_connections_of_its_own(self, ledger: Ledger) -> None:
        connection = ledger.connect("test")
        mine = connection.read(lambda cursor: session(ledger, cursor))
        requests.enqueue(ledger, [REQUEST])

        def work() -> bool:
            assert connection.read(lambda cursor: session(ledger, cursor)) != mine or ledger.dialect.name == "sqlite"
            requests.enqueue(ledger, [REQUEST])
            return bool(connection.write(ledger.dialect.now_us))

        assert in_child(work)
        assert connection.read(lambda cursor: session(ledger, cursor)) == mine
        assert history.counts(ledger) == {"queued": 2}
        connection.rest()

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_fork_in_the_middle_of_a_call_to_sqlite_is_told(self, tmp_path: Path, opened: Opened) -> None:
        ledger = opened(f"sqlite:///{tmp_path}/app.db")
        migrations.migrate(ledger)

        def work() -> bool:
            with pytest.raises(LedgerUnavailable, match="forked in the middle of a call to SQLite"):
                history.runs(ledger)
            return True

        with ledger.connect("test").transaction():
            assert in_child(work)


def session(ledger: Ledger, cursor) -> int:
    sql = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()", "sqlite": "SELECT 1"}
    cursor.execute(sql[ledger.dialect.name])
    return int(cursor.fetchone()[0])


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "made"),
        [
            ("postgresql://u:p%40w@h:5433/d?prefix=x_", "postgresql+psycopg://u:p%40w@h:5433/d"),
            ("postgres://h/d?sslmode=require", "postgresql+psycopg://h/d?sslmode=require"),
            ("mariadb://u@h/d?call_timeout=1s", "mysql+pymysql://u@h/d"),
            ("mysql://u@h:3307/d?ssl_ca=/x.pem", "mysql+pymysql://u@h:3307/d?ssl_ca=%2Fx.pem"),
            ("sqlite:////var/app.db", "sqlite:////var/app.db"),
        ],
    )
    def test_a_url_becomes_one_of_sqlalchemy(self, url: str, made: str) -> None:
        assert LedgerUrl.parse(url).sqlalchemy().render_as_string(hide_password=False) == made

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:///app.db?prefix=x_&call_timeout=1s",
            "postgresql://u:p@h/d?schema=s&prefix=x_&history=3d&sslmode=require",
            "postgresql+psycopg://u:p@h/d",
            "mysql://u@h/d?accept_risk=galera",
            "mariadb+pymysql://u@h/d",
        ],
    )
    def test_the_lease_store_beside_it_understands_the_same_url(self, url: str) -> None:
        assert store_from_url(lease_url(url), RUNTIME)

    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("redis://h", "a ledger cannot be stored in redis://; supported: sqlite, postgresql, mysql, mariadb"),
            ("sqlite://app.db", "names a host; a file is written with three slashes"),
            ("sqlite:///:memory:", "needs a file"),
            ("mysql://h", "needs a database"),
            ("mysql://a,b/d", "takes one host"),
            ("postgresql://h/d?prefx=x", "has no option 'prefx'"),
            ("postgresql://h/d?prefix=Robert'); DROP", "use at most 40 lower-case letters"),
            ("mysql://h/d?schema=s", "has no option 'schema'"),
        ],
    )
    def test_bad_urls_are_refused_in_one_sentence(self, url: str, says: str) -> None:
        with pytest.raises(InvalidUrl, match=says) as error:
            open_ledger(url, RUNTIME)
        assert "\n" not in str(error.value)

    def test_a_missing_driver_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> None:
            raise ModuleNotFoundError("No module named 'pymysql'", name="pymysql")

        monkeypatch.setattr(dialects.importlib, "import_module", missing)
        with pytest.raises(MissingExtra, match=r"needs the package 'pymysql': pip install './fencepost\[mysql\]'"):
            open_ledger("mysql://h/d", RUNTIME)

    def test_no_secret_is_shown(self, postgres: Postgres, opened: Opened) -> None:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE guest LOGIN PASSWORD 'sesame'")
        ledger = opened(f"postgresql://guest:sesame@{postgres.host}:{postgres.port}/nowhere")
        with pytest.raises(LedgerRefused, match="refuses the connection") as error:
            history.runs(ledger)
        shown = f"{error.value} {error.value!r} {ledger!r} {ledger.url} {ledger.url!r}"
        assert "sesame" not in shown

    def test_versions_of_mariadb_and_mysql_are_read(self) -> None:
        assert _numbers("10.11.6-MariaDB-0+deb12u1") == (10, 11)
        assert _numbers("5.5.5-10.6.1-MariaDB") == (10, 6)
        assert _numbers("8.0.36") == (8, 0)


class TestSqliteFiles:
    def test_a_file_that_was_replaced_is_opened_anew(self, tmp_path: Path, opened: Opened) -> None:
        ledger = opened(f"sqlite:///{tmp_path}/app.db")
        migrations.migrate(ledger)
        requests.enqueue(ledger, [REQUEST])
        for path in tmp_path.iterdir():
            path.unlink()
        migrations.migrate(ledger)
        assert history.runs(ledger) == []
        requests.enqueue(ledger, [REQUEST])
        assert history.counts(opened(f"sqlite:///{tmp_path}/app.db")) == {"queued": 1}

    def test_a_file_that_is_none_is_told_in_a_sentence(self, tmp_path: Path, opened: Opened) -> None:
        (tmp_path / "app.db").write_text("this is a letter to my aunt, and no database at all, believe me")
        with pytest.raises(LedgerRefused, match=r"app\.db is not a SQLite database; move it away, or name another"):
            history.runs(opened(f"sqlite:///{tmp_path}/app.db"))

    def test_a_folder_that_is_not_there_is_told_in_a_sentence(self, tmp_path: Path, opened: Opened) -> None:
        with pytest.raises(LedgerRefused, match="check that its folder exists"):
            history.runs(opened(f"sqlite:///{tmp_path}/nowhere/app.db"))

    def test_what_is_committed_is_on_the_disk(self, tmp_path: Path, opened: Opened) -> None:
        ledger = opened(f"sqlite:///{tmp_path}/app.db")

        def settings(cursor) -> list[object]:
            return [cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

        assert ledger.read(settings) == ["wal", 2]

    def test_readers_do_not_wait_for_a_writer(self, tmp_path: Path, opened: Opened) -> None:
        url = f"sqlite:///{tmp_path}/app.db?call_timeout=100ms"
        ledger = opened(url)
        migrations.migrate(ledger)
        with sqlite3.connect(tmp_path / "app.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            assert history.runs(opened(url)) == []
            with pytest.raises(LedgerUnavailable, match="did not answer within 100ms"):
                requests.enqueue(ledger, [REQUEST])
            other.execute("ROLLBACK")
        other.close()


def test_a_standby_or_read_only_server_is_refused(postgres: Postgres, opened: Opened) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE looker LOGIN")
        connection.execute("ALTER ROLE looker SET default_transaction_read_only = on")
    ledger = opened(postgres.url.replace("postgres@", "looker@"))
    with pytest.raises(LedgerRefused, match="is read-only: the ledger needs the primary"):
        migrations.check_schema(ledger)


def test_connections_are_rested_and_opened_again(ledger: Ledger) -> None:
    connection: LedgerConnection = ledger.connect("test")
    first = connection.read(lambda cursor: session(ledger, cursor))
    connection.rest()
    connection.rest()
    assert connection.read(lambda cursor: session(ledger, cursor)) != first or ledger.dialect.name == "sqlite"
    connection.rest()

"""The tables of effects: installed once, by whoever is asked to; verified without a change; pruned below what lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import fencepost
from fencepost.effects.installing import install, install_sql, open_database, tables_of
from fencepost.effects.pruning import FenceFloor, floor_for, prune_fences, prune_keys
from fencepost.effects.verifying import verify
from fencepost.errors import ConfigurationError, EffectsMissing, LedgerRefused, SchemaMismatch
from fencepost.ledger import migrations
from fencepost.ledger.database import Database
from fencepost.ledger.identity import identity
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.pruning import Retention, prune
from fencepost.schema import effects
from fencepost.schema.effects import EffectTables
from fencepost.schema.running import known_revisions
from testbed.wait import until
from tests.fence.effect_places import RUNTIME, Asking, effects_url
from tests.ledger.test_migrations import execute, shape

NAMES = ("fence", "idempotency_key", "checkpoint", "dead_letter", "effects_version")
DAY_US = 86_400_000_000
Opened = Callable[[str], Ledger]


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return effects_url(request.param, request, tmp_path)


@pytest.fixture
def bare(url: str) -> Iterator[Database]:
    database = open_database(url, RUNTIME)
    yield database
    database.close()


@pytest.fixture
def database(bare: Database) -> Database:
    install(bare)
    return bare


def engine_of(database: Database) -> sa.Engine:
    return sa.create_engine(database.url.sqlalchemy(), poolclass=sa.NullPool)


def run_sql(database: Database, sql: str) -> None:
    database.write(lambda cursor: cursor.execute(sql.replace("T_", database.tables.prefix)))


def rows(database: Database, sql: str) -> list[Any]:
    def work(cursor: Any) -> list[Any]:
        cursor.execute(sql.replace("T_", database.tables.prefix))
        return [tuple(row) for row in cursor.fetchall()]

    return database.read(work)


class TestInstalling:
    def test_the_tables_are_those_in_the_code(self, bare: Database) -> None:
        assert install(bare) == effects.STEPS
        living = EffectTables(f"n{bare.tables.prefix}")
        engine = engine_of(bare)
        living.metadata.create_all(engine)
        assert shape(engine, tables_of(bare)) == shape(engine, living)  # type: ignore[arg-type]

    def test_a_second_time_does_nothing(self, database: Database) -> None:
        assert install(database) == ()

    def test_the_revisions_named_in_the_code_are_those_in_the_folder(self) -> None:
        assert known_revisions(effects.STEPS_FOLDER) == effects.REVISIONS

    def test_many_at_once_make_them_once(self, url: str) -> None:
        outcomes: list[Any] = []
        start = threading.Barrier(4)

        def one() -> None:
            made = open_database(url, RUNTIME)
            start.wait(20)
            try:
                outcomes.append(install(made))
            except Exception as error:  # noqa: BLE001 - shown by the assertion
                outcomes.append(error)
            made.close()

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes, key=str, reverse=True) == [(), (), (), effects.STEPS]

    def test_the_printed_script_makes_the_same(self, bare: Database, url: str) -> None:
        execute(bare, install_sql(url))  # type: ignore[arg-type]
        assert install(bare) == ()
        assert verify(bare).is_ready
        assert rows(bare, "SELECT token FROM T_fence") == [(0,)]

    def test_a_newer_schema_is_refused_and_left_alone(self, database: Database) -> None:
        run_sql(database, "UPDATE T_effects_version SET version_num = '9999'")
        with pytest.raises(
            SchemaMismatch, match=rf"newer Fencepost \(revision 9999\); this one knows up to {effects.NEWEST}"
        ):
            install(database)
        assert rows(database, "SELECT version_num FROM T_effects_version") == [("9999",)]

    def test_a_ledger_and_effects_may_share_tables_in_any_order(self, url: str, opened: Opened) -> None:
        made = open_database(url, RUNTIME)
        install(made)
        made.close()
        ledger = opened(url)
        assert migrations.migrate(ledger) == migrations.REVISIONS
        assert install(ledger) == ()

    def test_the_journal_mode_of_a_file_is_left_as_it_is(self, tmp_path: Path) -> None:
        made = open_database(f"sqlite:///{tmp_path}/own.db", RUNTIME)
        install(made)
        assert verify(made).is_ready
        assert rows(made, "PRAGMA journal_mode") == [("delete",)]
        made.close()

    def test_who_may_not_create_is_told_in_a_sentence(self, postgres: Any) -> None:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE visitor LOGIN PASSWORD 'sesame'")
        made = open_database(postgres.url.replace("postgres@", "visitor:sesame@") + "?prefix=denied_", RUNTIME)
        with pytest.raises(
            LedgerRefused, match=r"effects could not be created.*fencepost effects install --sql"
        ) as error:
            install(made)
        assert "sesame" not in str(error.value)
        made.close()


class TestTheLedgersOwn:
    def test_its_database_has_them_and_a_name(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.ready_schema(ledger) if ledger.url.kind == "sqlite" else migrations.migrate(ledger)
        assert verify(ledger).is_ready
        assert len(identity(ledger)) == 32
        assert rows(ledger, "SELECT only, id FROM T_identity".replace("only", _quoted(ledger))) == [
            (1, identity(ledger))
        ]
        assert identity(opened(url)) == identity(ledger)

    def test_two_ledgers_have_two_names(self, url: str, opened: Opened) -> None:
        one, other = opened(url), opened(f"{url}{'&' if '?' in url else '?'}prefix=other_")
        if one.url.kind != "sqlite":
            other = opened(url.replace("prefix=e", "prefix=o"))
        migrations.migrate(one)
        migrations.migrate(other)
        assert identity(one) != identity(other)

    def test_of_many_who_ask_first_all_get_one_name(self, url: str, opened: Opened) -> None:
        migrations.migrate(opened(url))
        run_sql(opened(url), "DELETE FROM T_identity")
        start, names = threading.Barrier(4), []

        def ask() -> None:
            ledger = opened(url)
            start.wait(20)
            names.append(identity(ledger))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(names) == 4
        assert len(set(names)) == 1

    def test_a_ledger_that_lost_them_is_refused_with_what_to_run(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        run_sql(ledger, "DROP TABLE T_effects_version")
        with pytest.raises(SchemaMismatch, match="not those of effects beside them; run: fencepost migrate"):
            migrations.check_schema(ledger)
        assert migrations.migrate(ledger) == effects.STEPS
        migrations.check_schema(ledger)


def _quoted(database: Database) -> str:
    return "`only`" if database.dialect.name == "mysql" else '"only"'


class TestVerifying:
    def test_everything_is_missing_at_first_and_looking_makes_nothing(self, bare: Database) -> None:
        report = verify(bare)
        procedures = ("check_fence",) if bare.dialect.name == "postgresql" else ()
        assert report.missing == tuple(f"{bare.tables.prefix}{name}" for name in (*NAMES, *procedures))
        assert (report.found, report.wanted, report.is_ready) == (None, effects.NEWEST, False)
        assert f"run: fencepost effects install '{bare.url}'" in report.advice
        assert verify(bare) == report
        assert bare.url.kind != "sqlite" or not bare.url.path.exists()

    def test_nothing_is_missing_when_installed(self, database: Database) -> None:
        report = verify(database)
        assert (report.found, report.missing, report.denied, report.advice) == (effects.NEWEST, (), (), ())

    def test_each_missing_table_and_column_is_named(self, database: Database) -> None:
        run_sql(database, "DROP TABLE T_checkpoint")
        run_sql(database, "ALTER TABLE T_fence DROP COLUMN holder")
        report = verify(database)
        prefix = database.tables.prefix
        assert report.missing == (f"{prefix}fence.holder", f"{prefix}checkpoint")
        assert "dropped or changed by hand" in report.advice[0]

    def test_what_it_says_to_do_about_a_dropped_table_helps(self, database: Database) -> None:
        run_sql(database, "DROP TABLE T_checkpoint")
        run_sql(database, "DROP TABLE T_effects_version")
        install(database)
        assert verify(database).is_ready

    def test_a_newer_schema_is_told(self, database: Database) -> None:
        run_sql(database, "UPDATE T_effects_version SET version_num = '9999'")
        report = verify(database)
        assert (report.found, report.is_ready) == ("9999", False)
        assert "newer Fencepost" in report.advice[0]

    def test_rights_that_are_missing_are_named_on_postgresql(self, postgres: Any) -> None:
        url = f"{postgres.url}?prefix=rights_"
        made = open_database(url, RUNTIME)
        install(made)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'sesame'")
            connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO clerk")
            connection.execute("GRANT ALL ON rights_checkpoint, rights_dead_letter TO clerk")
            connection.execute("REVOKE EXECUTE ON PROCEDURE rights_check_fence FROM PUBLIC")
        as_clerk = open_database(url.replace("postgres@", "clerk:sesame@"), RUNTIME)
        report = verify(as_clerk)
        assert report.denied == (
            "INSERT, UPDATE, DELETE on rights_fence",
            "INSERT, UPDATE, DELETE on rights_idempotency_key",
            "EXECUTE ON PROCEDURE rights_check_fence",
        )
        assert "sesame" not in str(report)
        [advice] = report.advice
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(advice.removeprefix("let their owner run: "))
        assert verify(as_clerk).is_ready
        as_clerk.close()
        made.close()

    def test_rights_that_are_missing_are_named_on_mariadb(self, mariadb: Any) -> None:
        url = f"{mariadb.url}?prefix=rights_"
        made = open_database(url, RUNTIME)
        install(made)
        with mariadb.client() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER clerk IDENTIFIED BY 'sesame'")
            cursor.execute("GRANT SELECT ON fencepost.* TO clerk")
            for table in ("checkpoint", "dead_letter", "idempotency_key"):
                cursor.execute(f"GRANT ALL ON fencepost.rights_{table} TO clerk")
        as_clerk = open_database(url.replace("root@", "clerk:sesame@"), RUNTIME)
        report = verify(as_clerk)
        assert report.denied == ("INSERT, UPDATE, DELETE on rights_fence",)
        assert "sesame" not in str(report)
        as_clerk.close()
        made.close()

    def test_a_file_that_cannot_be_written_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = open_database(f"sqlite:///{tmp_path}/own.db", RUNTIME)
        install(made)
        made.close()
        # Root may write everything, so the file is opened as somebody who may only read would have it.
        dial = made.dialect.dial

        def read_only(timeout_s: float | None = None) -> Any:
            connection: Any = dial(timeout_s)
            connection.execute("PRAGMA query_only = ON")
            return connection

        monkeypatch.setattr(made.dialect, "dial", read_only)
        monkeypatch.setattr(made.dialect, "begin", lambda _, cursor: cursor.execute("DELETE FROM fencepost_fence"))
        report = verify(made)
        assert len(report.denied) == 4
        assert "writable" in report.advice[0]
        made.close()


class TestPruningKeys:
    def test_only_those_whose_time_is_over_go(self, database: Database) -> None:
        with engine_of(database).begin() as tx:
            for number in range(7):
                fencepost.once(f"old:{number}", tx, expires="1h", prefix=database.tables.prefix)
            fencepost.once("young", tx, expires="1h", prefix=database.tables.prefix)
            fencepost.once("for ever", tx, prefix=database.tables.prefix)
        key = database.dialect.spelling.key
        run_sql(database, f"UPDATE T_idempotency_key SET expires_at = 5 WHERE {key} < 'old:~' AND {key} > 'old:'")
        assert prune_keys(database, dry_run=True) == 7
        assert len(rows(database, "SELECT * FROM T_idempotency_key")) == 9
        assert prune_keys(database, batch=3) == 7
        left = rows(database, f"SELECT {key} FROM T_idempotency_key ORDER BY 1")
        assert left == [("for ever",), ("young",)]
        assert prune_keys(database) == 0

    def test_without_the_tables_it_says_so(self, bare: Database) -> None:
        with pytest.raises(EffectsMissing, match="nothing to prune; to create them, run: fencepost effects install"):
            prune_keys(bare)

    def test_a_node_removes_them_from_its_ledger(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        with engine_of(ledger).begin() as tx:
            for key, expires in (("old", "1h"), ("young", "1h"), ("for ever", None)):
                fencepost.once(key, tx, expires=expires, prefix=ledger.tables.prefix)
        key = ledger.dialect.spelling.key
        run_sql(ledger, f"UPDATE T_idempotency_key SET expires_at = 5 WHERE {key} = 'old'")
        assert prune(ledger, None, Retention()) == 1
        assert prune(ledger, None, Retention()) == 0
        assert rows(ledger, f"SELECT {key} FROM T_idempotency_key ORDER BY 1") == [("for ever",), ("young",)]


def fence(database: Database, key: str, token: int) -> None:
    values = f"('{key}', {token}, 'g', 0)"
    run_sql(
        database,
        f"INSERT INTO T_fence ({database.dialect.spelling.key}, token, grant_id, raised_at) VALUES {values}",
    )


def fences(database: Database) -> dict[str, int]:
    return dict(rows(database, f"SELECT {database.dialect.spelling.key}, token FROM T_fence"))


class TestPruningFences:
    def test_those_strictly_below_the_floor_go_and_the_floor_rises_with_them(self, database: Database) -> None:
        for token in (5, 9, 10, 11):
            fence(database, f"job:{token}", token)
        floor = FenceFloor(10, "a test")
        assert prune_fences(database, floor, dry_run=True) == 2
        assert fences(database)[""] == 0
        assert prune_fences(database, floor, batch=1) == 2
        assert fences(database) == {"": 10, "job:10": 10, "job:11": 11}

    def test_the_floor_never_falls(self, database: Database) -> None:
        prune_fences(database, FenceFloor(10, "a test"))
        prune_fences(database, FenceFloor(7, "a test"))
        assert fences(database) == {"": 10}

    def test_a_floor_that_was_lost_is_made_again(self, database: Database) -> None:
        run_sql(database, "DELETE FROM T_fence")
        fence(database, "job:a", 5)
        assert prune_fences(database, FenceFloor(10, "a test")) == 1
        assert fences(database) == {"": 10}

    def test_who_raises_a_fence_keeps_the_floor_where_it_is_meanwhile(self, database: Database) -> None:
        if database.dialect.name == "sqlite":
            pytest.skip("one writer at a time")
        fence(database, "job:a", 5)
        key, share = database.dialect.spelling.key, database.dialect.spelling.share
        with engine_of(database).begin() as raising:
            raising.exec_driver_sql(f"SELECT token FROM {tables_of(database).name('fence')} WHERE {key} = ''{share}")
            pruning = Asking(lambda: prune_fences(database, FenceFloor(10, "a test")))
            until(lambda: _waiters(database) == 1, 20, what="pruning waits")
            assert fences(database) == {"": 0, "job:a": 5}
        assert pruning.answer() == 1
        assert fences(database) == {"": 10}

    def test_without_anything_live_the_age_decides(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        floor = floor_for(ledger, older_than_s=2 * 86400)
        assert abs(ledger.now_us() - 2 * DAY_US - floor.token) < 60_000_000

    @pytest.mark.parametrize("what", ["run", "exclusive"])
    def test_it_stays_below_the_oldest_live_token(self, url: str, opened: Opened, what: str) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        old = ledger.now_us() - 90 * DAY_US
        _live(ledger, what, old)
        floor = floor_for(ledger, older_than_s=30 * 86400)
        assert floor.token == old - 1
        assert str(old) in floor.why

    def test_what_does_not_live_any_more_does_not_count(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        old = ledger.now_us() - 90 * DAY_US
        _live(ledger, "run", old)
        run_sql(ledger, "UPDATE T_run SET state = 'succeeded'")
        assert floor_for(ledger, older_than_s=30 * 86400).token > old

    def test_a_lock_that_is_held_beside_the_ledger_counts(self, url: str, opened: Opened) -> None:
        ledger = opened(url)
        migrations.migrate(ledger)
        with fencepost.locks.connect(url) as locks, locks.lock("nightly").acquire() as lease:
            ahead = ledger.now_us() + 2 * DAY_US  # as if the lock had been held for two days
            ledger.now_us = lambda connection=None: ahead  # type: ignore[method-assign]
            assert floor_for(ledger, older_than_s=86400).token == lease.token - 1

    def test_fences_of_the_last_day_are_not_pruned(self, url: str, opened: Opened) -> None:
        with pytest.raises(ConfigurationError, match="too short"):
            floor_for(opened(url), older_than_s=3600)


def _waiters(database: Database) -> int:
    if database.dialect.name == "postgresql":
        return int(rows(database, "SELECT count(*) FROM pg_locks WHERE NOT granted")[0][0])
    [(_, _, status)] = rows(database, "SHOW ENGINE INNODB STATUS")  # innodb_trx is not renewed while it is asked often
    now = status.split("---TRANSACTION")[1:]  # what stands before them is the latest deadlock, which had waiters too
    return sum("LOCK WAIT" in each for each in now)


def _live(ledger: Ledger, what: str, token: int) -> None:
    if what == "exclusive":
        ledger.write(
            lambda cursor: ledger.dialect.insert_row(
                cursor, ledger.tables.exclusive, {"key": "k", "run_id": 1, "token": token}
            )
        )
        return
    numbers = ("ticks", "priority", "attempts", "failures", "crashes", "created_at", "available_at", "generation")
    texts = {"job": "j", "type": "manual", "state": "running", "params": "{}", "params_hash": "x", "queue": "q"}
    row = {**texts, **dict.fromkeys(numbers, 0), "token": token}
    ledger.write(lambda cursor: ledger.dialect.insert_row(cursor, ledger.tables.run, row))

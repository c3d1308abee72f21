"""Marks of a service in its own database, on SQLite, PostgreSQL and MariaDB: the check that commits with the effect."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import Engine, create_engine, text

from fencepost.core.fencing import FencingToken
from fencepost.effects.installing import install, open_database
from fencepost.errors import EffectsMissing
from fencepost.fence.sql_marks import SqlMarks
from fencepost.fences import AsgiFence, marks_in_sql
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from testbed.server import free_port
from tests.fence.serving import KEY, Service, asgi_service, token

RUNTIME = ThreadedRuntime()


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    return str(request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb").url)


@pytest.fixture
def prefix(url: str) -> str:
    """Tables of effects of the test's own."""
    prefix = f"t{RUNTIME.new_id()[:10]}_"
    database = open_database(f"{url}?prefix={prefix}", RUNTIME)
    try:
        install(database)
    finally:
        database.close()
    return prefix


@pytest.fixture
def engine(url: str, kind: str) -> Iterator[Engine]:
    drivers = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    engine = create_engine(url.replace(url.partition(":")[0], drivers[kind], 1))
    with engine.begin() as tx:
        tx.execute(text("DROP TABLE IF EXISTS settled"))
        tx.execute(text("CREATE TABLE settled (token BIGINT NOT NULL)"))
    yield engine
    engine.dispose()


@pytest.fixture
def marks(engine: Engine, prefix: str) -> SqlMarks:
    return marks_in_sql(engine, prefix=prefix)


def settled(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(text("SELECT token FROM settled"))]


class TestAdmit:
    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_those_of_single_runs_do_not_stay_for_ever(
        self, marks: SqlMarks, engine: Engine, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fencepost.fence.families.ONE_IN", 0)  # at every raise
        begins, now = "ledger:1f0c62d7a9be/run:", RUNTIME.wall_us()
        shown = [FencingToken(f"{begins}{number:012}", at, "g") for number, at in ((5, 7), (6, now), (7, now))]
        assert [marks.admit(each) for each in shown] == [None] * 3
        with engine.connect() as connection:
            keys = set(connection.execute(text(f"SELECT key FROM {prefix}fence WHERE key <> ''")).scalars())
        assert keys == {begins, shown[1].key, shown[2].key}
        refused = marks.admit(shown[0])
        assert refused is not None
        assert "below the floor" in refused.why

    def test_judges_as_every_fence_does(self, marks: SqlMarks) -> None:
        assert marks.admit(token(7)) is None
        assert marks.admit(token(8)) is None
        assert marks.admit(token(8)) is None
        stale = marks.admit(token(7))
        assert stale is not None
        assert stale.mark is not None
        assert (stale.mark.token, stale.why) == (8, "a newer holder has written with token 8")
        same = marks.admit(token(8, "other"))
        assert same is not None
        assert "another grant" in same.why
        ahead = marks.admit(token(RUNTIME.wall_us() + 25 * 3600 * 1_000_000))
        assert ahead is not None
        assert "a day ahead" in ahead.why

    def test_keeps_long_and_odd_keys_and_grants_apart(self, marks: SqlMarks) -> None:
        one = FencingToken("k" * 300 + "a", 8, "g" * 300 + "a")
        assert marks.admit(one) is None
        assert marks.admit(FencingToken("k" * 300 + "b", 7, "g")) is None
        assert marks.admit(one) is None
        assert marks.admit(one._replace(grant_id="g" * 300 + "b")) is not None

    def test_lets_one_of_many_with_an_equal_token_in(self, marks: SqlMarks) -> None:
        barrier, answers = threading.Barrier(4), []

        def ask(number: int) -> None:
            barrier.wait(20)
            answers.append(marks.admit(token(7, f"g{number}")))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [answer is None for answer in answers].count(True) == 1
        assert len(answers) == 4

    def test_says_what_to_install(self, engine: Engine) -> None:
        with pytest.raises(EffectsMissing, match="fencepost effects install"):
            marks_in_sql(engine, prefix="nowhere_").admit(token(7))

    def test_takes_a_function_that_connects(self, kind: str, url: str, prefix: str, engine: Engine) -> None:
        marks = marks_in_sql(connects(kind, engine), prefix=prefix)
        assert marks.admit(token(8)) is None
        assert marks.admit(token(7)) is not None


def connects(kind: str, engine: Engine) -> Callable[[], Any]:
    url = engine.url
    if kind == "sqlite":
        return lambda: sqlite3.connect(url.database or "")
    if kind == "postgresql":
        return lambda: psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))
    options = {"user": url.username or "", "password": url.password or "", "database": url.database}
    return lambda: pymysql.connect(host=url.host, port=url.port or 3306, **options)


class TestInTheApplicationsTransaction:
    """A request that was let in, and is overtaken while its application is in the middle of its transaction."""

    @pytest.fixture
    def overtaken(self, engine: Engine, marks: SqlMarks, kind: str) -> Iterator[Callable[[bool], int]]:
        with ExitStack() as services:

            def play(checks: bool) -> int:
                inside, go_on = threading.Event(), threading.Event()

                def settle(fence: Any, _: list[int]) -> None:
                    with engine.begin() as tx:
                        if fence.fencing.token == 7:
                            inside.set()
                            assert go_on.wait(20)
                        tx.execute(text("INSERT INTO settled VALUES (:token)"), {"token": fence.fencing.token})
                        if checks:
                            fence.check(tx)

                service = services.enter_context(asgi_service(lambda app: AsgiFence(app, marks=marks), settle))
                return _overtake(service, inside, go_on)

            yield play

    def test_commits_without_the_check(self, overtaken: Callable[[bool], int], engine: Engine) -> None:
        assert overtaken(False) == 200
        assert settled(engine) == [8, 7], "the reason for the check: the older one settled after the newer one"

    def test_is_rolled_back_by_the_check_and_answered_with_409(
        self, overtaken: Callable[[bool], int], engine: Engine
    ) -> None:
        assert overtaken(True) == 409
        assert settled(engine) == [8]

    def test_keeps_newer_ones_out_between_the_check_and_the_commit(
        self, engine: Engine, marks: SqlMarks, kind: str
    ) -> None:
        assert marks.admit(token(7)) is None
        answers: list[Any] = []
        with engine.begin() as tx:
            tx.execute(text("INSERT INTO settled VALUES (7)"))
            assert marks.check_in(tx, token(7)) is None
            newer = threading.Thread(target=lambda: answers.append((marks.admit(token(8)), settled(engine))))
            newer.start()
            newer.join(0.3)
            assert answers == [], "it waits for the commit of the one that checked before"
        newer.join(30)
        assert answers == [(None, [7])], "and comes after it"

    @pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_is_told_of_its_loss_at_every_isolation(
        self, engine: Engine, marks: SqlMarks, kind: str, isolation: str
    ) -> None:
        if kind == "sqlite":
            pytest.skip("there is one isolation")
        assert marks.admit(token(7)) is None
        with engine.connect().execution_options(isolation_level=isolation) as connection:
            connection.execute(text("SELECT count(*) FROM settled")).all()  # takes its snapshot
            assert marks.admit(token(8)) is None
            stale = marks.check_in(connection, token(7))
            connection.rollback()
        assert stale is not None
        assert stale.mark is not None
        assert stale.mark.token == 8

    def test_is_lost_when_its_mark_was_pruned(self, engine: Engine, marks: SqlMarks) -> None:
        with engine.begin() as tx:
            stale = marks.check_in(tx, token(7))
        assert stale is not None
        assert "gone" in stale.why


def _overtake(service: Service, inside: threading.Event, go_on: threading.Event) -> int:
    statuses: list[int] = []
    older = threading.Thread(target=lambda: statuses.append(service.write(token(7)).status))
    older.start()
    assert inside.wait(20)
    assert service.write(token(8)).status == 200
    go_on.set()
    older.join(20)
    return statuses[0]


def test_the_workers_of_gunicorn_share_their_marks(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    database = open_database(url, RUNTIME)
    install(database)
    database.close()
    engine = create_engine(url)
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE settled (token BIGINT NOT NULL)"))
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--workers=3", f"--bind=127.0.0.1:{port}", "--log-level=critical"]
    with subprocess.Popen([*command, f"tests.fence.sql_service:app('{url}')"]) as process:
        try:
            service = Service(port, [])
            wait.until(lambda: service.write(token(8)).status == 200, 30, ignoring=(OSError,), what="it answers")
            refused = [service.write(token(7)) for _ in range(12)]
            assert {answer.status for answer in refused} == {409}, "whichever worker it comes to"
            assert refused[0].json()["current_token"] == 8
            assert refused[0].json()["key"] == KEY
        finally:
            process.terminate()
    assert settled(engine) == [8]
    engine.dispose()

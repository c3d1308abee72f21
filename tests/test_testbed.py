"""The testbed does what its users rely on: servers answer, die when told, come back, and leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import keeper, wait
from testbed.postgres import Postgres
from testbed.server import ServerFailed, free_port

psycopg = pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


class TestPostgres:
    def test_keeps_committed_rows_when_killed(self, postgres: Postgres) -> None:
        with psycopg.connect(postgres.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        port = postgres.port
        postgres.kill()
        postgres.restart()
        assert postgres.port == port
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)

    def test_kill_ends_backends_that_left_the_process_group(self, postgres: Postgres) -> None:
        with contextlib.closing(psycopg.connect(postgres.url)) as connection:
            backend_pid = connection.info.backend_pid
            assert keeper.is_alive(backend_pid)
            postgres.kill()
            assert not keeper.is_alive(backend_pid)
        postgres.restart()

    def test_paused_server_is_silent_and_resumed_one_answers(self, postgres: Postgres) -> None:
        postgres.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres.url, connect_timeout=1)
        postgres.resume()
        assert postgres.answers()

    def test_settings_reach_the_server(self) -> None:
        with Postgres(settings={"fsync": "off"}) as server, psycopg.connect(server.url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)

    def test_failure_to_start_shows_the_log(self) -> None:
        server = Postgres(settings={"no_such_setting": "1"})
        with pytest.raises(ServerFailed, match="unrecognized configuration parameter"):
            server.start()
        server.close()


class TestKeeper:
    def test_ends_servers_and_removes_folders_when_their_owner_is_killed(self) -> None:
        program = "from testbed.postgres import Postgres; s = Postgres().start(); print(s.pid, s.directory, flush=True)"
        owner = subprocess.Popen(
            [sys.executable, "-c", f"{program}; input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert keeper.is_alive(int(pid))
        owner.kill()
        owner.communicate()
        wait.until(lambda: not keeper.is_alive(int(pid)) and not Path(directory).exists())

    def test_close_removes_the_folder(self) -> None:
        server = Postgres()
        assert server.directory.exists()
        server.close()
        assert not server.directory.exists()


def test_free_ports_are_distinct() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)


def test_waiting_gives_up_with_the_reason() -> None:
    with pytest.raises(TimeoutError) as error:
        wait.until(lambda: os.kill(0, signal.Signals(99)), 0.05, ignoring=(ValueError,))
    assert isinstance(error.value.__cause__, ValueError)

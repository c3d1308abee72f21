"""A server that has no connection free: who starts then waits for one, and whoever waits for a lock takes only one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest

from fencepost import App, locks
from fencepost.cli import exec as exec_command
from fencepost.cli.exec_options import parse
from fencepost.core.events import Event
from fencepost.ledger import migrations
from fencepost.ledger.ledger import open_ledger
from fencepost.sql.full_server import is_full
from fencepost.threaded import ThreadedRuntime
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.wait import until

RUNTIME = ThreadedRuntime()
_SMALL = 12


@contextmanager
def _small_postgres() -> Iterator[tuple[str, Any]]:
    with Postgres(settings={"max_connections": str(_SMALL), "superuser_reserved_connections": "0"}) as server:
        yield server.url, lambda: psycopg.connect(server.url)


@contextmanager
def _small_mariadb() -> Iterator[tuple[str, Any]]:
    with MariaDB(settings={"max-connections": str(_SMALL)}) as server:
        yield server.url, server.client


@pytest.fixture(params=[_small_postgres, _small_mariadb], ids=["postgresql", "mysql"], scope="module")
def small(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A server with few connections: its URL, and how to take one."""
    with request.param() as server:
        ledger = open_ledger(server[0], RUNTIME)
        migrations.migrate(ledger)
        ledger.close()
        with locks.connect(ledger.url.lease_url()):
            pass
        yield server


@contextmanager
def _filled(connect: Any) -> Iterator[ExitStack]:
    """Take all connections; whoever gets the stack may close it before."""
    with ExitStack() as taken:
        while True:
            try:
                connection = connect()
            except (psycopg.Error, pymysql.MySQLError) as error:
                if not is_full(error):
                    raise
                break
            taken.callback(connection.close)
        yield taken


def test_a_node_starts_when_a_connection_is_free(small: tuple[str, Any]) -> None:
    url, connect = small
    told: list[Event] = []
    app = App(url, observers=[told.append], ttl="6s")
    app.command("noop", ["true"])
    with _filled(connect) as taken:
        starting = threading.Thread(target=app.start)
        starting.start()
        until(lambda: any("starts when one is free" in (event.reason or "") for event in told), 30, what="it waits")
        taken.close()
    starting.join(60)
    assert app.is_running
    app.close()


def test_exec_that_may_wait_waits_for_a_connection_too(small: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    url, connect = small
    refused = threading.Event()

    def noticed(*arguments: Any, **options: Any) -> Any:
        try:
            return locks.connect(*arguments, **options)
        except locks.StoreUnavailable:
            refused.set()
            raise

    monkeypatch.setattr(exec_command, "connect", noticed)
    options = parse(["--store", url, "--lock", "nightly", "--wait", "60s", "--", "true"])
    with _filled(connect) as taken:
        freeing = threading.Thread(target=lambda: (refused.wait(30), taken.close()))
        freeing.start()
        assert exec_command.LockedProgram(options, ThreadedRuntime()).run() == 0
        freeing.join()
    assert refused.is_set()


def test_who_waits_for_a_lock_takes_one_connection() -> None:
    with Postgres(settings={"fsync": "off"}) as server, locks.connect(server.url) as holder:
        lease = holder.lock("nightly", ttl="30s").acquire()
        with locks.connect(f"{server.url}?application_name=waiter") as waiting:
            got: list[Any] = []
            waiter = threading.Thread(
                target=lambda: got.append(waiting.lock("nightly", ttl="30s", wait="60s").acquire())
            )
            waiter.start()
            with psycopg.connect(server.url, autocommit=True) as looking:

                def count() -> int:
                    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiter'"
                    return int(looking.execute(sql).fetchone()[0])

                def is_marked() -> bool:
                    row = looking.execute("SELECT waiting_until > 0 FROM fencepost_lease").fetchone()
                    return bool(row and row[0])

                until(is_marked, 30, what="it waits")
                until(lambda: count() == 1, 10, what="it has one connection")
            lease.release()
            waiter.join(30)
            assert got[0].token > lease.token
            got[0].release()

"""A call to the lease store has one deadline for all its statements together, whatever the server does in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fencepost.core.urls import StoreUrl
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores import mysql as mysql_store
from fencepost.leases.stores import postgres as postgres_store
from fencepost.leases.stores.sql.backend import LeaseConnection
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.threaded import ThreadedRuntime
from testbed.proxy import Proxy

LIMIT_S = 1.0
FIRST_S = 0.9


class Scene(NamedTuple):
    """A store behind a proxy, and how its database is told to wait."""

    store: SqlLeaseStore
    proxy: Proxy
    sleep_sql: str


@pytest.fixture(params=["postgres", "mariadb"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    server = request.getfixturevalue(request.param)
    is_postgres = request.param == "postgres"
    make = postgres_store.from_url if is_postgres else mysql_store.from_url
    with Proxy(server.host, server.port) as proxy:
        store = make(StoreUrl.parse(f"{proxy.through(server.url)}?call_timeout=5s"), ThreadedRuntime())
        store.start()
        yield Scene(store, proxy, "SELECT pg_sleep(%s)" if is_postgres else "SELECT SLEEP(%s)")
        proxy.flow()
        store.shutdown()


def test_a_server_that_falls_silent_late_in_a_call_does_not_prolong_it(scene: Scene) -> None:
    """The first statement takes most of the time. What comes after it gets the rest, and not the whole again."""

    def work(connection: LeaseConnection) -> None:
        connection.rows(scene.sleep_sql, (FIRST_S,))
        scene.proxy.swallow()
        connection.rows(scene.sleep_sql, (0,))

    began_at = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer within 1s"):
        scene.store._calls.run(LIMIT_S, work)
    assert time.monotonic() - began_at < FIRST_S + LIMIT_S * 0.8

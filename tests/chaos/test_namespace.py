"""Chaos stays in its namespace: it makes nothing elsewhere, and removes what it made and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from fencepost.errors import InvalidName, InvalidUrl
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.ledger.urls import LedgerUrl
from fencepost.proof.chaos.effects import ChaosTables
from fencepost.proof.chaos.namespace import checked_prefix, isolated, namespace, new_prefix
from fencepost.proof.chaos.wiring import server_of, through
from fencepost.threaded import ThreadedRuntime
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.valkey import Valkey

RUNTIME = ThreadedRuntime()
PREFIX = "fencepost_chaos_0f1e2d3c_"


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with Valkey() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/app.db"
        return
    kind = Postgres if request.param == "postgres" else MariaDB
    with kind() as server:
        yield server.url


def names_in(url: str) -> set[str]:
    """What there is in a database, for whoever looks with other eyes."""
    parsed = LedgerUrl.parse(url)
    engine = create_engine(parsed.sqlalchemy())
    try:
        found = set(inspect(engine).get_table_names())
        if parsed.kind == "postgresql":
            with engine.connect() as connection:
                routines = text("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
                found |= set(connection.execute(routines).scalars())
    finally:
        engine.dispose()
    return found


def make_all(ledger_url: str, locks_url: str) -> None:
    """Make whatever nodes and contenders of chaos need."""
    with closing(open_ledger(ledger_url, RUNTIME)) as ledger:
        migrate(ledger)
        engine = create_engine(ledger.url.sqlalchemy())
        ChaosTables(ledger.url).make(engine)
        engine.dispose()
    store = store_from_url(locks_url, RUNTIME)
    store.start()
    session = store.open("somebody", ttl_s=5.0, call_timeout_s=2.0)
    store.acquire(session, "chaos-a", grant_id=RUNTIME.new_id())
    store.shutdown()


def test_what_chaos_made_is_removed_and_what_others_made_stays(database: str) -> None:
    make_all(database, LedgerUrl.parse(database).lease_url())  # a ledger of somebody else's, under the usual prefix
    before = names_in(database)
    space = namespace(ledger=database, store=None, prefix=new_prefix(RUNTIME))
    make_all(space.ledger_url, space.locks_url)
    made = names_in(database) - before
    assert len(made) > 10
    assert all(name.startswith(space.prefix) for name in made)
    space.remove(RUNTIME)
    assert names_in(database) == before


def test_a_file_that_chaos_made_goes_with_it(tmp_path: Path) -> None:
    space = namespace(ledger=f"sqlite:///{tmp_path}/new.db", store=None, prefix=PREFIX)
    make_all(space.ledger_url, space.locks_url)
    assert list(tmp_path.iterdir())
    space.remove(RUNTIME)
    assert list(tmp_path.iterdir()) == []


def test_keys_of_chaos_are_removed_and_those_of_others_stay(valkey: Valkey, tmp_path: Path) -> None:
    space = namespace(ledger=f"sqlite:///{tmp_path}/new.db", store=valkey.url, prefix=PREFIX)
    make_all(space.ledger_url, valkey.url)
    make_all(space.ledger_url, space.locks_url)
    with valkey.client() as client:
        assert sorted(client.keys("*")) == ["fencepost:{chaos-a}", f"{PREFIX}:{{chaos-a}}"]
        space.remove(RUNTIME)
        assert client.keys("*") == ["fencepost:{chaos-a}"]


@pytest.mark.parametrize("url", ["memory://", "etcd://host:2379", "zookeeper://host", "kubernetes://jobs"])
def test_a_store_in_which_it_cannot_be_kept_apart_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl, match="cannot be kept apart"):
        namespace(ledger="sqlite:///app.db", store=url, prefix=PREFIX)


@pytest.mark.parametrize("text", ["fencepost_", "", "fencepost_chaos_", "fencepost_chaos_xyz_", "users"])
def test_nothing_is_removed_that_has_no_prefix_of_chaos(text: str) -> None:
    with pytest.raises(InvalidName, match="no prefix of chaos"):
        checked_prefix(text)


def test_the_prefix_outweighs_the_users_and_other_options_stay() -> None:
    url = "postgresql://me:se%40cret@db:5433/shop?prefix=fencepost_&schema=jobs&sslmode=require"
    told = isolated(url, PREFIX)
    assert told == f"postgresql://me:se%40cret@db:5433/shop?prefix={PREFIX}&schema=jobs&sslmode=require"
    assert through(told, 7777).startswith("postgresql://me:se%40cret@127.0.0.1:7777/shop?")


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("postgresql://db/shop", ("db", 5432)),
        ("mariadb+pymysql://u:p@db:3307/shop", ("db", 3307)),
        ("redis://:p@cache/0", ("cache", 6379)),
        ("sqlite:///app.db", None),
        ("rediss://cache/0", None),
        ("redis+sentinel://a,b/mymaster", None),
        ("postgresql://a,b/shop", None),
        ("postgresql://db/shop?sslmode=verify-full", None),
    ],
)
def test_a_proxy_stands_where_it_can_stand(url: str, server: tuple[str, int] | None) -> None:
    assert server_of(url) == server

"""Where acts are cut: a ledger with everything that people can act on, and one with a bulk job beside its database.

Each act finds its stage as the one before it did, and prepares what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import sqlalchemy
from sqlalchemy import Engine

from fencepost import App
from fencepost.access import Access, Authentication, Authorized, HostPrincipal
from fencepost.core.rights import ALL_JOBS, Scope
from fencepost.effects.installing import install, open_database
from fencepost.ledger import nodes
from fencepost.ledger.logins import add_login
from fencepost.ledger.urls import LedgerUrl
from fencepost.threaded import ThreadedRuntime
from tests.access.scene import Target, scene
from tests.audit.rows import Content, Databases
from tests.cli.bulk_shop import BulkShop
from tests.crashpoints.drivers import watched


@dataclass(frozen=True)
class Stage:
    """An application, what is acted on, and all rows in its databases. `first` is how they were."""

    app: App
    mine: Target
    databases: Databases
    first: Content
    unfinished: int = 0  # a run of a bulk job
    targets: tuple[Engine, ...] = ()  # to which jobs write

    def root(self) -> Authorized:
        """Operations of a person who may do everything, and has not reached the database itself."""
        authentication = Authentication(self.app.operations)  # which remembers for a second what it has read
        return authentication.by_host(HostPrincipal("ann", {ALL_JOBS: "admin"}), address="192.0.2.7")

    def put_back(self, wanted: Content, now: Content | None = None) -> None:
        """Let all rows be as they were."""
        self.databases.put_back(wanted, now)
        self.forget()

    def forget(self) -> None:
        """Be as a process that has just started: without connections, and without what it remembers of the ledger.

        So an act makes the same statements each time, and those of its beginning are cut, too.
        """
        self.app.ledger.close()
        self.app.ledger.known_identity = self.app.ledger.known_naming = None
        for engine in self.targets:
            engine.dispose()


class Stages(NamedTuple):
    """Both."""

    scene: Stage
    shop: Stage


@contextmanager
def on_stages(fresh: Callable[[], str]) -> Iterator[Stages]:
    """Make both on ledgers that `fresh` makes, where every statement passes the points."""
    with ExitStack() as stack:
        stack.enter_context(watched())
        yield Stages(stack.enter_context(_scene(fresh())), stack.enter_context(_shop(fresh())))


@contextmanager
def _scene(url: str) -> Iterator[Stage]:
    made = scene(url)
    there = next(made)
    app = there.app
    for node in nodes.living_nodes(app.ledger):
        nodes.leave(app.ledger, node.id)
    access = Access(app.ledger, Scope.direct("root"))
    for principal in ("host:ann", "host:bob"):
        access.give(principal, "admin")
    access.put_account("eve", None)
    access.add_api_token("ci", "viewer", expires_in="1d")
    app.ledger.write(
        lambda cursor: add_login(app.ledger, cursor, "s", "user:eve", how="login", address=None, lasts_s=60)
    )
    databases = Databases(app.ledger)
    yield Stage(app, there.mine, databases, databases.read())
    databases.close()
    for _ in made:
        pass


@contextmanager
def _shop(url: str) -> Iterator[Stage]:
    """A bulk job with a complete instance and an unfinished one, and letters of both, in a database of its own."""
    effects = _beside(url)
    shop = BulkShop(url, effects)
    shop.open(range(1, 31))
    shop.poison = {7, 21, 22}
    complete = shop.run()
    shop.execute("DELETE FROM settled")
    shop.poison = set(range(5, 31))
    unfinished = shop.run()
    if (complete.state, unfinished.state) != ("succeeded", "dead"):
        raise AssertionError(f"the bulk job did not play its part: {complete}, {unfinished}")
    databases = Databases(shop.app.ledger, effects)
    mine = Target(complete.id, "settle", "settle")
    more = {"unfinished": unfinished.id, "targets": (shop.engine,)}
    yield Stage(shop.app, mine, databases, databases.read(), **more)
    databases.close()
    shop.close()


def _beside(url: str) -> str:
    """Return the URL of a database beside that of a ledger, with empty tables of effects."""
    if url.startswith("sqlite"):
        effects = url.replace(".db", ".effects.db")
    else:
        name = f"{urlsplit(url).path[1:]}_effects"
        effects = url.replace(f"/{urlsplit(url).path[1:]}?", f"/{name}?")
        _create(url, name)
    database = open_database(effects, ThreadedRuntime())
    install(database)
    database.close()
    return effects


def _create(url: str, name: str) -> None:
    engine = sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()

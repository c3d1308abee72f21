"""A bulk job with its databases, of which commands and tests speak: orders are settled, unless they are poison.

Its application is a module of its own for each test, so that commands load it by name as they load a user's.
"""

import itertools
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, text

from fencepost import App
from fencepost.app.records import RunRecord
from fencepost.bulk import keyset
from fencepost.effects.installing import install, open_database
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.ledger.urls import LedgerUrl
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.cli.inside import Done, call

_numbers = itertools.count()
ENDED = ("succeeded", "dead", "skipped", "cancelled")
ORDERS = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"


class BulkShop:
    """An application with the bulk job ``settle``, on a ledger and a target."""

    def __init__(self, ledger_url: str, target_url: str, *, query: str = ORDERS, **options: Any) -> None:
        self.ledger_url = ledger_url
        self.target_url = target_url
        self.engine: Engine = sqlalchemy.create_engine(LedgerUrl.parse(target_url).sqlalchemy())
        self.poison: set[int] = set()
        self.processed: list[int] = []
        self.while_processing: Any = lambda _: None
        self.app = App(ledger_url, ttl="10s", name="shop")
        self._name = f"bulk_shop_{next(_numbers)}"
        self.declare(query, **options)

    def declare(self, query: str, **options: Any) -> None:
        """Make the application, as a deploy of this code does."""
        shop, app = self, self.app

        @app.bulk(name="settle", **{"chunk": 10, "skip_limit": 10, "retries": 0, "target": self.engine, **options})
        class Settle:
            """Settle orders."""

            read = keyset(query, key="id")

            def process(self, order: Any) -> Any:
                shop.processed.append(order.id)
                shop.while_processing(order)
                if order.id in shop.poison:
                    raise ValueError(f"order {order.id} is poison")
                return (order.id, order.amount)

            def write(self, tx: Any, items: Any) -> None:
                rows = [{"id": id_, "amount": amount} for id_, amount in items]
                tx.execute(text("INSERT INTO settled (id, amount) VALUES (:id, :amount)"), rows)

        self.settle = Settle
        module = sys.modules[self._name] = ModuleType(self._name)
        module.app = app  # type: ignore[attr-defined]

    def deploy(self, query: str, **options: Any) -> None:
        """Replace the code by another version of it."""
        self.app.close()
        self.app = App(self.ledger_url, ttl="10s", name="shop")
        self.declare(query, **options)

    @property
    def spec(self) -> str:
        return f"{self._name}:app"

    def open(self, orders: Iterable[int]) -> None:
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER)"))
            connection.execute(text("CREATE TABLE settled (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"))
            connection.execute(text("INSERT INTO orders VALUES (:id, 5)"), [{"id": each} for each in orders])

    def execute(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(sql))

    def settled(self) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.execute(text("SELECT id FROM settled ORDER BY id")).scalars())

    def letters(self) -> list[tuple[Any, ...]]:
        """What is kept of each letter: item, state, tries and error."""
        prefix = LedgerUrl.parse(self.ledger_url).prefix
        query = f"SELECT item_key, state, attempt, error FROM {prefix}dead_letter ORDER BY id"
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def drive(self, *run_ids: int) -> list[RunRecord]:
        """Be a node until these runs have ended, and return them."""
        with self.app.running():
            for each in run_ids:
                until(lambda each=each: self.app.operations.run(each).state in ENDED, 30, what=f"run {each} ends")
        return [self.app.operations.run(each) for each in run_ids]

    def run(self, **params: Any) -> RunRecord:
        """Settle what there is."""
        [row] = self.drive(self.settle.enqueue(**params).run_id)
        return row

    def call(self, *words: str) -> Done:
        """Do what ``fencepost`` does with these words; commands that need the application are told which it is."""
        named = ("--app", self.spec) if words[0] in ("bulk", "dead", "letters", "tune") else ()
        return call(*words, *named, ledger=self.ledger_url)

    def close(self) -> None:
        self.app.close()
        self.engine.dispose()
        sys.modules.pop(self._name, None)


MakeShop = Callable[..., BulkShop]


@pytest.fixture(scope="session")
def empty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of SQLite with the empty tables of a ledger, and of effects, to be copied."""
    folder = tmp_path_factory.mktemp("bulk_shop")
    ledger = open_ledger(f"sqlite:///{folder}/ledger.db", ThreadedRuntime())
    migrate(ledger)
    ledger.close()
    for name in ("target", "other"):
        database = open_database(f"sqlite:///{folder}/{name}.db", ThreadedRuntime())
        install(database)
        database.close()
    return folder


@pytest.fixture(scope="session")
def used_files(empty_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after a run that has settled thirty orders but for three, which were poison."""
    folder = _copied(empty_files, tmp_path_factory.mktemp("used_bulk_shop"))
    shop = _shop_in(folder)
    shop.open(range(1, 31))
    shop.poison = {7, 21, 22}
    assert shop.run().state == "succeeded"
    shop.close()
    return folder


@pytest.fixture
def make_shop(empty_files: Path, tmp_path: Path) -> Iterator[MakeShop]:
    """Shops on SQLite; ledger and target are two files."""
    _copied(empty_files, tmp_path)
    made: list[BulkShop] = []

    def make(**options: Any) -> BulkShop:
        made.append(_shop_in(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def used_shop(used_files: Path, tmp_path: Path) -> Iterator[BulkShop]:
    """A shop in which three of thirty orders were put aside."""
    shop = _shop_in(_copied(used_files, tmp_path))
    shop.poison = {7, 21, 22}
    yield shop
    shop.close()


def _copied(source: Path, folder: Path) -> Path:
    for each in ("ledger", "target", "other"):
        shutil.copyfile(source / f"{each}.db", folder / f"{each}.db")
    with closing(sqlite3.connect(folder / "ledger.db")) as copy, copy:  # nobody is to be asked what it is
        copy.execute("UPDATE fencepost_identity SET evidence = NULL")
    return folder


def _shop_in(folder: Path, **options: Any) -> BulkShop:
    return BulkShop(f"sqlite:///{folder}/ledger.db", f"sqlite:///{folder}/target.db", **options)


def refusal(done: Done, code: int = 2) -> str:
    """Return the one sentence of a command that refuses."""
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done
    return done.stderr

"""A holder that is paused inside its fenced transaction delays its successor by a ttl and a moment, not for as long as
the pause lasts; and when it goes on, nothing of what it wrote is there. Real processes, stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from fencepost.core.retry import Rerun
from fencepost.core.runs import Claim, Requested
from fencepost.effects.installing import install, open_database
from fencepost.ledger import migrations
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.reaping import reap
from fencepost.testing import Stopwatch, until
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.fence.paused_holder import CHECKED, RUNTIME, TTL_S, WRITTEN, claimed_by, engine_to, run_of, settle
from tests.ledger.scene import Scene

BEYOND_S = 2.0
LONG_S = 30.0


class Place(NamedTuple):
    """The ledger, and two databases with an account each: its own, and another."""

    scene: Scene
    urls: dict[str, str]

    @property
    def ledger(self) -> Ledger:
        return self.scene.ledger


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with (Postgres if request.param == "postgres" else MariaDB)() as server:
        ledger = open_ledger(server.url, RUNTIME)
        migrations.migrate(ledger)
        scene = Scene(ledger)
        elsewhere = server.url.rpartition("/")[0] + "/elsewhere"
        with scene.connection.autocommit() as cursor:
            cursor.execute("CREATE DATABASE elsewhere")
        database = open_database(elsewhere, RUNTIME)
        install(database)
        database.close()
        place = Place(scene, {"the ledger's database": server.url, "another database": elsewhere})
        for url in place.urls.values():
            _execute(url, "CREATE TABLE account (settled_by BIGINT)", "INSERT INTO account VALUES (0)")
        yield place
        scene.close()
        ledger.close()


def _execute(url: str, *statements: str) -> list[Any]:
    engine = engine_to(url)
    with engine.begin() as connection:
        results = [connection.exec_driver_sql(each) for each in statements]
        rows = list(results[-1]) if results[-1].returns_rows else []
    engine.dispose()
    return rows


@contextmanager
def stopped_holder(place: Place, url: str, moment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed the run, and has stopped in its transaction."""
    words = [place.urls["the ledger's database"], url, moment]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fence.paused_holder", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended before it came to where it was to stop"
        yield process
    finally:
        process.kill()
        process.communicate()


def take_over(place: Place) -> Claim:
    """What the ledger does of a node that is dead, as often as it takes, and then its successor."""
    connection = place.scene.connection
    until(lambda: reap(connection, node="one", limit=8, decide=lambda job, crashes: Rerun()), LONG_S, "the run is lost")
    claimed = until(lambda: claimed_by("two", place.ledger), LONG_S, "the successor has it")
    assert isinstance(claimed, Claim)
    return claimed


@pytest.mark.parametrize("moment", [WRITTEN, CHECKED])
@pytest.mark.parametrize("where", ["the ledger's database", "another database"])
def test_holder_paused_in_its_transaction_delays_its_successor_by_a_ttl(place: Place, where: str, moment: str) -> None:
    url = place.urls[where]
    for table in ("run", "attempt", "exclusive"):
        place.scene.change(f"DELETE FROM {{{table}}}")
    place.scene.add(Requested("settle", "manual", exclusive_key="settle"))
    engine = engine_to(url)
    with stopped_holder(place, url, moment) as holder:
        with Stopwatch() as took:
            claimed = take_over(place)
            with run_of(claimed, "two", place.ledger).transaction(engine) as tx:
                settle(tx, claimed.token)
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate(timeout=LONG_S)
    engine.dispose()
    assert said.startswith("refused"), said
    assert _execute(url, "SELECT settled_by FROM account") == [(claimed.token,)]
    assert took.awake_s <= TTL_S + BEYOND_S, f"the successor was kept for {took.whole_s:.1f} s"

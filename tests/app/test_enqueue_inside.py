"""`enqueue()` inside of `run.transaction()` without ``tx=``: on SQLite it could only wait for itself."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy

from fencepost.effects.installing import install, open_database
from fencepost.errors import ConfigurationError
from fencepost.ledger.naming import naming
from fencepost.ledger.nodes import NewNode, join
from fencepost.testing import Stopwatch
from tests.app.surroundings import RUNTIME
from tests.app.test_transaction import Stand, app, stand, started

__all__ = ["app", "stand"]


@pytest.fixture
def on_a_file(kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("others write there at the same time")


@pytest.mark.usefixtures("on_a_file")
class TestOnAFile:
    @pytest.mark.parametrize("is_own_engine", [False, True])
    def test_it_is_refused_at_once_with_what_to_write(self, stand: Stand, is_own_engine: bool) -> None:
        run = started(stand)
        follow_up = stand.app.job(name="follow-up")(lambda: None)
        with Stopwatch() as since, run.transaction(*[stand.engine] * is_own_engine) as tx:
            stand.write(tx)
            with pytest.raises(ConfigurationError, match=r"run \d+ of 'settle' .*tx="):
                follow_up.enqueue()
            assert since.awake_s < 2
            made = follow_up.enqueue(tx=tx)
        assert [row.id for row in stand.app.operations.runs(job="follow-up")] == [made.run_id]
        assert follow_up.enqueue().is_new

    def test_a_thread_beside_it_waits_for_its_end(self, stand: Stand) -> None:
        run = started(stand)
        follow_up = stand.app.job(name="follow-up")(lambda: None)
        made: list[bool] = []
        asking = threading.Thread(target=lambda: made.append(follow_up.enqueue().is_new))
        with run.transaction() as tx:
            stand.write(tx)
            asking.start()
        asking.join(20)
        assert made == [True]

    def test_a_transaction_on_another_file_is_in_nobodys_way(self, stand: Stand, tmp_path: object) -> None:
        run = started(stand)
        follow_up = stand.app.job(name="follow-up")(lambda: None)
        elsewhere = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/elsewhere.db")
        database = open_database(f"sqlite:///{tmp_path}/elsewhere.db", RUNTIME)
        install(database)
        database.close()
        with run.transaction(elsewhere):
            assert follow_up.enqueue().is_new
        elsewhere.dispose()


def test_a_server_takes_it_in_a_transaction_of_its_own(stand: Stand, kind: str) -> None:
    if kind == "sqlite":
        pytest.skip("see above")
    run = started(stand)
    follow_up = stand.app.job(name="follow-up")(lambda: None)
    with pytest.raises(ZeroDivisionError), run.transaction():
        follow_up.enqueue()
        raise ZeroDivisionError
    assert len(stand.app.operations.runs(job="follow-up")) == 1


def test_a_run_sees_inside_of_it_that_an_older_version_takes_part(stand: Stand) -> None:
    """To note that is left to whoever asks next: here it could only wait for its own transaction."""
    run = started(stand)
    join(stand.app.ledger, NewNode("older", "older", "g", 1, 0, "0.1.0/0003", 1, ("default",), ()))
    stand.app.ledger.known_naming = None
    with run.transaction() as tx:
        stand.write(tx)
        assert run.fencing.key in ("job:settle", f"run:{run.id}")
    stand.app.ledger.known_naming = None
    assert naming(stand.app.ledger).nameless_until is not None

"""A sequence of ids that stands behind its table (a restore of data alone): nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from fencepost.core.runs import Requested
from fencepost.errors import LedgerRefused
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.recording import record
from fencepost.ledger.sequences import advance_sequences
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.ledger.scene import Scene, tick
from tests.ledger.test_planning import add_schedule, planned, schedule
from tests.servers import RUNTIME, execute

BEHIND = "SELECT setval(pg_get_serial_sequence('{}', 'id'), 1, false)"


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
class TestOnPostgres:
    @pytest.fixture
    def behind(self, scene: Scene, postgres: Postgres) -> Scene:
        """A ledger with twenty runs, and a sequence that begins anew."""
        run, journal = (scene.ledger.tables.name(name) for name in ("run", "journal"))
        scene.change("DELETE FROM {run}")
        execute(postgres, BEHIND.format(run), BEHIND.format(journal))
        scene.add(*[tick("old", number) for number in range(1, 21)])
        execute(postgres, BEHIND.format(run))
        return scene

    def test_due_time_that_cannot_be_recorded_is_not_passed_over(self, behind: Scene) -> None:
        now_us = behind.now_us()
        add_schedule(behind, "s", now_us, planned_through=7)
        with pytest.raises(LedgerRefused, match=r"restart a node.* or let the owner .* run: SELECT setval"):
            planned(behind)
        assert schedule(behind, "s") == (7, now_us)

    def test_request_that_cannot_be_recorded_is_refused(self, behind: Scene) -> None:
        asked = [Requested("job", "manual", origin_key="request:x")]
        with pytest.raises(LedgerRefused, match="SELECT setval"):
            behind.ledger.write(lambda cursor: record(behind.ledger, cursor, asked))

    def test_node_that_joins_advances_the_sequence(self, behind: Scene) -> None:
        [found] = advance_sequences(behind.ledger)
        assert (found.highest_id, found.last_value) == (20, 0)
        assert behind.add_one() == 21
        assert advance_sequences(behind.ledger) == []

    def test_user_who_may_not_is_told_what_to_run(self, behind: Scene, postgres: Postgres) -> None:
        run = behind.ledger.tables.name("run")
        execute(
            postgres,
            "DROP ROLE IF EXISTS weak",
            "CREATE ROLE weak LOGIN",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO weak",
            f"GRANT USAGE ON SEQUENCE {run}_id_seq TO weak",
        )
        place = behind.ledger.url
        weak = open_ledger(f"{postgres.url.replace('postgres@', 'weak@', 1)}?prefix={place.prefix}", RUNTIME)
        try:
            with pytest.raises(LedgerRefused, match="let the owner of the tables run: SELECT setval"):
                advance_sequences(weak)
        finally:
            weak.close()
            execute(postgres, "DROP OWNED BY weak", "DROP ROLE weak")


def test_release_of_a_lock_is_recorded_though_the_sequence_was_behind(postgres: Postgres) -> None:
    def locks() -> Locks:
        made = Locks(store_from_url(f"{postgres.url}?prefix=behind_", RUNTIME), runtime=RUNTIME)
        made.start()
        return made

    first = locks()
    for _ in range(3):
        first.lock("settle", ttl="5s").acquire().release()
    first.close()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'behind%history'").fetchall()
        connection.execute(BEHIND.format(tables[0][0]))
    second = locks()
    try:
        second.lock("settle", ttl="5s").acquire().release()
        second.lock("settle", ttl="5s").acquire().release()
    finally:
        second.close()


@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
def test_what_mysql_leaves_out_for_another_key_is_an_error(scene: Scene, mariadb: MariaDB) -> None:
    run = scene.ledger.tables.name("run")
    [taken] = scene.add(tick("old", 1))
    now_us = scene.now_us()
    add_schedule(scene, "s", now_us, planned_through=7)
    execute(mariadb, f"CREATE TRIGGER same_id BEFORE INSERT ON {run} FOR EACH ROW SET NEW.id = {taken}")
    try:
        with pytest.raises(LedgerRefused, match="1 of 1 runs were not recorded"):
            planned(scene)
    finally:
        execute(mariadb, "DROP TRIGGER same_id")
    assert schedule(scene, "s") == (7, now_us)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_id_that_was_pruned_is_not_given_again_though_sqlites_count_was_behind(scene: Scene) -> None:
    [given] = scene.add(tick("old", 1))
    scene.change("UPDATE sqlite_sequence SET seq = 0")
    [found] = advance_sequences(scene.ledger)
    assert (found.highest_id, found.last_value) == (given, 0)
    scene.change("DELETE FROM {run}")
    assert scene.add(tick("new", 2)) == [given + 1]
    assert advance_sequences(scene.ledger) == []

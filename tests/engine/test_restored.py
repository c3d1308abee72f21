"""A ledger that was restored from an older dump, or copied: nothing is planned or claimed until a person decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fencepost.core.events import What
from fencepost.core.runs import Requested
from fencepost.core.schedule import every, schedule_to_json
from fencepost.engine import same_ledger
from fencepost.engine.same_ledger import SameLedger
from fencepost.errors import LedgerHeld, LedgerRefused
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LedgerMark
from fencepost.ledger import history, journal, migrations, requests
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.identity import identity
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.restoring import Pending, accept, as_copy
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.ledger.schedules import put, schedule
from fencepost.ledger.standing import LedgerStanding
from fencepost.testing import until
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.engine.crew import RUNTIME, Crew, crew, job, seldom
from tests.engine.dumps import Restore, dump
from tests.ledger.scene import Scene

MINUTE_US = 60_000_000


@pytest.fixture
def url(bare_url: str) -> str:
    """A ledger of its own: what is restored here, others would be held by."""
    made = open_ledger(bare_url, RUNTIME)
    migrations.migrate(made)
    made.close()
    return bare_url


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Postgres | MariaDB | None:
    names = {"postgresql": "postgres", "mysql": "mariadb"}
    return None if kind == "sqlite" else request.getfixturevalue(names[kind])


def add() -> None:
    pass


def is_held(made: Crew) -> bool:
    return str(What.LEDGER_HELD) in made.whats()


def ask(made: Crew, count: int = 1) -> list[int]:
    asked = made.enqueue("add", count=count)
    for node in made.nodes:
        node.wake()
    return asked


class TestADumpThatIsReadBack:
    def ledger_from_a_dump(self, made: Crew, server: Postgres | MariaDB | None, folder: Path) -> Restore:
        """Do some work, dump the ledger, do some more, and stop."""
        node = made.node()
        ask(made)
        made.until_state("succeeded", 1)
        read_back = dump(made.url, server, folder)
        ask(made, 2)
        made.until_state("succeeded", 3)
        node.stop(5)
        made.ledger.close()
        return read_back

    def test_nothing_is_claimed_until_somebody_accepts_it_and_no_id_is_given_again(
        self, url: str, server: Postgres | MariaDB | None, tmp_path: Path
    ) -> None:
        with crew(url, [job(add)]) as made:
            self.ledger_from_a_dump(made, server, tmp_path)()
            [asked] = ask(made)
            made.node()
            until(lambda: is_held(made), 20, "the node sees that the ledger was restored")
            [told] = [event.reason or "" for event in made.events if event.what is What.LEDGER_HELD]
            assert "fencepost restored --accept" in told
            assert "--as-copy" in told
            assert [row.state for row in made.runs() if row.id == asked] == ["queued"]
            accept(made.ledger, by="ann", reason="the disk is gone", runs=Pending.RUN)
            made.until_state("succeeded", 2)
            [later] = ask(made)
            assert later > 1_000_000
            assert journal.entries(made.ledger, what="ledger accepted")[0].by == "ann"

    @pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
    def test_a_copy_gets_a_name_of_its_own_and_runs_nothing_of_the_original(
        self, url: str, server: Postgres | MariaDB | None, tmp_path: Path
    ) -> None:
        with crew(url, [job(add)]) as made:
            read_back = self.ledger_from_a_dump(made, server, tmp_path)
            name = identity(made.ledger)
            read_back()
            ask(made)
            done = as_copy(made.ledger, by="ann", reason="staging")
            assert done.runs == 1
            assert identity(made.ledger) != name
            assert [row.state for row in made.runs()] == ["cancelled", "succeeded"]
            made.node()
            ask(made)
            made.until_state("succeeded", 2)
            assert not is_held(made)

    def test_nodes_that_live_through_it_hold_and_go_on_when_it_is_accepted(
        self, url: str, server: Postgres | MariaDB | None, tmp_path: Path
    ) -> None:
        with crew(url, [job(add)]) as made:
            node = made.node()
            ask(made)
            made.until_state("succeeded", 1)
            read_back = dump(made.url, server, tmp_path)
            ask(made, 2)
            made.until_state("succeeded", 3)
            made.ledger.close()
            read_back()
            until(lambda: is_held(made), 30, "the node sees that the ledger was restored")
            [asked] = ask(made)
            accept(made.ledger, by="ann", reason="the disk is gone", runs=Pending.RUN)
            until(seldom(lambda: history.run(made.ledger, asked).state == "succeeded"), 30, "work goes on")
            assert node.is_running


class Seen:
    """What one node knows of a ledger."""

    opened: ClassVar[list[LedgerConnection]] = []

    def __init__(self, ledger: Ledger, locks: Locks | None = None) -> None:
        self.events: list[Any] = []
        self.ledger = ledger
        noted = (lambda _: None) if locks is None else locks.noted
        self.same = SameLedger(ledger=ledger, runtime=RUNTIME, emit=self.events.append, noted=noted)
        self.connection = ledger.connect("test")
        self.opened.append(self.connection)
        self.same.watch(self.connection)
        self.check()

    def check(self) -> None:
        self.same.check(self.connection)

    @classmethod
    def close_all(cls) -> None:
        while cls.opened:
            cls.opened.pop().rest()

    @property
    def what(self) -> list[str]:
        return [str(event.what) for event in self.events]


@pytest.fixture
def scene(ledger_url: str) -> Iterator[Scene]:
    """A ledger that other tests use as well: what is noted about it here is forgotten afterwards."""
    ledger = open_ledger(ledger_url, RUNTIME)
    made = Scene(ledger)
    yield made
    forgotten = ", ".join(f"{name} = NULL" for name in ("evidence", "era", "beat_at", "held_why"))
    made.change(f"UPDATE {ledger.tables.name('identity')} SET {forgotten}")
    made.close()
    Seen.close_all()
    ledger.close()


def scheduled(ledger: Ledger) -> None:
    put(ledger, NewSchedule("s", "add", schedule_to_json(every("1m"))))


def older(scene: Scene, by_us: int) -> None:
    """Let the ledger be what it was a while ago, in the same tables: as a promoted replica has it."""
    scene.change("UPDATE {schedule} SET planned_through = planned_through - %s", by_us)
    table = scene.ledger.tables.name("identity")
    scene.change(f"UPDATE {table} SET beat_at = beat_at - %s", by_us)


class TestANodeThatKnowsMore:
    def knowing(self, scene: Scene) -> Seen:
        scheduled(scene.ledger)
        seen = Seen(scene.ledger)
        through_us = schedule(scene.ledger, "s").planned_through
        seen.same.planned([("s", through_us)])
        seen.same.claimed(40)
        seen.check()
        return seen

    def test_a_few_minutes_are_made_good_on_record(self, scene: Scene) -> None:
        node = self.knowing(scene)
        known_us = schedule(scene.ledger, "s").planned_through
        older(scene, 4 * MINUTE_US)
        node.check()
        assert not node.same.is_held
        [row] = history.runs(scene.ledger)
        assert (row.state, row.why, row.schedule, row.ticks) == ("skipped", "restored: unknown", "s", 4)
        assert row.window_start == (row.first_due_at or 0) - MINUTE_US
        assert schedule(scene.ledger, "s").planned_through == known_us
        [made] = requests.enqueue(scene.ledger, [Requested("add", "manual")])
        assert made.run_id > 40
        assert journal.entries(scene.ledger, what="ledger advanced")
        node.check()
        assert node.what.count("ledger advanced") <= 2  # once for the ids that the test claimed, once for this

    def test_more_is_held_for_every_node_until_a_person_accepts(self, scene: Scene) -> None:
        node, stranger = self.knowing(scene), Seen(scene.ledger)
        older(scene, 6 * MINUTE_US)
        node.check()
        stranger_knows_nothing = Seen(scene.ledger)
        assert [each.same.is_held for each in (node, stranger_knows_nothing)] == [True, True]
        accept(scene.ledger, by="ann", reason="a snapshot")
        for each in (node, stranger, stranger_knows_nothing):
            each.check()
            assert not each.same.is_held
        [row] = [row for row in history.runs(scene.ledger) if row.state == "skipped"]
        assert (row.why, row.ticks >= 6) == ("restored: unknown", True)

    def test_what_is_planned_while_it_looks_is_not_missing(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        node = self.knowing(scene)
        before = node.what
        looks = same_ledger.standing

        def planned_meanwhile(*given: Any) -> LedgerStanding:
            seen = looks(*given)
            scene.change("UPDATE {schedule} SET planned_through = planned_through + %s", MINUTE_US)
            node.same.planned([("s", schedule(scene.ledger, "s").planned_through)])
            return seen

        monkeypatch.setattr(same_ledger, "standing", planned_meanwhile)
        node.check()
        node.connection.rest()
        node.connection.read(lambda cursor: cursor.execute("SELECT 1"))
        assert node.what == before

    def test_no_statement_is_made_on_a_new_connection_to_an_older_ledger(self, scene: Scene) -> None:
        node = self.knowing(scene)
        node.connection.rest()
        older(scene, MINUTE_US)
        with pytest.raises(LedgerHeld):
            node.connection.read(lambda cursor: cursor.execute("SELECT 1"))
        node.check()
        node.connection.read(lambda cursor: cursor.execute("SELECT 1"))

    def test_what_had_not_ended_in_the_dump_is_held_for_a_person(self, scene: Scene) -> None:
        scheduled(scene.ledger)
        queued, later = requests.enqueue(
            scene.ledger,
            [Requested("add", "manual"), Requested("add", "manual", available_at_us=scene.now_us() + MINUTE_US)],
        )
        running = scene.add_one("job")
        assert scene.claim_one(node="gone").run_id == running
        accept(scene.ledger, by="ann", reason=None)
        found = {row.id: (row.state, row.waits_for) for row in history.runs(scene.ledger)}
        assert found[queued.run_id] == found[running] == ("waiting", "person")
        assert found[later.run_id] == ("waiting", "time")
        requests.release_held(scene.ledger, queued.run_id)
        assert history.run(scene.ledger, queued.run_id).state == "queued"


def test_a_file_that_grows_old_in_place_is_the_same_evidence(scene: Scene) -> None:
    """VACUUM FULL, OPTIMIZE and a change of another table are no restore."""
    node = Seen(scene.ledger)
    words = {"postgresql": "VACUUM FULL {identity}", "mysql": "OPTIMIZE TABLE {identity}", "sqlite": "VACUUM"}
    with scene.connection.autocommit() as cursor:
        cursor.execute(words[scene.ledger.dialect.name].format(identity=scene.ledger.tables.name("identity")))
    node.check()
    assert not node.same.is_held


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_user_who_may_see_neither_the_server_nor_the_sequence_knows_its_ledger_by_the_rest(
    scene: Scene, postgres: Postgres
) -> None:
    Seen(scene.ledger)  # notes what the owner sees
    user = f"u{RUNTIME.new_id()[:10]}"
    with scene.connection.autocommit() as cursor:
        cursor.execute(f"CREATE ROLE {user} LOGIN")
        for table in scene.ledger.tables.all:
            cursor.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table.name} TO {user}")
        cursor.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    url = scene.ledger.url
    theirs = open_ledger(url.text.replace("postgres@", f"{user}@"), RUNTIME)
    try:
        node = Seen(theirs)
        assert not node.same.is_held
        with scene.connection.autocommit() as cursor:
            cursor.execute(f'UPDATE {scene.ledger.tables.name("identity")} SET evidence = \'{{"table": "1"}}\'')
        node.check()
        assert node.same.is_held
    finally:
        with scene.connection.autocommit() as cursor:
            cursor.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        Seen.close_all()
        theirs.close()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
class TestLeasesInAFileOfTheirOwn:
    def locks(self, url: str) -> Locks:
        locks = Locks(store_from_url(url, RUNTIME), runtime=RUNTIME)
        locks.start()
        return locks

    def test_with_other_leases_than_noted_nothing_is_claimed_until_somebody_accepts_them(
        self, url: str, tmp_path: Path
    ) -> None:
        with crew(url, [job(add)]) as made:
            made.node().stop(5)
            for file in tmp_path.glob("app.leases.db*"):
                file.unlink()
            made.node()
            until(lambda: is_held(made), 20, "the node sees that its leases are others")
            [asked] = ask(made)
            [told] = [event.reason or "" for event in made.events if event.what is What.LEDGER_HELD]
            assert "has its leases in another file than noted" in told
            assert "fencepost restored --accept" in told
            assert history.run(made.ledger, asked).state == "queued"
            locks = self.locks(url)
            noted, _ = locks.noted(LedgerMark(None, 0, 0)) or ("", None)
            locks.close()
            accept(made.ledger, by="ann", reason="the file was removed", leases=noted)
            until(seldom(lambda: history.run(made.ledger, asked).state == "succeeded"), 20, "work goes on")

    def test_a_file_that_was_overwritten_in_place_is_older_than_its_leases_know(self, url: str, tmp_path: Path) -> None:
        file, locks = tmp_path / "app.db", self.locks(url)
        ledger = open_ledger(url, RUNTIME)
        Seen(ledger, locks)
        Seen.close_all()
        ledger.close()
        before = file.read_bytes()
        scene = Scene(ledger)
        scene.change(f"UPDATE {ledger.tables.name('identity')} SET beat_at = beat_at + 1")
        Seen(ledger, locks)
        scene.close()
        Seen.close_all()
        ledger.close()
        file.write_bytes(before)
        assert Seen(ledger, locks).same.is_held
        Seen.close_all()
        ledger.close()
        locks.close()

    def test_what_another_node_does_while_one_starts_is_no_restore(self, url: str) -> None:
        locks, ledger = self.locks(url), open_ledger(url, RUNTIME)
        scene, asks = Scene(ledger), locks.noted
        other = Seen(ledger, locks)

        def late(mark: LedgerMark) -> tuple[str, LedgerMark] | None:
            scene.change(f"UPDATE {ledger.tables.name('identity')} SET beat_at = beat_at + 1")
            other.check()
            return asks(mark)

        locks.noted = late  # type: ignore[method-assign]
        starting = Seen(ledger, locks)
        assert starting.same.held_why is None
        scene.close()
        Seen.close_all()
        ledger.close()
        locks.close()

    def test_a_file_with_two_names_is_refused(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "app.db").hardlink_to(tmp_path / "app.db")
        with pytest.raises(LedgerRefused, match="has 2 names"):
            history.runs(open_ledger(url, RUNTIME))

    def test_a_link_leads_to_the_same_leases(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "link").mkdir()
        (tmp_path / "link" / "app.db").symlink_to(tmp_path / "app.db")
        with crew(url, [job(add)]) as made:
            first, second = made.node(), made.node(url=f"sqlite:///{tmp_path}/link/app.db")
            ask(made)
            made.until_state("succeeded", 1)
            assert not (tmp_path / "link" / "app.leases.db").exists()
            assert first.is_running
            assert second.is_running

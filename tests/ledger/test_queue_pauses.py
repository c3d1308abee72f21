"""Pauses of queues and of everything, and requests to drain: what is claimed meanwhile, on each database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import Table

from fencepost.core.runs import Requested
from fencepost.errors import InvalidParameters, NoSuchNode, StateChanged
from fencepost.ledger.claiming import KeyedClaims
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.draining import ask_to_drain, take_over_drain
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import look
from fencepost.ledger.nodes import NewNode, died, join, leave, living_nodes
from fencepost.ledger.queue_pauses import (
    EVERYTHING,
    QueuePause,
    end_queue_pauses,
    pause_of,
    pause_queue,
    queue_pauses,
    resume_queue,
)
from fencepost.ledger.serving import served
from tests.ledger.scene import HOUR_US, Scene, ending, waits

_VERSION = "1.0/0005/0001"


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def pause(scene: Scene, queue: str = EVERYTHING, until_us: int | None = None, reason: str = "why") -> None:
    pause_queue(scene.ledger, queue, by="ann", reason=reason, until_us=until_us)


def over(scene: Scene, queue: str) -> None:
    """Let the end of a pause have passed."""
    scene.change("UPDATE {pause} SET until = %s WHERE queue = %s", scene.now_us() - 1, queue)


def what_happened(scene: Scene) -> list[tuple[str, str | None]]:
    return [(each["what"], each["by"]) for each in scene.journal()]


class TestClaims:
    @pytest.mark.parametrize("key", [None, "key"])
    @pytest.mark.parametrize("queues", [("mail",), ("default", "mail")])
    def test_paused_queue_is_claimed_again_after_it_and_not_before(
        self, scene: Scene, key: str | None, queues: tuple[str, ...]
    ) -> None:
        pause(scene, "mail")
        run_id = scene.add_one(queue="mail", exclusive_key=key)
        assert scene.claim(queues=queues)[1:] == ([], [], [], False, 0)
        resume_queue(scene.ledger, "mail", by="ann")
        assert scene.claim_one(queues=queues).run_id == run_id

    @pytest.mark.parametrize("key", [None, "key"])
    def test_pause_of_everything_holds_for_every_queue(self, scene: Scene, key: str | None) -> None:
        ids = scene.add(*(Requested("job", "manual", queue=queue, exclusive_key=key) for queue in ("default", "mail")))
        pause(scene)
        for queues in (("default",), ("mail",), ("default", "mail")):
            assert scene.claim(queues=queues).claims == []
        assert scene.states(ids) == ["queued", "queued"]

    def test_other_queues_go_on(self, scene: Scene) -> None:
        pause(scene, "mail")
        pause(scene, "Default")
        ids = scene.add(*(Requested("job", "manual", queue=queue) for queue in ("mail", "default", "mai")))
        got = scene.claim(queues=("mail", "default", "mai")).claims
        assert [each.run_id for each in got] == [ids[1], ids[2]]

    def test_what_runs_goes_on_and_its_end_is_recorded(self, scene: Scene) -> None:
        run_id = scene.add_one()
        taken = scene.claim_one()
        pause(scene)
        scene.finish(ending(taken))
        assert scene.state(run_id) == "succeeded"

    def test_pause_is_over_at_its_end_though_nobody_removes_it(self, scene: Scene) -> None:
        run_id = scene.add_one()
        pause(scene, until_us=scene.now_us() + HOUR_US)
        assert scene.claim().claims == []
        over(scene, EVERYTHING)
        assert (queue_pauses(scene.ledger), pause_of(scene.ledger, "default")) == ([], None)
        assert scene.claim_one().run_id == run_id

    def test_claim_that_had_found_its_runs_before_the_pause_starts_none_of_them(self, scene: Scene) -> None:
        run_id = scene.add_one(exclusive_key="key")
        keyed = KeyedClaims(scene.statements, node="node", now_us=scene.now_us(), decide=waits, gate=None)
        pause(scene, "default")
        assert keyed.serve(scene.connection, [(run_id, "key")]).claims == []
        assert scene.state(run_id) == "queued"


class TestPauses:
    def test_second_pause_keeps_its_beginning_and_has_the_new_end_and_reason(self, scene: Scene) -> None:
        pause(scene, "mail", until_us=scene.now_us() + HOUR_US)
        [first] = queue_pauses(scene.ledger)
        pause(scene, "mail", reason="still")
        [second] = queue_pauses(scene.ledger)
        assert second == first._replace(until=None, reason="still")
        pause(scene, "mail", reason="still")
        assert what_happened(scene) == [("queue paused", "ann")] * 2

    def test_one_who_was_not_the_first_is_asked_again_about_what_is_there(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dialect, seen = scene.ledger.dialect, list[str | None]()
        insert = dialect.insert_row

        def too_late(cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
            insert(cursor, table, {**values, "by": "bob"})  # as one who commits while this one waits for the row
            return insert(cursor, table, values)

        def check(there: QueuePause | None) -> None:
            seen.append(there and there.by)
            if there is not None:
                raise StateChanged("it is paused")

        monkeypatch.setattr(dialect, "insert_row", too_late)
        with pytest.raises(StateChanged):
            pause_queue(scene.ledger, "mail", by="ann", reason="why", check=check)
        assert seen == [None, "bob"]
        assert what_happened(scene) == []

    def test_resuming_what_is_not_paused_does_nothing(self, scene: Scene) -> None:
        pause(scene, "mail")
        assert resume_queue(scene.ledger, EVERYTHING, by="bob") is None
        assert [each.queue for each in queue_pauses(scene.ledger)] == ["mail"]
        assert what_happened(scene) == [("queue paused", "ann")]

    def test_end_is_noted_once_by_nobody_and_the_next_one_is_told(self, scene: Scene) -> None:
        later_us = scene.now_us() + HOUR_US
        for queue, until_us in ((EVERYTHING, later_us), ("mail", later_us), ("night", None)):
            pause(scene, queue, until_us=until_us)
        over(scene, "mail")
        assert end_queue_pauses(scene.ledger, is_believed=lambda _: False) == later_us
        assert scene.rows("SELECT count(*) FROM {pause}") in ([(3,)], [[3]])
        assert [end_queue_pauses(scene.ledger) for _ in range(2)] == [later_us, later_us]
        assert [each.queue for each in queue_pauses(scene.ledger)] == [EVERYTHING, "night"]
        assert what_happened(scene)[3:] == [("queue resumed", None)]

    def test_pause_after_an_end_that_nobody_noted_begins_anew(self, scene: Scene) -> None:
        pause(scene, until_us=scene.now_us() + HOUR_US)
        scene.change("UPDATE {pause} SET paused_at = 1, until = 2")
        pause(scene)
        [found] = queue_pauses(scene.ledger)
        assert found.paused_at > 2
        words = [("everything paused", "ann"), ("everything resumed", None), ("everything paused", "ann")]
        assert what_happened(scene) == words

    def test_look_tells_how_many_last(self, scene: Scene) -> None:
        def count() -> int:
            return look(scene.connection, node="node", queues=("default",), jobs=("job",)).pauses

        pause(scene, "mail", until_us=scene.now_us() + HOUR_US)
        pause(scene)
        assert count() == 2
        over(scene, "mail")
        assert count() == 1


def add_node(scene: Scene, node: str, *, name: str = "", version: str = _VERSION) -> None:
    join(scene.ledger, NewNode(node, name or node, "grant", 1, 0, version, 1, ("default",), ("job",)))


class TestDraining:
    @pytest.mark.parametrize("key", [None, "key"])
    def test_node_that_was_asked_claims_nothing_and_serves_nothing(self, scene: Scene, key: str | None) -> None:
        add_node(scene, "n1")
        run_id = scene.add_one(exclusive_key=key)
        found = ask_to_drain(scene.ledger, "n1", by="ann", reason="why")
        assert (found.drain_by, found.drain_asked_at) == ("ann", found.draining_at)
        assert scene.claim(node="n1").claims == []
        assert not served(scene.connection).has("job", "default")
        add_node(scene, "n2")
        assert scene.claim_one(node="n2").run_id == run_id

    def test_it_learns_of_it_by_its_look(self, scene: Scene) -> None:
        for node in ("n1", "n2"):
            add_node(scene, node)
        ask_to_drain(scene.ledger, "n1", by="ann")
        asked = [look(scene.connection, node=n, queues=("default",), jobs=("job",)) for n in ("n1", "n2", "n3")]
        assert [each.drain_is_asked for each in asked] == [True, False, False]

    def test_second_request_changes_nothing(self, scene: Scene) -> None:
        add_node(scene, "n1")
        first = ask_to_drain(scene.ledger, "n1", by="ann")
        assert ask_to_drain(scene.ledger, "n1", by="bob") == first
        assert what_happened(scene) == [("node asked to drain", "ann")]

    def test_name_will_do_if_one_living_node_has_it(self, scene: Scene) -> None:
        for node in ("n1", "n2", "n3"):
            add_node(scene, node, name="host")
        with pytest.raises(InvalidParameters, match=r"host \(n1\), host \(n2\), host \(n3\)"):
            ask_to_drain(scene.ledger, "host", by="ann")
        leave(scene.ledger, "n1")
        scene.connection.write(lambda cursor: died(scene.ledger, cursor, "n2", "why"))
        assert ask_to_drain(scene.ledger, "host", by="ann").id == "n3"
        for gone in ("n1", "n2", "other"):
            with pytest.raises(NoSuchNode):
                ask_to_drain(scene.ledger, gone, by="ann")

    def test_name_of_the_machine_will_do_if_one_living_node_is_there(self, scene: Scene) -> None:
        for node, name in (("n1", "web-1:4711:5e0c"), ("n2", "web-2:1:a"), ("n3", "web-2:2:b")):
            add_node(scene, node, name=name)
        assert ask_to_drain(scene.ledger, "web-1", by="ann").id == "n1"
        with pytest.raises(InvalidParameters, match=r"web-2:1:a \(n2\), web-2:2:b \(n3\)"):
            ask_to_drain(scene.ledger, "web-2", by="ann")
        with pytest.raises(NoSuchNode):
            ask_to_drain(scene.ledger, "web", by="ann")

    def test_node_of_an_older_version_is_not_said_to_drain(self, scene: Scene) -> None:
        add_node(scene, "n1", version="0.9/0004/0001")
        with pytest.raises(InvalidParameters, match="SIGTERM"):
            ask_to_drain(scene.ledger, "n1", by="ann")
        assert [(each.drain_asked_at, each.draining_at) for each in living_nodes(scene.ledger)] == [(None, None)]

    def test_next_identity_of_a_process_takes_the_request_over(self, scene: Scene) -> None:
        for node in ("n1", "n2", "n3"):
            add_node(scene, node)
        ask_to_drain(scene.ledger, "n1", by="ann")
        take_over_drain(scene.ledger, "n2", former="n1", connection=scene.connection)
        take_over_drain(scene.ledger, "n3", former="gone", connection=scene.connection)
        asked = {each.id: each.drain_by for each in living_nodes(scene.ledger) if each.drain_asked_at is not None}
        assert asked == {"n1": "ann", "n2": "ann"}

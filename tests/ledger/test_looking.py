"""Looking: an idle node learns by one statement when there is something to do, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.runs import Requested
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look, cancels, look
from fencepost.ledger.running_runs import check, progress
from tests.ledger.scene import HOUR_US, Scene, ending
from tests.ledger.test_planning import add_schedule


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def seen(scene: Scene, *queues: str, node: str = "node") -> Look:
    return look(scene.connection, node=node, queues=queues or ("default",), jobs=("job", "other"))


def test_empty_ledger_has_nothing_to_do(scene: Scene) -> None:
    got = seen(scene)
    assert abs(got.now_us - scene.now_us()) < 60_000_000
    assert got[1:] == (None, None, None, 0, False, False, False, False, 0, 0, False)


def test_next_times_are_told(scene: Scene) -> None:
    now_us = scene.now_us()
    scene.add(
        Requested("job", "manual", available_at_us=now_us + 900_000, priority=5),
        Requested("job", "manual", available_at_us=now_us + 700_000),
        Requested("job", "manual", available_at_us=now_us + 800_000, queue="mail"),
        Requested("job", "manual", available_at_us=now_us + 100_000, queue="night"),
        Requested("job", "manual", available_at_us=now_us + HOUR_US),
        Requested("job", "manual", available_at_us=now_us + 2 * HOUR_US),
    )
    for name, due_at in (("a", now_us + 30), ("b", now_us + 20), ("c", None)):
        add_schedule(scene, name, due_at)
    got = seen(scene, "default", "mail")
    assert got[1:4] == (now_us + 700_000, now_us + 20, now_us + HOUR_US)
    assert seen(scene, "mail").next_available_at_us == now_us + 800_000


def test_what_is_due_hides_nothing_that_will_be(scene: Scene) -> None:
    later_us = scene.now_us() + 1_500_000
    scene.add(Requested("job", "manual"), Requested("other", "manual", available_at_us=later_us))
    got = seen(scene)
    assert (got.is_due, got.next_available_at_us) == (True, later_us)
    scene.claim_one()
    got = seen(scene)
    assert (got.is_due, got.next_available_at_us) == (False, later_us)


def test_what_is_not_for_the_node_is_not_to_be_done(scene: Scene) -> None:
    soon_us = scene.now_us() + 1_500_000
    scene.add(
        Requested("unknown", "manual"),
        Requested("unknown", "manual", available_at_us=soon_us),
        Requested("job", "manual", queue="night"),
    )
    got = seen(scene)
    assert (got.is_due, got.next_available_at_us) == (False, None)


def test_what_waits_for_a_key_or_runs_is_not_to_be_done(scene: Scene) -> None:
    scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
    scene.claim()
    got = seen(scene)
    assert got[1:4] == (None, None, None)
    assert got.keys_are_awaited


def test_mark_changes_when_a_node_comes_leaves_or_dies(scene: Scene) -> None:
    marks = [seen(scene).nodes_mark]
    for number, column in enumerate(("started_at", "left_at", "dead_at")):
        scene.change(
            "INSERT INTO {node} (id, name, generation, version, slots, queues, jobs, started_at) "
            "VALUES (%s, 'n', 0, '1', 1, '[]', '[]', 5)",
            str(number),
        )
        scene.change(f"UPDATE {{node}} SET {column} = %s WHERE id = %s", 100 + number, str(number))
        marks.append(seen(scene).nodes_mark)
    assert len(set(marks)) == 4


def test_only_the_node_that_runs_it_is_asked_to_stop_it(scene: Scene) -> None:
    scene.add_one()
    claimed = scene.claim_one()
    scene.add_one()
    scene.claim_one()
    scene.change("UPDATE {run} SET cancel_requested_at = 5 WHERE id = %s", claimed.run_id)
    assert seen(scene).cancels is True
    assert seen(scene, node="other").cancels is False
    assert cancels(scene.connection, node="node") == [(claimed.run_id, claimed.token)]
    assert cancels(scene.connection, node="other") == []
    scene.finish(ending(claimed, "cancelled", "cancelled"))
    assert seen(scene).cancels is False


def test_check_and_progress_compare_the_token(scene: Scene) -> None:
    run_id = scene.add_one()
    claimed = scene.claim_one()
    assert check(scene.connection, run_id=run_id, token=claimed.token)
    assert not check(scene.connection, run_id=run_id, token=claimed.token - 1)
    assert progress(scene.connection, run_id=run_id, token=claimed.token, fraction=0.25, note="a\x00b")
    assert progress(scene.connection, run_id=run_id, token=claimed.token, fraction=0.25, note="a\x00b")
    assert not progress(scene.connection, run_id=run_id, token=claimed.token + 1, fraction=0.5)
    run = scene.run(run_id)
    assert (run["progress"], run["progress_note"]) == (0.25, "a\ufffdb")
    scene.finish(ending(claimed))
    assert not check(scene.connection, run_id=run_id, token=claimed.token)
    assert not progress(scene.connection, run_id=run_id, token=claimed.token, fraction=1.0)


def test_look_is_one_statement(scene: Scene) -> None:
    statements: list[str] = []
    seen(scene)
    rows = scene.statements.rows
    scene.statements.rows = lambda cursor, template, *given: (
        statements.append(template) or rows(cursor, template, *given)
    )  # type: ignore[method-assign]
    try:
        seen(scene)
    finally:
        del scene.statements.rows
    assert len(statements) == 1

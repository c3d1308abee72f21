"""What it costs to look for late runs does not depend on what has ended.

The tables are this test's own, and nobody but it analyzes them: in tables that others had filled and emptied,
PostgreSQL now and then met the 250 dead rows that a test before had left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.ledger import migrations
from fencepost.ledger.lateness import note_late
from fencepost.ledger.ledger import Ledger
from testbed.postgres import Postgres
from tests.ledger.scene import Scene
from tests.ledger.test_plans import LITTLE, MUCH, analyze, fill
from tests.ledger.work_meter import metered


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(settings={"fsync": "off", "autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def scene(bare_url: str, opened: Callable[[str], Ledger]) -> Iterator[Scene]:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    scene = Scene(ledger)
    yield scene
    scene.close()


def test_cost_does_not_grow_with_what_is_finished(scene: Scene) -> None:
    def cost() -> int:
        scene.add_one(sla_us=1, due_at_us=5)
        with metered(scene.connection) as meter:
            for _ in range(2):
                work = meter.work(lambda: note_late(scene.connection, jobs=["job"]))
        return work

    fill(scene, LITTLE)
    analyze(scene)
    little = cost()
    fill(scene, MUCH)
    analyze(scene)
    assert cost() <= little * 1.5 + 40

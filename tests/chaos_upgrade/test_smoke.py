"""A rolling upgrade in short: one node of the older version, one of today, and all that both do is judged."""

from __future__ import annotations

import pytest

from fencepost.proof.chaos.course import ChaosOptions, Course
from fencepost.proof.chaos.namespace import namespace, new_prefix
from testbed import older
from testbed.postgres import Postgres
from tests.chaos.test_course import PROMPTNESS
from tests.chaos_upgrade.upgrading import RUNTIME, Upgrade


@pytest.fixture
def old_python() -> str:
    return str(older.python())


@pytest.mark.timeout(300)
def test_nodes_of_two_versions_keep_every_promise_through_an_upgrade_and_back(old_python: str) -> None:
    said: list[str] = []
    upgrade = Upgrade(("node-1", "contender-1"), ("node-2", "contender-2"))
    with Postgres(settings={"fsync": "off"}) as server:
        wishes = ChaosOptions(
            nodes=2,
            contenders=2,
            workers=3,  # enough for all that is due, also while one node of the two is away and the machine is busy
            seconds=6.0,
            ttl_s=1.5,
            seed=3,
            gap_s=2.0,
            pythons=dict.fromkeys(upgrade.old, old_python),
            absent=upgrade.new,
            acts=upgrade.acts_in_short,
            make_tables=upgrade.make_tables,
        )
        space = namespace(ledger=server.url, store=None, prefix=new_prefix(RUNTIME))
        outcome = Course(space, wishes, RUNTIME, said.append).run()
    assert [each for each in outcome.violations if each.checker not in PROMPTNESS] == [], said
    assert upgrade.shares["both versions"]["old"] > 0
    assert upgrade.shares["the way back"]["old"] > 0

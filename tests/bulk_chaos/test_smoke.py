"""A small part of ``make chaos-bulk``: a node dies in the middle of eight partitions, then there are a few more kills.

The other two nodes have a worker for each of its partitions, so that it is the takeover alone that takes time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bulk_chaos.__main__ import Verdict, chaos
from tests.bulk_chaos.course import Wishes

PLACE, TTL_S = "sqlite+postgres", 3.0
WISHES = Wishes(rows=12_000, kills=5, chunk=20, gap_s=0.7, workers=4, ttl_s=TTL_S, seed=19, begins_with_a_death=True)
TRIES = 3  # a takeover takes longer on a machine that has far too much to do

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    return chaos(PLACE, WISHES, tmp_path_factory.mktemp("bulk"), says=False)


def test_killed_workers_and_supervisors_leave_each_effect_once(verdict: Verdict) -> None:
    assert verdict.violations == []
    assert len(verdict.landed.letters) == 2
    assert sum(verdict.redone.by_process.values()) > 0


def test_the_partitions_of_a_dead_node_go_on_within_its_ttl_and_two_seconds(verdict: Verdict, tmp_path: Path) -> None:
    for number in range(1, TRIES + 1):
        took_s = [each.took_s for each in verdict.takeovers if each.kill == verdict.story.kills[0]]
        assert len(took_s) >= 2
        if max(took_s) <= TTL_S + 2.0 or number == TRIES:
            break
        folder = tmp_path / str(number)
        folder.mkdir()
        verdict = chaos(PLACE, Wishes(**{**vars(WISHES), "kills": 1}), folder, says=False)
    assert max(took_s) <= TTL_S + 2.0

"""A small part of ``make chaos-bulk``: a few kills; a node that dies; and bugs that must not go unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bulk_chaos import node_death
from tests.bulk_chaos.__main__ import chaos
from tests.bulk_chaos.course import Wishes
from tests.bulk_chaos.places import opened

TTL_S = 3.0


@pytest.mark.timeout(240)
def test_killed_workers_and_supervisors_leave_each_effect_once(tmp_path: Path) -> None:
    wishes = Wishes(rows=12_000, kills=6, chunk=100, gap_s=0.8, ttl_s=TTL_S, seed=4)
    verdict = chaos("sqlite+postgres", wishes, tmp_path, says=False)
    assert verdict.violations == []
    assert len(verdict.landed.letters) == 2
    assert verdict.redone.by_process


@pytest.mark.timeout(240)
def test_the_partitions_of_a_dead_node_are_taken_over_within_its_ttl_and_two_seconds(tmp_path: Path) -> None:
    with opened("postgres", tmp_path) as place:
        _, found = node_death.killed(place, tmp_path, ttl_s=TTL_S)
    assert len(found) >= 2
    assert max(each.took_s for each in found) <= TTL_S + 2.0

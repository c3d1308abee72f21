"""Real nodes are killed at random: each due time ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import killing

TTL_S = 3.0


@pytest.mark.timeout(240)
def test_nodes_killed_at_random_leave_each_due_time_with_one_outcome(ledger_url: str, tmp_path: Path) -> None:
    found = killing.run(ledger_url, seconds=20, every_s=5, folder=tmp_path, ttl=f"{TTL_S}s")
    assert found.missing == []
    assert found.twice == []
    assert found.due >= 150
    assert found.states["succeeded"] >= 100

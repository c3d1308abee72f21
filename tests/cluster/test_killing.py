"""Real nodes are killed at random: each due time ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.testing import until
from tests.cluster import killing
from tests.cluster.nodes import command, nodes, rarely

TTL_S = 5.0  # a busy machine lets a process wait for longer than a short one


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_runs_that_kill_their_worker_or_their_node_are_dead_after_the_crash_limit(
    ledger_url: str, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    with nodes(
        *(1, ledger_url, "--ttl", "2s", "--workers", "1"),
        app="tests.cluster.killing_app:app",
        folder=tmp_path,
        env={"NODE_PID": str(pid)},
    ) as [node]:
        pid.write_text(str(node.pid))
        for name in ("kill_worker", "kill_node"):
            run_id = command(ledger_url, "trigger", name)["run"]

            def is_dead(run_id: int = run_id) -> bool:
                assert node.process is not None
                if node.process.poll() is not None:
                    node.start()
                    pid.write_text(str(node.pid))
                return command(ledger_url, "show", str(run_id))["state"] == "dead"

            until(rarely(is_dead), 100, f"the run of {name} is given up")
            shown = command(ledger_url, "show", str(run_id))
            assert (shown["error_code"], shown["crashes"], len(shown["ended_attempts"])) == ("crash_limit", 2, 2)


@pytest.mark.timeout(240)
def test_nodes_killed_at_random_leave_each_due_time_with_one_outcome(ledger_url: str, tmp_path: Path) -> None:
    found = killing.run(ledger_url, seconds=12, every_s=4, folder=tmp_path, ttl=f"{TTL_S}s", workers=1)
    assert found.missing == []
    assert found.twice == []
    assert found.due >= 90
    assert found.states["succeeded"] >= 20

"""Whole clusters on virtual time: a smoke of many seeds, and that the simulator itself can be trusted."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from fencepost.fence.databases import Sqlite
from fencepost.testing.simulation import FAULTS, SimulatedFault, scenario, simulate
from fencepost.testing.simulation.command import main
from fencepost.testing.simulation.connections import SimulatedServer
from fencepost.testing.simulation.hub import Hub, Process
from fencepost.testing.simulation.kept import KeptSeed, keep, kept_in, shrunk
from fencepost.testing.simulation.ledger_file import effects_file
from fencepost.testing.simulation.lives.plan import ACTS, AWAITED, is_life, life
from fencepost.testing.simulation.weather import COMMIT, LATE, LEDGER, Shot, Weather

KEPT = Path(__file__).with_name("kept.jsonl")
SMOKE = 60  # of the thousands that `make simulate` plays
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken(part):
    found = [
        f"seed {outcome.seed}: {outcome.violations[0]}"
        for seed in range(part, SMOKE, PARTS)
        if (outcome := simulate(seed)).violations
    ]
    assert not found


def test_what_once_failed_does_not_fail_again():
    found = [f"{kept.seed}: {kept.found}" for kept in kept_in(KEPT) if kept.replay().violations]
    assert not found


def test_a_seed_gives_one_trace_in_every_process():
    here = {seed: simulate(seed).trace_hash for seed in range(8)}
    program = (
        "from fencepost.testing.simulation import simulate\n"
        "print(*(simulate(seed).trace_hash for seed in reversed(range(8))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    there = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert list(here.values()) == there.stdout.split()[::-1]


def test_another_seed_gives_another_trace():
    assert len({simulate(seed).trace_hash for seed in range(5)}) == 5


def an_open_fence():
    """Let writers through whose run is somebody else's by now."""
    return mock.patch.multiple(Sqlite, reads=lambda *_: True, check=lambda *_: True)


def test_a_fence_that_lets_everybody_through_is_found_out():
    # Seed 347 finds it today; most seeds have no writer that is late at the wrong moment.
    outcomes = (simulate(seed, patch=an_open_fence) for seed in range(345, 600))
    found = next(each for each in outcomes if "no stale write" in {violation.checker for violation in each.violations})
    smallest = shrunk(found, patch=an_open_fence)
    assert smallest.violations
    assert len(smallest.plan.faults) <= len(found.plan.faults)
    assert not simulate(found.seed).violations


def test_a_late_commit_happens_after_its_sender_has_given_up():
    """It came half a second later at most, and the sender waits for longer: mostly it had not given up yet."""
    for number in range(20):
        hub, weather, file = Hub(number), Weather(), effects_file()
        file.empty()
        server = SimulatedServer(hub, file, weather, latency_s=0.001, timeout_s=2 / 3)
        seen: list[str] = []
        weather.aim(0, LEDGER, Shot(LATE, at=COMMIT))
        hub.spawn(Process("node", 1), "sender", lambda: _send(server, seen))  # noqa: B023 - it runs in here
        hub.spawn(Process("world", 0), "observer", lambda: _observe(server, seen))  # noqa: B023 - as above
        hub.run(5)
        hub.over()
        assert hub.failures == []
        assert seen == ["given up", "there"]


def _send(server, seen):
    connection = server.connect(Process("node", 1), 0)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO sim_input (id) VALUES (1)")
    with pytest.raises(sqlite3.Error):
        connection.commit()
    seen.append("given up")


def _observe(server, seen):
    while True:
        server.hub.wait(0.005)
        with server.file.connected() as connection:
            if connection.execute("SELECT id FROM sim_input").fetchall():
                seen.append("there")
                return


def test_without_faults_there_is_nothing_to_find():
    outcome = simulate(2, kinds=frozenset())
    assert not outcome.violations
    assert outcome.plan.faults == ()
    assert outcome.counts["runs"] > 10


def test_every_kind_of_fault_is_drawn():
    drawn = {fault.kind for seed in range(300) for fault in scenario(seed).faults}
    assert drawn == set(FAULTS)


def test_every_kind_of_act_is_drawn_in_lives():
    drawn = {act.kind for seed in range(1000) if is_life(seed) for act in life(seed).faults}
    assert drawn == set(ACTS) - set(AWAITED)


def test_lives_have_programs_beside_each_other_and_ledgers_beside_each_other():
    drawn = [tuple(program.ledger for program in life(seed).programs) for seed in range(1000) if is_life(seed)]
    assert set(drawn) == {(0,), (0, 0), (0, 1)}


def test_some_clusters_have_leases_by_a_clock_that_is_set():
    drawn = [scenario(seed) for seed in range(100)]
    assert 15 <= len([plan for plan in drawn if plan.is_stepped]) <= 35
    assert all(fault.kind != "server step" for plan in drawn if not plan.is_stepped for fault in plan.faults)


def test_a_life_without_acts_lasts_for_weeks_and_its_history_is_pruned():
    outcome = simulate(5, kinds=frozenset())
    assert not outcome.violations
    assert outcome.counts["days"] > 20
    assert outcome.evidence.notes["pruned"] > 0


def test_some_clusters_have_bulk_work_of_every_kind():
    drawn = [work for seed in range(300) if (work := scenario(seed).bulk) is not None]
    assert 40 <= len(drawn) <= 60
    for kind in ("is_far", "is_settling", "is_scheduled", "is_hopeless", "over", "partitions", "read_ahead"):
        assert len({getattr(work, kind) for work in drawn}) > 1, kind


def test_bulk_work_without_faults_is_done():
    for seed in (1, 7, 13):
        outcome = simulate(seed, kinds=frozenset())
        assert not outcome.violations
        is_hopeless = outcome.plan.bulk.is_hopeless
        assert all(bulk["finished"] or is_hopeless for bulk in outcome.evidence.notes["bulk"])


def test_what_is_kept_is_read_back_and_kept_once(tmp_path):
    one = KeptSeed(
        7,
        (SimulatedFault(1.5, "kill", slot=1, length_s=0.5), SimulatedFault(2.0, "clock step", amount=-3.0)),
        "something",
    )
    path = tmp_path / "kept.jsonl"
    keep(path, one)
    keep(path, one)
    assert list(kept_in(path)) == [one]


def test_the_command_counts_and_ends_well(capsys):
    assert main(["--seeds", "0:4", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "4 seeds in" in said
    assert "0 seeds broke a promise" in said


def test_the_command_tells_one_seed(capsys):
    assert main(["--seed", "3", "-v"]) == 0
    assert "seed 3: 0 violations" in capsys.readouterr().out

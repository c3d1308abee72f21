"""Chaos in short: on a server of its own, and on a file by the command; whatever happens, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.proof.chaos.course import ChaosOptions, Course
from fencepost.proof.chaos.faults import FaultKind
from fencepost.proof.chaos.namespace import namespace, new_prefix
from fencepost.proof.chaos.rolling import rolling
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from testbed.postgres import Postgres
from tests.chaos.owned import Owned
from tests.chaos.test_namespace import names_in

RUNTIME = ThreadedRuntime()
PROMPTNESS = ("prompt start", "takeover")  # is measured where nothing else runs


@pytest.fixture
def owned() -> Iterator[Owned]:
    server = Owned(Postgres(settings={"fsync": "off"}))
    yield server.start()
    server.close()


@pytest.mark.timeout(240)
def test_every_promise_is_kept_while_nodes_holders_networks_and_the_server_fail(owned: Owned) -> None:
    said: list[str] = []
    space = namespace(ledger=owned.url, store=None, prefix=new_prefix(RUNTIME))
    acts = rolling(["node-1"], rounds=1)
    wishes = ChaosOptions(nodes=2, contenders=2, seconds=6.0, ttl_s=1.5, seed=7, gap_s=0.4, servers=[owned], acts=acts)
    outcome = Course(space, wishes, RUNTIME, said.append).run()
    assert [each for each in outcome.violations if each.checker not in PROMPTNESS] == [], said
    assert len(outcome.faults) >= 8
    assert len(outcome.by_kind) >= 4
    assert outcome.by_kind["away"] == 1
    assert outcome.fires.ran >= 20
    assert outcome.grants >= 5
    assert outcome.effects >= 20
    assert names_in(owned.url) == set()


@pytest.mark.timeout(240)
def test_interrupted_it_ends_the_faults_and_interrupted_again_it_ends_at_once_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    log = tmp_path / "said"
    words = [
        "chaos",
        "--ledger",
        f"sqlite:///{tmp_path}/app.db",
        "--nodes",
        "2",
        "--ttl",
        "2s",
        "--seed",
        "3",
        "--json",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", *words], env=environment, stdout=subprocess.PIPE, stderr=said, text=True
        )
    until(lambda: any(str(kind) in log.read_text().partition("\n")[2] for kind in FaultKind), 60, "the first fault")
    process.send_signal(signal.SIGTERM)
    until(lambda: "what happened is checked" in log.read_text(), 30, "the faults end")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert [path.name for path in tmp_path.iterdir()] == ["said"]

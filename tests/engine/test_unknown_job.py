"""New code on disk under a running node: the workers lack a job that the node was started with."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.events import What
from fencepost.core.timings import Timings
from fencepost.engine import withdrawing
from fencepost.engine.runners.process import ProcessRunner
from fencepost.engine.runners.runner import Runner
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.history import attempts
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import living_nodes, serve
from fencepost.testing import until
from tests.engine.crew import RUNTIME, TTL, Crew, job, seldom

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def nothing() -> None:
    """The workers' application has a job of this name, too."""


def ghost() -> None:
    """It has none of this name."""


class Deployed(Crew):
    """Nodes whose workers load another application than they themselves have."""

    def runners(self, ledger: Ledger, url: str, slots: int) -> dict[str, Runner]:
        emit = self.events.append
        return {
            "sync": ProcessRunner("tests.engine.shop:app", slots=1, timings=Timings.of(TTL), runtime=RUNTIME, emit=emit)
        }


def test_the_ledger_is_told_though_it_did_not_answer_at_first(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def not_at_first(*given: Any, **more: Any) -> None:
        asked.append("once")
        if len(asked) == 1:
            raise LedgerUnavailable("away")
        serve(*given, **more)

    monkeypatch.setattr(withdrawing, "serve", not_at_first)
    made = Deployed(ledger_url, [job(nothing), job(ghost)])
    try:
        made.node()
        made.enqueue("ghost")
        until(seldom(lambda: living_nodes(made.ledger)[0].jobs == ("nothing",)), 30, "the ledger knows it")
    finally:
        made.close()


def test_run_of_a_job_that_the_workers_lack_goes_back_and_the_node_takes_no_more_of_them(ledger_url: str) -> None:
    made = Deployed(ledger_url, [job(nothing), job(ghost)])
    try:
        node = made.node()
        [first] = made.enqueue("ghost")

        def is_told() -> bool:
            [row] = living_nodes(made.ledger)
            return row.jobs == ("nothing",)

        until(seldom(is_told), 30, "the ledger knows that this node cannot run it")
        [second] = made.enqueue("ghost")
        [known] = made.enqueue("nothing")
        node.wake()
        made.until_state("succeeded", 1)
        states = {row.id: (row.state, row.attempts) for row in made.runs()}
        assert states == {first: ("queued", 0), second: ("queued", 0), known: ("succeeded", 1)}
        assert attempts(made.ledger, first) == []
        [warning] = [event for event in made.events if event.what is What.RUNNER_WARNING]
        assert warning.job == "ghost"
        assert "Restart the node" in (warning.reason or "")
    finally:
        made.close()

"""People at the simulated cluster: they ask for runs, cancel, repeat, and hold schedules. They repeat what failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.app.operations import Operations
from fencepost.core.rights import Scope
from fencepost.errors import DuplicateRequest, FencepostError, LedgerUnavailable
from fencepost.ledger import history, schedules
from fencepost.ledger.history import RunFilter
from fencepost.proof.history import EntryKind
from fencepost.testing.simulation.bulk import params_of
from fencepost.testing.simulation.cluster import Cluster
from fencepost.testing.simulation.scenario import LOAD

_BY = "ann"
_ACCOUNTS = ("a", "b")


class Operators:
    """What people do, each act on a task of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hub = cluster.hub
        self._operations = Operations(cluster.connection, Scope.direct())

    def begin(self) -> None:
        """Ask for runs now and then, some of them twice under one key."""
        for number, at in enumerate(self._cluster.plan.requests):
            account = _ACCOUNTS[number % 2]
            self._at(at, partial(self._ask, "account", f"key-{number // 2}", {"account": account}))
            if number % 2:
                self._at(at + 0.01, partial(self._ask, "account", f"key-{number // 2}", {"account": account}))
        bulk = self._cluster.plan.bulk
        if bulk is not None:
            for number, at in enumerate(bulk.asked):
                self._at(at, partial(self._ask, LOAD, f"load-{number}", params_of(bulk, f"asked {number}")))

    def press(self, word: str, job: str, number: int) -> None:
        """Do one thing, on a task of the caller."""
        try:
            match word:
                case "trigger" if not self._is_used_up(job):
                    self._operations.trigger(job, self._params(job, number), by=_BY, again=number == 0)
                case "cancel":
                    self._of_newest(job, ("queued", "running", "waiting"), number, self._operations.cancel)
                case "retry":
                    self._of_newest(job, ("succeeded", "dead", "skipped"), number, self._operations.retry)
                case "hold":
                    schedules.pause(self._cluster.connection, job, by=_BY)
        except LedgerUnavailable:
            return
        except FencepostError:
            return

    def _is_used_up(self, job: str) -> bool:
        """Whether the input of a job is not there a second time."""
        bulk = self._cluster.plan.bulk
        return job == LOAD and bulk is not None and bulk.is_settling

    def _params(self, job: str, number: int) -> dict[str, Any]:
        if job == LOAD and self._cluster.plan.bulk is not None:
            return params_of(self._cluster.plan.bulk, f"triggered at {self._hub.now:.6f}")
        return {"account": _ACCOUNTS[number % 2]} if job == "account" else {}

    def let_go(self, job: str) -> None:
        """Resume a schedule, until that was answered."""
        while True:
            try:
                schedules.resume(self._cluster.connection, job, by=_BY)
            except LedgerUnavailable:
                self._hub.wait(0.3)
            except FencepostError:
                return
            else:
                return

    def _of_newest(self, job: str, states: tuple[str, ...], number: int, act: Callable[..., Any]) -> None:
        found = history.runs(self._cluster.connection, RunFilter(job=job, states=states), limit=3)
        if found:
            act(found[min(number, len(found) - 1)].id, by=_BY)

    def _ask(self, job: str, key: str, params: dict[str, Any]) -> None:
        history, hub = self._cluster.history, self._hub
        payload = f"{job} {sorted(params.items())}"
        for _ in range(20):
            call = history.invoke(hub.now, "request", "operator", name=key, detail={"payload": payload})
            try:
                made = self._operations.enqueue(job, params, key=key)
            except DuplicateRequest:
                history.end(
                    call, hub.now, EntryKind.REFUSED, "request", "operator", name=key, detail={"why": "payload"}
                )
                return
            except LedgerUnavailable:
                history.end(call, hub.now, EntryKind.UNKNOWN, "request", "operator", name=key)
                hub.wait(0.3)
                continue
            except FencepostError:
                history.end(call, hub.now, EntryKind.REFUSED, "request", "operator", name=key)
                hub.wait(0.3)
                continue
            history.end(call, hub.now, EntryKind.OK, "request", "operator", name=key, detail={"run": made.run_id})
            return

    def _at(self, at: float, act: Callable[[], None]) -> None:
        hub = self._hub

        def do() -> None:
            hub.wait(max(at - hub.now, 0.0))
            act()

        hub.spawn(self._cluster.connection.runtime.process, "person", do)  # type: ignore[attr-defined]

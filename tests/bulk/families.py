"""A parent and its parts: one that is lost, and one that works beside the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fencepost import App
from fencepost.bulk import conducting
from fencepost.core.runs import StopReason
from fencepost.testing import until
from tests.bulk.orders import Shop, Told, hand


def part_of(one: Any, handle: Any) -> Any:
    """Claim a part; wait for one to be there."""
    return until(lambda: one.claim([handle.name + "/part"]), 10, "there is a part to be claimed")


def lost_parent(shop: Shop, handle: Any, *, is_at_work: bool = False) -> tuple[int, Any]:
    """Begin a run, lose it before its first chunk lands, or after its own partition, and claim one of its parts."""
    told = Told()
    run_id = handle.enqueue().run_id
    careful = conducting.PartitionRuns._work
    with hand(shop, standing=told) as one:
        claimed = one.claim([handle.name])
        assert claimed is not None

        def stop(self: Any, number: int) -> None:
            if is_at_work:
                careful(self, number)
            told.why = StopReason.SHUTDOWN
            one.run(claimed).check()

        conducting.PartitionRuns._work = stop  # type: ignore[method-assign]
        try:
            one.end(claimed, one.execute(claimed))
        finally:
            conducting.PartitionRuns._work = careful  # type: ignore[method-assign]
        told.why = None
        return run_id, part_of(one, handle)


class beside:  # noqa: N801 - reads as a word
    """A run in the hands of somebody else, on a thread. With `until_asked`, it stands still in its own partition."""

    def __init__(self, shop: Shop, run_id: int, until_asked: Any = None) -> None:
        self._shop = shop
        self._run_id = run_id
        self._handle = until_asked
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.trouble: BaseException | None = None

    def _work(self) -> None:
        try:
            with hand(self._shop) as one:
                if self._handle is not None:
                    _hold_first(one.app, self._handle, self._go)
                one.play(self._run_id, jobs=[self._shop.app.operations.run(self._run_id).job])
        except BaseException as error:  # noqa: BLE001 - for the test
            self.trouble = error

    def go(self) -> None:
        self._go.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)
        assert self.trouble is None, self.trouble
        assert not self._thread.is_alive()

    def __enter__(self) -> beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._thread.join(20)


def _hold_first(app: App, handle: Any, go: threading.Event) -> None:
    """Let the parent stand still before its own partition, once its parts are asked for."""
    job = app.jobs[handle.name]
    conduct = job.function

    def held(**params: Any) -> Any:
        careful: Callable[..., Any] = conducting.PartitionRuns._work

        def work(self: Any, number: int) -> None:
            go.wait(20)
            conducting.PartitionRuns._work = careful  # type: ignore[method-assign]
            careful(self, number)

        conducting.PartitionRuns._work = work  # type: ignore[method-assign]
        return conduct(**params)

    app.jobs._jobs[handle.name] = replace(job, function=held)

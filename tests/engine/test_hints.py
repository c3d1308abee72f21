"""Hints bring a claim forward. However many come, they never put one off."""

from pathlib import Path

from fencepost import App
from fencepost.testing.waiting import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


def test_a_run_is_claimed_though_hints_never_cease(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/ledger.db", ttl="10s")

    @app.job
    def add(a: int) -> int:
        return a + 1

    stop = RUNTIME.event()

    def hint() -> None:
        while not stop.wait(0.005):
            app.wake()

    with app.running(grace="5s"):
        hinting = RUNTIME.spawn("hinting", hint)
        try:
            run_ids = [add.enqueue(n).run_id for n in range(5)]
            until(
                lambda: all(app.operations.run(each).state == "succeeded" for each in run_ids), 30, "all have succeeded"
            )
        finally:
            stop.set()
            hinting.join(30)
    app.close()

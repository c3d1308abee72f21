"""A node in a process of its own that is to be killed: it writes the figures of 20 runs, and not those of 7."""

from __future__ import annotations

import sys

from fencepost import App
from fencepost.engine import figure_writer
from fencepost.testing import until


def main(url: str) -> None:
    figure_writer.EVERY_S = 0.1
    app = App(url)

    @app.job
    def work() -> None: ...

    app.start()
    for count in (20, 27):
        for _ in range(count - len(app.operations.runs(states=["succeeded"]))):
            work.enqueue()
        until(lambda count=count: len(app.operations.runs(states=["succeeded"])) == count, 30, "they have run")
        if count == 20:
            until(lambda: app.operations.figures("work")[0].outcomes.succeeded == 20, 30, "they are written")
            figure_writer.EVERY_S = 3600.0
            app.runtime.sleep(0.3)  # a step that is under way ends
    print("ready", flush=True)
    sys.stdin.read()


main(sys.argv[1])

"""A supervisor to be stopped or killed: two workers, each with a deaf job, and trust for a few seconds at a time.

``python -m tests.engine.supervisor FOLDER TTL`` writes until when it may act, and at the end what became of its runs.
"""

import sys
from pathlib import Path

from fencepost.core.timings import Timings
from fencepost.engine.runners.process import ProcessRunner
from tests.engine.runner_stand import RUNTIME, Stand
from tests.engine.shop import say


def main() -> None:
    folder, timings = Path(sys.argv[1]), Timings.of(sys.argv[2])
    stand = Stand(ProcessRunner("tests.engine.shop:app", slots=2, timings=timings, runtime=RUNTIME))
    RUNTIME.spawn("heartbeat", lambda: keep_trust(stand, timings, folder))
    stand.start(slots=2, trust_s=timings.trust_s)
    for name in ("a", "b"):
        stand.submit("deaf", path=str(folder / name))
    while len(stand.outcomes) < 2:
        RUNTIME.sleep(0.05)
        stand.collect()
    say(str(folder / "outcomes"), ", ".join(outcome.how for outcome in stand.outcomes.values()))
    stand.runner.close(0)


def keep_trust(stand: Stand, timings: Timings, folder: Path) -> None:
    until_at = float("inf")
    while RUNTIME.monotonic() < until_at:  # a lease whose trust ended is not renewed
        until_at = RUNTIME.monotonic() + timings.trust_s
        say(str(folder / "until"), until_at)
        stand.runner.trust(until_at)
        RUNTIME.sleep(0.05)
    stand.runner.lose()


if __name__ == "__main__":
    main()

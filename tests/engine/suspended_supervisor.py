"""A supervisor to be stopped or killed: one worker with a fenced run, and trust for a few seconds at a time.

``python -m tests.engine.suspended_supervisor FOLDER`` ends when its run has.
"""

import sys
from pathlib import Path

from tests.engine.runner_stand import RUNTIME, Stand
from tests.engine.shop import say
from tests.engine.test_suspension import make_runner


def main() -> None:
    folder = Path(sys.argv[1])
    stand = Stand(make_runner("process", None))
    RUNTIME.spawn("heartbeat", lambda: keep_trust(stand, folder))
    stand.start(slots=2, trust_s=3.0)
    outcome = stand.outcome(stand.submit("checks", folder=str(folder)), 120.0)
    say(str(folder / "outcome"), outcome.how)
    stand.runner.close(0)


def keep_trust(stand: Stand, folder: Path) -> None:
    while True:
        say(str(folder / "until"), stand.trust(3.0))
        RUNTIME.sleep(0.05)


if __name__ == "__main__":
    main()

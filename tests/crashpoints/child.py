"""A process that plays a path and ends in the middle of it: really, by `os._exit`.

It reads a play per line from its standard input, forks a child for it, and writes how that ended. It has opened nothing
itself, so its children inherit nothing.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict
from typing import Any

from tests.crashpoints.grounds import Ground
from tests.crashpoints.points import EXITED, POINTS, Way


class Exits:
    """The process, as whoever plays sees it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def play(self, ground: Ground, path: str, number: int) -> bool:
        """Play `path` in a process that exits at this point; False if it never came there."""
        return self._ended({"ground": asdict(ground), "path": path, "number": number}) == EXITED

    def supervise(self, ground: Ground, name: str, number: int, notes: str) -> bool:
        """Play messages in a process that is killed at this one; False if it never came there."""
        play = {"ground": asdict(ground), "messages": name, "number": number, "notes": notes}
        return self._ended(play) == -signal.SIGKILL

    def _ended(self, play: dict[str, Any]) -> int:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(play) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        assert status in (0, EXITED, -signal.SIGKILL), f"{play}: it ended with status {status}"
        return status

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(timeout=60)  # it only has to end, which takes long on a busy machine
            except subprocess.TimeoutExpired:  # what it played was judged already: it is only in the way
                process.kill()
                process.communicate()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.crashpoints.child"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process


def _play(play: dict[str, Any]) -> None:
    if "messages" in play:
        from tests.crashpoints.messages import supervise_until

        supervise_until(Ground(**play["ground"]), play["messages"], play["notes"], play["number"])
        return
    from tests.crashpoints.drivers import watched
    from tests.crashpoints.paths import PATHS
    from tests.crashpoints.world import world

    path = PATHS[play["path"]]
    with watched(), world(Ground(**play["ground"])) as made:
        path.prepare(made)
        POINTS.arm(play["number"], Way.EXIT)
        path.act(made)
        POINTS.disarm()


def main() -> None:
    import tests.crashpoints.drivers
    import tests.crashpoints.paths  # noqa: F401 - once, not in each child

    gc.freeze()  # a collection in a child would copy the pages of all that it has from here
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                _play(json.loads(line))
            except BaseException:  # noqa: BLE001 - whoever reads the status wants to know why
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()

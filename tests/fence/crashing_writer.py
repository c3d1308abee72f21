"""Writes a file through its fence again and again, each time killed one step later, and tells what was left.

A step is a call that the file system can see. Run as a program of its own, because it forks.
"""

import fcntl
import json
import os
import signal
import sys
from pathlib import Path

from fencepost.core.fencing import FencingToken
from fencepost.fences import file_mark, write_fenced

OLD, NEW = "old " * 50_000, "new " * 60_000
STEPS = [(os, name) for name in ("open", "fsync", "pwrite", "replace", "close", "unlink")] + [(fcntl, "flock")]


def token(number: int) -> FencingToken:
    return FencingToken("job:report", number, f"grant-{number}", f"node-{number}")


def die_before(step: int) -> None:
    """From now on, kill this process when it is about to take its step number `step`."""
    taken = 0

    def counted(call):
        def counting(*arguments, **options):
            nonlocal taken
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counting

    for module, name in STEPS:
        setattr(module, name, counted(getattr(module, name)))


def crash(path: Path, step: int) -> bool:
    """Write in a child that dies before `step`; False if it was done before that."""
    child = os.fork()
    if not child:
        die_before(step)
        write_fenced(path, NEW, token(8))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return os.WIFSIGNALED(status)


def state_of(path: Path) -> str:
    return {OLD: "old", NEW: "new"}.get(path.read_text(), "broken")


def main(folder: Path) -> None:
    step = 0
    has_crashed = True
    while has_crashed:
        step += 1
        path = folder / f"report-{step}.csv"
        write_fenced(path, OLD, token(7))
        has_crashed = crash(path, step)
        mark = file_mark(path)
        left = {"step": step, "crashed": has_crashed, "content": state_of(path), "mark": mark and mark.token}
        write_fenced(path, NEW, token(8))
        left["repeated"] = state_of(path)
        write_fenced(path, OLD, token(9))
        left["drafts"] = len(list(folder.glob(f".{path.name}.*.draft")))
        print(json.dumps(left))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

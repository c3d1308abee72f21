"""Builds of servers that go on in the background, while the tests run that do not need them.

`begin` starts a process per program, which outlives its parent. The lock of `golang.lock` says that a build is under
way: it is taken before `begin` returns, and kept until that process ends. So nobody takes a program for missing that is
on its way, and one whose build has failed or was killed is missing at once.
"""

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO

from testbed import apiserver, golang, s3

PROGRAMS: dict[str, ModuleType] = {"kubernetes": apiserver, "s3": s3}
PATIENCE_S = 2700.0
_TELL_EVERY_S, _LOOK_EVERY_S = 60.0, 0.5
_TRIES, _BETWEEN_S = 20, 0.05  # who looks whether a build is under way has the lock for a moment


def begin(name: str) -> None:
    """Build a program in the background, unless it is there or another process builds it."""
    built: Path = PROGRAMS[name].path()
    if built.exists():
        return
    lock = _taken(golang.lock_file(built))
    if lock is None:
        return
    with lock, golang.log_of(built).open("w") as log:
        command = [sys.executable, "-m", "testbed.building", name]
        root = Path(__file__).parents[1]
        subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a test run that is broken off does not break it off
            pass_fds=[lock.fileno()],
        )


def _taken(path: Path) -> IO[str] | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        else:
            return file
    file.close()
    return None


def is_under_way(name: str) -> bool:
    """Whether a process builds this program just now."""
    path = golang.lock_file(PROGRAMS[name].path())
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait(name: str, tell: Callable[[str], None] = print, *, patience_s: float = PATIENCE_S) -> None:
    """Return when no build of this program is under way any more, or after so long: then it is missing.

    `tell` says what is waited for, once a minute.
    """
    began_at = tell_at = now = time.monotonic()
    while now <= began_at + patience_s and is_under_way(name):
        if now >= tell_at:
            tell_at = now + _TELL_EVERY_S
            tell(f"waiting for {name}, which is being built, for {(now - began_at) / 60:.0f} min so far")
        time.sleep(_LOOK_EVERY_S)
        now = time.monotonic()


def main() -> int:
    """Build the program that is named. The lock is that of the parent, inherited."""
    try:
        PROGRAMS[sys.argv[1]].make()
    except (golang.BuildFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

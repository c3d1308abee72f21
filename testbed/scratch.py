"""Where tests put their files: in memory, if the machine has room for it there.

``python -m testbed.scratch`` prints the folder; ``make test`` passes it on as TMPDIR. What the tests claim does not
depend on a disk: no test can take the power away. But a busy disk can keep a single ``fsync`` waiting for seconds,
longer than the short ttl of many tests, and then they fail for no fault of the code.
"""

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # in memory on every Linux; in containers it is often tiny
ROOM_BYTES = 6 << 30  # about twice what six workers with their servers use


def folder() -> Path:
    """Return the folder for temporary files: TMPDIR if it is set, else memory if it will do, else the usual one."""
    if "TMPDIR" not in os.environ and will_do(MEMORY):
        return MEMORY
    return Path(tempfile.gettempdir())


def will_do(place: Path) -> bool:
    """Whether tests can work there: enough room, programs can be run from it, and files can have attributes."""
    try:
        state = os.statvfs(place)
        if state.f_bavail * state.f_frsize < ROOM_BYTES or state.f_flag & os.ST_NOEXEC:
            return False
        with tempfile.NamedTemporaryFile(dir=place) as file:
            os.setxattr(file.fileno(), "user.fencepost", b"")  # the S3 server keeps its marks there
    except (OSError, AttributeError):  # AttributeError: not Linux
        return False
    return True


if __name__ == "__main__":
    print(folder())

"""What process() was called with: sixteen bytes for each call, in a file of each worker, written as it happens.

Nothing is buffered in the process, so kill -9 loses none of it. The driver looks at the sizes of the files to know how
far the work is, and leaves word of how long a row is to take.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_CALL = struct.Struct("<qq")
_PACE = struct.Struct("<d")
_SHORTEST_NAP_S = 0.004
_A_MOMENT_NS = 500_000_000


class Recorder(threading.local):
    """Writes down the calls of this process, or of this thread where threads do the work, and takes its time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self._pace: mmap.mmap | None = None
        self._owed_s = 0.0

    def note(self, key: int) -> None:
        """Write a call down, then pause as the driver wishes."""
        if self._file is None:
            self._file = self._open()
        os.write(self._file, _CALL.pack(key, time.time_ns()))
        assert self._pace is not None
        self._owed_s += _PACE.unpack_from(self._pace)[0]
        if self._owed_s > _SHORTEST_NAP_S:
            begun_at = time.monotonic()
            time.sleep(self._owed_s)
            self._owed_s -= time.monotonic() - begun_at

    def _open(self) -> int:
        """Open only when a call comes: most processes that load the application never process anything."""
        pace = os.open(self._folder / "pace", os.O_RDWR)
        self._pace = mmap.mmap(pace, _PACE.size)
        os.close(pace)
        name = self._folder / f"{os.getpid()}-{threading.get_native_id()}-{time.time_ns()}.calls"
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Calls(NamedTuple):
    """All calls of one worker, in their order; `pid` is its process."""

    pid: int
    keys: array[int]
    at_ns: array[int]

    def last_before(self, at_s: float) -> int | None:
        """Return the key of the last call that began before a moment."""
        for key, at_ns in zip(reversed(self.keys), reversed(self.at_ns), strict=True):
            if at_ns <= at_s * 1e9:
                return key
        return None


class Records:
    """The driver's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "pace").write_bytes(_PACE.pack(0.0))
        self._sizes: dict[str, int] = {}
        with (folder / "pace").open("r+b") as pace:
            self._pace = mmap.mmap(pace.fileno(), _PACE.size)

    def look(self) -> tuple[int, int]:
        """Return how many calls there were so far, and how many workers made one since the last look."""
        sizes = {file.name: file.stat().st_size for file in self._folder.glob("*.calls")}
        busy = sum(size > self._sizes.get(name, 0) for name, size in sizes.items())
        self._sizes = sizes
        return sum(sizes.values()) // _CALL.size, busy

    def busy(self) -> list[int]:
        """Return the processes of the workers that called process() a moment ago."""
        since_ns = time.time_ns() - _A_MOMENT_NS
        return [calls.pid for calls in self.all() if calls.at_ns and calls.at_ns[-1] > since_ns]

    def begun_after(self, at_s: float) -> list[int]:
        """Return the processes of the workers that called it first after a moment."""
        return [calls.pid for calls in self.all() if calls.at_ns and calls.at_ns[0] > at_s * 1e9]

    def pace(self, row_s: float) -> None:
        """Have each row take so long from now on."""
        _PACE.pack_into(self._pace, 0, row_s)

    def all(self) -> Iterator[Calls]:
        """Return all calls, worker by worker; a record that was cut off in the middle is left out."""
        for file in sorted(self._folder.glob("*.calls")):
            found: array[int] = array("q")
            content = file.read_bytes()
            found.frombytes(content[: len(content) // _CALL.size * _CALL.size])
            yield Calls(int(file.name.partition("-")[0]), found[0::2], found[1::2])

"""Data folders are filled once and copied from then on: to fill one takes a second, to copy it a few hundredths.

What is kept lies in the cache, under a name made of everything that decides what is filled in: the program, its size
and age, and its options. It is complete from the moment it has its name. To remove it costs time and nothing else.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed import cache


def fill(folder: Path, fill_it: Callable[[], None], *, program: Path, options: Iterable[str]) -> None:
    """Make `folder` what `fill_it` would make of it."""
    kept = cache.directory() / "filled" / _name(program, options)
    if kept.is_dir():
        _copy(kept, folder)
        return
    fill_it()
    _keep(folder, kept)


def _name(program: Path, options: Iterable[str]) -> str:
    file = program.resolve().stat()
    decides = [str(program), str(file.st_size), str(file.st_mtime_ns), str(os.geteuid()), *options]
    return f"{program.name}-{hashlib.sha256(repr(decides).encode()).hexdigest()[:16]}"


def _keep(folder: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{kept.name}-", dir=kept.parent))
    try:
        _copy(folder, beside / "data")
        with contextlib.suppress(OSError):  # another process was first
            (beside / "data").rename(kept)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy with modes and times; logs that were laid out in advance, full of zeros, become holes."""
    subprocess.run(["cp", "--archive", "--sparse=always", source, target], check=True)

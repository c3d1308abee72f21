"""How many processors this process may use, within the quota and the processor set of its container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


def processors(root: Path | None = None) -> int:
    """Return how many processors there are for this process, at least one. A part of one counts as one."""
    quota = _quota(_ROOT if root is None else root)
    return max(1, _allowed() if quota is None else min(_allowed(), math.ceil(quota)))


def _allowed() -> int:
    """Return how many processors this process may be scheduled on."""
    count = getattr(os, "process_cpu_count", None)  # Python 3.13 and later; also obeys PYTHON_CPU_COUNT
    if count is not None:
        return count() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _quota(root: Path) -> float | None:
    """Return the smallest quota of the control groups that this process is in; None if there is none."""
    found = [quota for quota in _quotas(root) if quota is not None]
    return min(found, default=None)


def _quotas(root: Path) -> Iterator[float | None]:
    top = root / "sys/fs/cgroup"
    for controllers, group in _groups(root):
        if not controllers:  # version 2, where there is one tree
            for folder in _upwards(top, group):
                yield _of_version_2(folder)
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                for folder in _upwards(top / name, group):
                    yield _of_version_1(folder)


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """Read the lines ``number:controllers:group`` of /proc/self/cgroup."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            yield parts[1], parts[2]


def _upwards(top: Path, group: str) -> Iterator[Path]:
    """Return the folders of a group and of those above it. Inside a container the last one is the container's own."""
    inner = PurePosixPath(group.lstrip("/"))
    if ".." not in inner.parts:  # a group above what this namespace shows
        yield from (top / each for each in (inner, *inner.parents) if str(each) != ".")
    yield top


def _of_version_2(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return _ratio(*words) if len(words) == 2 else None


def _of_version_1(folder: Path) -> float | None:
    return _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    """Return quota ÷ period; None where there is no limit (``max``, or -1)."""
    try:
        limit, of = int(quota), int(period)
    except ValueError:
        return None
    return limit / of if limit > 0 and of > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

"""The processor time that processes used, as the kernel counts it: it hardly depends on what else the machine does."""

from __future__ import annotations

from pathlib import Path


def of_tree(pid: int) -> float:
    """Return the seconds that a process and its descendants have used, as far as they live."""
    return sum(_of(each) for each in _tree(pid))


def _tree(pid: int) -> list[int]:
    children: list[int] = []
    for task in _tasks(pid):
        children += map(int, _read(task / "children").split())
    return [pid, *(each for child in children for each in _tree(child))]


def _of(pid: int) -> float:
    return sum(int((_read(task / "schedstat").split() or ["0"])[0]) for task in _tasks(pid)) / 1e9


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has just ended
        return ""

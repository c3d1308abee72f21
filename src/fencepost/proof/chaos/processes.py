"""Which processes a node consists of, as the kernel has it: its guardians, and below them its workers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from fencepost.errors import ConfigurationError
from fencepost.threaded.signals import send

STOP, CONTINUE, KILL = 19, 18, 9  # SIGSTOP, SIGCONT and SIGKILL, as Linux numbers them
_PROC = Path("/proc")


def refuse_without_proc() -> None:
    """Refuse a machine without /proc, where child processes cannot be found."""
    if not (_PROC / "self" / "stat").exists():
        raise ConfigurationError(
            "chaos stops and kills the processes of nodes, and finds them in /proc: it needs Linux"
        )


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of a node: children of its children, which are their guardians."""
    children = _children()
    return sorted(worker for guardian in children[pid] for worker in children[guardian])


def tree_of(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    children, found = _children(), [pid]
    for each in found:
        found.extend(children[each])
    return found


def freeze(pid: int) -> list[int]:
    """Stop a process and all below it, as when the whole machine stalls. Return the stopped processes."""
    stopped: list[int] = []
    while new := [each for each in tree_of(pid) if each not in stopped]:  # what was started meanwhile as well
        stopped.extend(each for each in new if send(each, STOP))
        if not stopped:
            break
    return stopped


def thaw(pids: list[int]) -> None:
    """Continue them, the lowest first, so that a worker runs before its guardian."""
    for pid in reversed(pids):
        send(pid, CONTINUE)


def _children() -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        if fields[0] != "Z":
            found[int(fields[1])].append(int(folder.name))
    return found

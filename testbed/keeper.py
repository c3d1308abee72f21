"""Ends servers and removes their folders when the process that started them is gone, however it went.

A process killed by SIGKILL runs no ``atexit``, and PR_SET_PDEATHSIG is lost by every server that changes its
credentials and is bound to the *thread* that forked it. So one small keeper process per test process does it: it waits
on a pidfd of its parent and on a pipe by which the parent (or a server about to be executed) names what must end.

The lines on the pipe: ``+ PID`` keep this process tree, ``- PID`` it is gone, ``d PATH`` remove this folder at the end,
``r PATH`` it is removed. A server writes its own ``+`` line before it becomes the server (see ``announced``), so there
is no moment in which it lives and is not known.

Where everything is killed at once, the keeper included, folders stay behind. Each says whose it is, so the next keeper
removes those whose owner is gone, unless some process still works in them.

This file is also the keeper's program: it imports only the standard library, and nothing from the package.
"""

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_MS = 1000
OWNER = ".owner"
"""The file that says whose folder it is: a pid, and what tells that process from a later one of the same number."""

_lock = threading.Lock()
_pipe_of: dict[int, int] = {}  # by the pid of the process that owns it, so that a forked child gets its own keeper


# --- in the test process -------------------------------------------------------------------------------------------


def announced(command: list[str]) -> list[str]:
    """The command, wrapped so that it tells the keeper its pid and then becomes the server. Needs ``stdin=pipe()``."""
    return ["/bin/sh", "-c", 'echo "+ $$" >&0; exec "$@" </dev/null', "sh", *command]


def pipe() -> int:
    """The file descriptor of the keeper's pipe; starts the keeper if this process has none."""
    with _lock:
        if os.getpid() not in _pipe_of:
            _pipe_of[os.getpid()] = _start_keeper()
        return _pipe_of[os.getpid()]


def forget(pid: int) -> None:
    _write_line(f"- {pid}")


def make_directory(name: str) -> Path:
    """A new temporary folder that is removed by ``remove_directory`` or, at the latest, when this process ends."""
    path = Path(tempfile.mkdtemp(prefix=f"fencepost-{name}-"))
    _write_line(f"d {path}")
    (path / OWNER).write_text(f"{os.getpid()} {identity_of(os.getpid())}")
    return path


def remove_directory(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _write_line(f"r {path}")


def _write_line(line: str) -> None:
    os.write(pipe(), f"{line}\n".encode())


def _start_keeper() -> int:
    """Start the keeper of this process; return the writing end of its pipe."""
    reading_end, writing_end = os.pipe()
    # A session of its own, so that neither Ctrl-C nor a kill of the test's process group takes the keeper along.
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), tempfile.gettempdir()],
        stdin=reading_end,
        start_new_session=True,
        cwd="/",
    )
    os.close(reading_end)
    atexit.register(_close, keeper, writing_end, os.getpid())
    return writing_end


def _close(keeper: subprocess.Popen[bytes], writing_end: int, owner_pid: int) -> None:
    if os.getpid() == owner_pid:
        os.close(writing_end)
        keeper.wait()


# --- process trees, for both ---------------------------------------------------------------------------------------


def tree(pid: int) -> list[int]:
    """The live processes of a server: its descendants, its process group, itself first.

    Both, because PostgreSQL's backends leave the group and a process whose parent died leaves the tree.
    """
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))):
            parents[int(entry)] = stat
    found = {pid} & parents.keys()
    grown = True
    while grown:
        more = {child for child, (parent, group) in parents.items() if parent in found or group == pid}
        grown = not more <= found
        found |= more
    return sorted(found, key=lambda member: (member != pid, member))


def is_alive(pid: int) -> bool:
    """Whether this process runs; a zombie does not."""
    return _stat(pid) is not None


def _stat(pid: int) -> tuple[int, int] | None:
    """(parent, process group) of a live process; None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, group = file.read().rpartition(b")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in b"ZX" else (int(parent), int(group))


def identity_of(pid: int) -> str:
    """What tells a process from every other, also in another container or after a boot; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19].decode()
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {started}"
    except OSError:
        return ""


def signal_tree(pid: int, number: signal.Signals) -> None:
    for member in tree(pid):
        _send(member, number)


def freeze_tree(pid: int) -> None:
    """SIGSTOP the tree, repeated until no process was forked meanwhile."""
    stopped: set[int] = set()
    while members := set(tree(pid)) - stopped:
        for member in sorted(members, key=lambda member: member != pid):
            _send(member, signal.SIGSTOP)
        stopped |= members


def kill_tree(pid: int, deadline_s: float = 10.0) -> None:
    """SIGKILL the tree and wait until none of it is left, apart from zombies that their parent must collect."""
    _send(pid, signal.SIGSTOP)  # so that it forks no more while the rest is being found
    members = tree(pid)
    for member in members:
        _send(member, signal.SIGKILL)
    give_up_at = time.monotonic() + deadline_s
    while any(map(is_alive, members)) and time.monotonic() < give_up_at:
        time.sleep(0.002)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


# --- in the keeper process -----------------------------------------------------------------------------------------


class Charge:
    """What must end together with the parent."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        self.directories: set[str] = set()

    def obey(self, line: str) -> None:
        verb, _, what = line.partition(" ")
        match verb:
            case "+":
                self.pids.add(int(what))
            case "-":
                self.pids.discard(int(what))
            case "d":
                self.directories.add(what)
            case "r":
                self.directories.discard(what)

    def end(self) -> None:
        for pid in self.pids:
            kill_tree(pid)
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)


def sweep(place: str) -> None:
    """Remove the folders in `place` whose owners are gone, with their keepers, and which no process uses any more."""
    with contextlib.suppress(OSError):
        left = [
            entry.path for entry in os.scandir(place) if entry.name.startswith("fencepost-") and _is_left(entry.path)
        ]
        busy = _working_folders() if left else []
        for path in left:
            if not any(f"{folder}/".startswith(f"{path}/") for folder in busy):
                shutil.rmtree(path, ignore_errors=True)


def _is_left(path: str) -> bool:
    """Whether the owner of a folder is gone. False if it names none, or one of another container: that is unknown."""
    try:
        with open(os.path.join(path, OWNER)) as file:
            pid, boot, namespace, started = file.read().split()
    except (OSError, ValueError):
        return False
    here = identity_of(os.getpid()).split()
    if namespace != here[1]:
        return False
    return boot != here[0] or identity_of(int(pid)).split()[-1:] != [started]


def _working_folders() -> list[str]:
    folders: list[str] = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                folders.append(os.readlink(f"/proc/{entry}/cwd"))
    return folders


def keep(parent_pid: int, place: str) -> None:
    """Obey the lines on standard input until it ends or the parent does; then end everything still in charge."""
    sweep(place)
    charge, rest = Charge(), b""
    for chunk in _chunks(parent_pid):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            charge.obey(line.decode())
    charge.end()


def _chunks(parent_pid: int) -> Iterator[bytes]:
    """What comes through the pipe, until its end.

    The pipe outlives the parent in processes the parent forked: a server about to announce itself, which must be heard,
    and a child of ``multiprocessing``, which may live on for long. Hence the grace, and its end.
    """
    os.set_blocking(0, False)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    parent = _watch(poll, parent_pid)
    while events := dict(poll.poll(GRACE_MS if parent is None else None)):
        if parent in events:
            poll.unregister(parent)
            parent = None
        if 0 in events:
            if not (chunk := os.read(0, 65536)):
                return
            yield chunk


def _watch(poll: select.poll, pid: int) -> int | None:
    try:
        poll.register(process := os.pidfd_open(pid), select.POLLIN)
    except ProcessLookupError:
        return None
    return process


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2])

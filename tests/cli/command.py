"""Running ``fencepost`` as a process, and looking at what it starts. Nothing here sleeps: it waits for facts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.keeper import is_alive
from testbed.wait import until
from tests.cli.inside import call

FENCEPOST = str(Path(sys.executable).parent / "fencepost")
LONG_S = 40.0  # for what should take a moment: a machine that others use, too


def fencepost(*words: str, env: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess[str]:
    """Run ``fencepost`` to its end."""
    options = {"stdin": subprocess.DEVNULL, "timeout": 60} | options
    return subprocess.run(
        [FENCEPOST, *words], env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False, **options
    )


def shell(command: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60, **options)


class Exec:
    """A ``fencepost exec`` that runs, with a program that tells where it is."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def says(self, name: str) -> str:
        """Wait for the program to write the file `name`, and return what it wrote."""
        path = self.folder / name
        until(lambda: path.exists() or self.process.poll() is not None, LONG_S, what=f"the program writes {name}")
        assert path.exists(), f"fencepost ended with {self.process.returncode}: {self.process.stderr.read()}"
        return path.read_text().strip()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return int(self.says("pid"))

    @property
    def guardian(self) -> int:
        return parent_of(self.pid)

    def kill(self, number: int) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    def ends(self, within_s: float = LONG_S) -> int:
        return self.process.wait(within_s)

    def stderr(self) -> str:
        return self.process.stderr.read()


def script(folder: Path, body: str) -> list[str]:
    """A shell program that first writes its pid and token into `folder` and then does `body`, with $D as the folder."""
    write = "say() { printf '%s\\n' \"$2\" > $D/$1.new; mv $D/$1.new $D/$1; }; "
    return ["sh", "-c", f"D={folder}; {write} say token $FENCEPOST_TOKEN; say pid $$; {body}"]


@contextmanager
def executing(
    store: str, folder: Path, *words: str, lock: str = "nightly", body: str = "exec sleep 60"
) -> Iterator[Exec]:
    """Start ``fencepost exec`` in the background; whatever is left at the end is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [FENCEPOST, "exec", "--store", store, "--lock", lock, *words, "--", *script(folder, body)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    running = Exec(process, folder)
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        are_gone(*(int(file.read_text()) for file in folder.glob("*pid")))


def are_gone(*pids: int) -> None:
    """Wait until these processes are gone."""
    until(lambda: not any(is_alive(pid) for pid in pids), LONG_S, what=f"processes {pids} are gone")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def state_of(pid: int) -> str:
    """Return the state of a process as the kernel names it: T if it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read_lock(store: str, name: str) -> dict[str, object]:
    """Ask within this process: many look, and few of them for the sake of the command."""
    record: dict[str, object] = call("locks", "show", name, "--json", "--store", store).json
    return record

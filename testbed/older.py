"""A version of Fencepost from the history of this repository: its wheel, in an environment of its own.

The wheel is built once and kept outside the tree. What it depends on is taken from the environment that we run in: only
Fencepost itself is older.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from testbed import cache, golang
from testbed.server import Missing

ROOT = Path(__file__).parents[1]
READING_RULE = "5e369175aeda8eb17e27d758acb7d7b3f23edd84"
"""The first that works with tables which a newer version has added to; it knows steps up to 0003, of effects 0002."""


def python(commit: str = READING_RULE) -> Path:
    """Return an interpreter that has Fencepost as of `commit`. Raises `Missing` where the history is not there."""
    ours = sysconfig.get_path("purelib")
    environment = cache.directory() / f"fencepost-{commit[:12]}-{hashlib.sha256(ours.encode()).hexdigest()[:8]}"
    with golang.lock(environment):
        if not (environment / "ready").exists():
            _install(wheel(commit), environment, ours)
            (environment / "ready").touch()
    return environment / "bin" / "python"


def wheel(commit: str) -> Path:
    """Return the wheel of `commit`, built if it was not yet."""
    folder = cache.directory() / "wheels" / commit
    with golang.lock(folder):
        if not list(folder.glob("*.whl")):
            _build(commit, folder)
    return next(folder.glob("*.whl"))


def environment() -> dict[str, str]:
    """Return ours, without what would lead an older interpreter to the code of today."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _build(commit: str, into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fencepost-older-") as name:
        folder = Path(name)
        archive = folder / "source.tar"
        if _fails(["git", "-C", str(ROOT), "archive", "-o", str(archive), commit]):
            raise Missing(f"commit {commit[:12]} is not in the history here: git fetch --unshallow")
        shutil.unpack_archive(archive, folder / "source", filter="data")
        venv.create(folder / "builder", with_pip=True)
        words = ["-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", str(folder / "built")]
        if said := _fails([str(folder / "builder/bin/python"), *words, str(folder / "source")]):
            raise Missing(f"the wheel of commit {commit[:12]} could not be built: {said}")
        into.mkdir(parents=True, exist_ok=True)
        for built in (folder / "built").glob("*.whl"):
            shutil.copyfile(built, into / built.name)


def _install(wheel_file: Path, into: Path, dependencies: str) -> None:
    """Unpack the wheel, which is all that installing one of Python alone comes to."""
    venv.create(into, clear=True, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = into / "lib" / version / "site-packages"
    with zipfile.ZipFile(wheel_file) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")  # behind it: what is unpacked here comes first


def _fails(command: Sequence[str]) -> str:
    """Return the last line of what a program that fails says; nothing if it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    except FileNotFoundError:
        return f"there is no {command[0]}"
    return (done.stderr.strip() or "it says nothing").splitlines()[-1] if done.returncode else ""

"""Before a complete run, one process compiles the tests: else each process of the run would compile all of them.

Pytest rewrites the assertions of a test file when it imports the file for the first time, and keeps the result. That
takes 8 s for all files. The processes of a run import them at the same time: after a fresh checkout none finds a
result of another, so all do all of it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_WORTH_IT = 50  # files: it takes 5 s to import what is compiled already, and 0.02 s to compile a file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    is_complete = config.args == config.getini("testpaths")
    if is_complete and not sys.dont_write_bytecode and len(list(not_compiled(TESTS))) >= _WORTH_IT:
        collect = [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-qq"]
        subprocess.run(collect, cwd=config.rootpath, stdout=subprocess.DEVNULL, check=False)  # the run reports errors


def not_compiled(folder: Path) -> Iterator[Path]:
    """Yield the test files that changed since they were compiled, or never were."""
    ending = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    for path in folder.rglob("test_*.py"):
        kept = path.parent / "__pycache__" / f"{path.stem}{ending}"
        if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
            yield path

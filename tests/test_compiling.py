"""Test files that pytest has not compiled yet are noticed, or each process of a run would compile all of them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.compiling import not_compiled


def test_file_counts_until_it_is_collected_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("def test_it():\n    assert 1\n")
    assert list(not_compiled(tmp_path)) == [file]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-qq"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    assert list(not_compiled(tmp_path)) == []
    os.utime(file, (4_000_000_000, 4_000_000_000))
    assert list(not_compiled(tmp_path)) == [file]

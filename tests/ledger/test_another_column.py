"""A column in the middle of what is read of a run: rows are still sorted and read by name."""

import subprocess
import sys

from fencepost.core.runs import Requested
from fencepost.ledger.ledger import Ledger
from tests.ledger.scene import Scene


def test_a_column_in_the_middle_moves_no_other(ledger: Ledger, ledger_url: str) -> None:
    scene = Scene(ledger)
    wanted = [
        Requested("job", "manual", queue="one", priority=1),
        Requested("job", "bulk", queue="two", priority=3, exclusive_key="b"),
        Requested("job", "immediate", queue="one", priority=2),
        Requested("job", "manual", queue="two", priority=4),
    ]
    first, second, third, fourth = scene.add(*wanted)
    scene.close()
    words = [sys.executable, "-m", "tests.ledger.another_column", ledger_url]
    printed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    *claims, ended = printed.stdout.splitlines()
    assert ended == "4"
    free = [line for line in claims if " None " in line]
    assert free == [
        f"{fourth} job manual None 1",
        f"{third} job immediate None 1",
        f"{first} job manual None 1",
    ]
    assert set(claims) - set(free) == {f"{second} job bulk b 1"}

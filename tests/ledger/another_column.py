"""Claims and ends runs of a ledger, with a column more in the middle of what is read of a claimed run: ``… URL``.

Run as a program of its own: what it changes must be changed before anything else is imported.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from fencepost.core import runs

MIDDLE = 6


def wider(narrow: type[Any]) -> type[Any]:
    """Return the same with a field `type` in the middle, which is a column of runs that claims do not have."""
    fields = list(narrow.__annotations__.items())
    fields.insert(MIDDLE, ("type", str))
    return NamedTuple(narrow.__name__, fields)  # type: ignore[misc]


def main(url: str) -> None:
    """Print, for each claim: its id, job, type, key, ticks; and at the end how many ended."""
    runs.Claim = wider(runs.Claim)  # type: ignore[misc]
    from fencepost.core.overlap import START, WAIT
    from fencepost.ledger.claiming import claim
    from fencepost.ledger.finishing import finish
    from fencepost.ledger.ledger import open_ledger
    from fencepost.threaded import ThreadedRuntime

    ledger = open_ledger(url, ThreadedRuntime())
    connection = ledger.connect("wide")
    made: list[Any] = []
    for _ in range(3):
        made += claim(
            connection,
            node="one",
            jobs=("job",),
            queues=("one", "two"),
            limit=8,
            decide=lambda job, *, key_is_taken, **_: WAIT if key_is_taken else START,
        ).claims
    for each in made:
        print(each.run_id, each.job, each.type, each.exclusive_key, each.ticks)
    endings = [
        runs.Ending(each.run_id, each.attempt, each.token, "succeeded", "succeeded", exclusive_key=each.exclusive_key)
        for each in made
    ]
    print(len(made) - len(finish(connection, endings).refused))
    connection.rest()
    ledger.close()


if __name__ == "__main__":
    main(sys.argv[1])

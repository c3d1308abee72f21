"""Chaos on servers of its own, which are killed, restarted and replaced as well.

    python -m tests.chaos.drive postgres+redis --minutes 5

Ends with code 1 if a promise was broken, or if there were fewer faults than asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fencepost.cli.chaos import draw
from fencepost.proof.chaos.course import ChaosOptions, Course
from fencepost.proof.chaos.namespace import namespace, new_prefix
from fencepost.proof.chaos.outcome import ChaosOutcome
from fencepost.proof.chaos.rolling import rolling
from fencepost.threaded import ThreadedRuntime
from tests.chaos.owned import Owned, OwnedMariaDB, OwnedPostgres, OwnedValkey

PLACES: dict[str, tuple[Callable[[], Owned], ...]] = {
    "postgres+redis": (OwnedPostgres, OwnedValkey),
    "postgres": (OwnedPostgres,),
    "mariadb": (OwnedMariaDB,),
}


def drive(
    place: str, *, seconds: float, seed: int, ttl_s: float, gap_s: float, keep: Path | None, rounds: int = 0
) -> ChaosOutcome:
    """Start the servers, do harm to all of it, and check."""
    runtime = ThreadedRuntime()
    with ExitStack() as stack:
        servers = []
        for make in PLACES[place]:
            server = make()
            stack.callback(server.close)
            servers.append(server.start())
        store = servers[1].url if len(servers) > 1 else None
        space = namespace(ledger=servers[0].url, store=store, prefix=new_prefix(runtime))
        acts = rolling(["node-1", "node-2", "node-3"], rounds=rounds)
        wishes = ChaosOptions(
            seconds=seconds, seed=seed, ttl_s=ttl_s, gap_s=gap_s, servers=servers, keep=keep, acts=acts
        )
        return Course(space, wishes, runtime, lambda line: print(line, flush=True)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=", ".join(PLACES))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ttl", type=float, default=3.0, help="in seconds")
    parser.add_argument("--gap", type=float, default=1.1, help="from one fault to the next, on average, in seconds")
    parser.add_argument("--least", type=int, default=0, help="how many faults there must be")
    parser.add_argument(
        "--rolling", action="store_true", help="restart node after node, about once a minute each, and deploy"
    )
    parser.add_argument("--keep", type=Path, help="leave histories and logs there")
    parser.add_argument("--json", type=Path, help="write what came of it there")
    options = parser.parse_args()
    found: dict[str, ChaosOutcome] = {}
    for place in options.places or PLACES:
        print(f"\n== chaos on {place} for {options.minutes:g} min", flush=True)
        found[place] = drive(
            place,
            seconds=options.minutes * 60,
            seed=options.seed,
            ttl_s=options.ttl,
            gap_s=options.gap,
            keep=options.keep,
            rounds=max(round(options.minutes), 2) if options.rolling else 0,
        )
        draw(found[place])
    if options.json:
        options.json.write_text(json.dumps({place: each.to_json() for place, each in found.items()}, indent=2))
    is_short = any(len(each.faults) < options.least for each in found.values())
    return int(is_short or any(each.violations for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())

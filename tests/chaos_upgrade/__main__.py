"""``python -m tests.chaos_upgrade [PLACE …] --minutes 5``. Ends with code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fencepost.cli.chaos import draw
from fencepost.proof.chaos.course import ChaosOptions, Course
from fencepost.proof.chaos.namespace import namespace, new_prefix
from fencepost.proof.chaos.outcome import ChaosOutcome
from testbed import older
from tests.chaos.owned import Owned, OwnedMariaDB
from tests.chaos.owned import OwnedPostgres as ReplicatedPostgres
from tests.chaos_upgrade.upgrading import RUNTIME, Upgrade

PLACES: dict[str, type[Owned]] = {"postgres": ReplicatedPostgres, "mariadb": OwnedMariaDB}
OLD, NEW = ("node-1", "node-2", "node-3"), ("node-4", "node-5")
OLD_LOCKS, NEW_LOCKS = ("contender-1", "contender-2"), ("contender-3", "contender-4")


def drive(place: str, options: argparse.Namespace) -> ChaosOutcome:
    """Start a server, upgrade on it under chaos, and check."""
    server = PLACES[place]()
    try:
        server.start()
        upgrade = Upgrade(OLD + OLD_LOCKS, NEW + NEW_LOCKS)
        wishes = ChaosOptions(
            nodes=len(OLD + NEW),
            contenders=len(OLD_LOCKS + NEW_LOCKS),
            seconds=options.minutes * 60,
            seed=options.seed,
            ttl_s=options.ttl,
            gap_s=options.gap,
            keep=options.keep,
            pythons=dict.fromkeys(upgrade.old, str(older.python())),
            absent=upgrade.new,
            acts=upgrade.acts,
            make_tables=upgrade.make_tables,
        )
        space = namespace(ledger=server.url, store=None, prefix=new_prefix(RUNTIME))
        outcome = Course(space, wishes, RUNTIME, lambda line: print(line, flush=True)).run()
    finally:
        server.close()
    for phase, share in upgrade.shares.items():
        print(f"{phase}: {share['old']} attempts by nodes of the older version, {share['new']} by those of today")
    return outcome


def main() -> int:
    """Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos_upgrade", description=__doc__)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=", ".join(PLACES))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ttl", type=float, default=3.0, help="in seconds")
    parser.add_argument("--gap", type=float, default=1.1, help="from one fault to the next, on average, in seconds")
    parser.add_argument("--keep", type=Path, help="leave histories and logs there")
    options = parser.parse_args()
    broken = 0
    for place in options.places or PLACES:
        print(f"\n== upgrade on {place} for {options.minutes:g} min", flush=True)
        outcome = drive(place, options)
        draw(outcome)
        broken += len(outcome.violations)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.audit``: writers at once, 500 random changes, and each act cut at each statement, on each database.

Exits with 1 if a chain forked, a change was not found, or an act and its entry were not both there, or both not.
"""

from __future__ import annotations

import argparse
import sys

from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime
from tests.audit.cutting import acts, cut
from tests.audit.tampering import Tampered
from tests.audit.writers import played
from tests.fresh_ledgers import KINDS, fresh_ledgers

PARTS = ("writers", "changes", "cuts")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of these: {', '.join(PARTS)}")
    parser.add_argument("--on", nargs="+", choices=KINDS, default=list(KINDS), help="the databases")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the writers write")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--changes", type=int, default=500)
    options = parser.parse_args()
    return 1 if sum([_wrong(kind, options) for kind in options.on]) else 0


def _wrong(kind: str, options: argparse.Namespace) -> int:
    wrong, parts = 0, options.parts or PARTS
    with fresh_ledgers(kind) as fresh:
        if "writers" in parts:
            done = played(fresh(), writers=options.writers, seconds=options.seconds, processes=True)
            missing = not 0 <= done.entries - done.acts <= done.unsure
            print(f"{kind}: {options.writers} writers, {options.seconds:g} s: {done}", flush=True)
            wrong += done.forks + len(done.breaks) + missing
        if "changes" in parts:
            ledger = open_ledger(fresh(), ThreadedRuntime())
            chain = Tampered(ledger)
            unseen = [name for seed in range(options.changes) if (name := chain.unseen(seed))]
            ledger.close()
            print(f"{kind}: {options.changes} changes, {len(unseen)} not found {sorted(set(unseen))}", flush=True)
            wrong += len(unseen)
        for name in acts() if "cuts" in parts else ():
            cuts = cut(name, fresh)
            print(
                f"{kind}: {name}: {cuts.plays} cuts, {cuts.both} both, {cuts.neither} neither, {len(cuts.wrong)} wrong",
                flush=True,
            )
            for each in cuts.wrong[:5]:
                print(f"  {each}")
            wrong += len(cuts.wrong)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

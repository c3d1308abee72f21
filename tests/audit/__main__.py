"""``python -m tests.audit``: writers at once, 500 random changes, and each act cut at each statement, on each database.

Exits with 1 if a chain forked, a change was not found, or an act and its entry were not both there, or both not.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from time import monotonic, process_time

from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime
from tests.audit.acts import ACTS
from tests.audit.cutting import Cuts, cut
from tests.audit.stages import on_stages
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
        if "cuts" in parts:
            wrong += _wrong_cuts(kind, fresh)
    return wrong


def _wrong_cuts(kind: str, fresh: Callable[[], str]) -> int:
    """Cut every act, and print what came of each and of all."""
    total, started, used = Cuts(), monotonic(), process_time()
    for logger in ("fencepost", "sqlalchemy.pool", "psycopg"):  # runs are to fail, and connections to be lost
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    with on_stages(fresh) as stages:
        for name in ACTS:
            cuts = cut(name, stages)
            print(f"{kind}: {name}: {cuts}", *cuts.wrong[:5], sep="\n  ", flush=True)
            total += cuts
    spent = f"{monotonic() - started:.0f} s, {process_time() - used:.0f} s of processor time"
    print(f"{kind}: {len(ACTS)} acts, {total}; {spent}", flush=True)
    return len(total.wrong)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.crashpoints``: every point of every path, in every way, on each database; as a table.

Exits with 1 if a promise was broken or a point was not reached.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.crashpoints.grounds import KINDS
from tests.crashpoints.messages import PLAYS
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import RECOVERED, REFUSED, REPEATED, Tally
from tests.crashpoints.sharing import MESSAGES, share

_TOGETHER = 4
_COLUMNS = ("points", "plays", RECOVERED, REFUSED, REPEATED, "unreached", "violations")
_WIDTH = 30


def main() -> int:
    options = _options()
    names = [name for name in PATHS if not options.paths or name in options.paths]
    shares = [(kind, names[at : at + _TOGETHER]) for kind in options.on for at in range(0, len(names), _TOGETHER)]
    shares += [(MESSAGES, [name]) for name in PLAYS if not options.paths or MESSAGES in options.paths]
    print(f"{'path':<{_WIDTH}}{'on':<12}" + "".join(f"{word:>12}" for word in _COLUMNS))
    total, broken = Tally(), []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for rows in pool.map(share, *zip(*shares, strict=True)):
            for name, where, tally in rows:
                print(_line(name, where, tally), flush=True)
                total += tally
                broken += [(name, where, each) for each in (*tally.unreached, *tally.violated)]
    print(_line("all", "", total))
    for name, where, each in broken:
        print(f"{name} on {where}: {each}")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crashpoints", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help=f"of these: {', '.join((*PATHS, MESSAGES))}")
    parser.add_argument("--on", nargs="+", choices=KINDS, default=list(KINDS), help="the databases")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    return parser.parse_args()


def _line(name: str, where: str, tally: Tally) -> str:
    counts = [tally.outcomes[word] for word in (RECOVERED, REFUSED, REPEATED)]
    numbers = [tally.points, tally.plays, *counts, len(tally.unreached), len(tally.violated)]
    return f"{name:<{_WIDTH}}{where:<12}" + "".join(f"{number:>12}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())

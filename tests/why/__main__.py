"""``python -m tests.why``: *why* of thousands of past due times against the oracle, on each database.

Exits with 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.fresh_ledgers import KINDS, fresh_ledgers
from tests.why.asking import played


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.why")
    parser.add_argument("--on", nargs="+", choices=KINDS, default=list(KINDS), help="the databases")
    parser.add_argument("--seeds", type=int, default=5, help="how many stories on each")
    options = parser.parse_args()
    wrong = 0
    for kind in options.on:
        past, words = 0, Counter[str]()
        with fresh_ledgers(kind) as fresh:
            for seed in range(options.seeds):
                asked = played(fresh(), seed)
                past, words, wrong = past + asked.past, words + asked.words, wrong + len(asked.wrong)
                for each in asked.wrong[:10]:
                    print(f"{kind}, seed {seed}: {each}")
        print(f"{kind}: {past} past due times asked for, {dict(words)}", flush=True)
    print(f"{wrong} answers differ from the oracle's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

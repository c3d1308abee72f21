"""``python -m tests.bulk_chaos``: a bulk job on each place while its workers and supervisors are killed; as a table.

Ends with code 1 if a promise was broken, or if there were fewer kills than asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from fencepost.proof.chaos.takeovers import quantile
from tests.bulk_chaos import planted, recount, takeovers
from tests.bulk_chaos.cluster import SUPERVISOR, WORKER
from tests.bulk_chaos.course import Course, Story, Wishes
from tests.bulk_chaos.places import PLACES, opened
from tests.bulk_chaos.recount import Landed, Redone

_MOST_TOLD = 20


class Verdict(NamedTuple):
    """What came of one place."""

    story: Story
    landed: Landed
    redone: Redone
    takeovers: list[takeovers.Takeover]
    violations: list[str]


def chaos(name: str, wishes: Wishes, folder: Path, *, says: bool = True) -> Verdict:
    """Have one job done on one place, and count."""
    with opened(name, folder) as place:
        course = Course(place, wishes, folder, lambda line: says and print(line, flush=True))
        story = course.run()
        calls = list(course.records.all())
        with place.looked_at() as connection:
            found = recount.landed(connection)
            landed, uppers = takeovers.chunks(connection), takeovers.bounds(connection)
    again = recount.redone(calls)
    stood_still = list(takeovers.takeovers(story.kills, calls, landed, uppers))
    return Verdict(story, found, again, stood_still, list(recount.violations(story, found, again)))


def too_much_redone(verdict: Verdict) -> list[str]:
    """Say whether more than a chunk was redone for a kill, in all; a supervisor that is killed may take several."""
    kills, chunk, again = len(verdict.story.kills), verdict.story.wishes.chunk, verdict.redone.again
    return [f"{again:,} calls were in vain, more than {kills} times {chunk}"] if again > kills * chunk else []


def main() -> int:
    options = _options()
    wishes = Wishes(
        rows=options.rows,
        kills=options.kills,
        chunk=options.chunk,
        ttl_s=options.ttl,
        gap_s=options.gap,
        seed=options.seed,
        planted=options.planted,
    )
    found = {}
    for name in options.places or PLACES:
        print(f"== {options.rows:,} rows on {name}, {options.kills} kills", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="bulk-chaos-"))
        begun_s = time.monotonic()
        verdict = chaos(name, wishes, folder)
        found[name] = verdict._replace(violations=[*verdict.violations, *too_much_redone(verdict)])
        for what in found[name].violations[:_MOST_TOLD]:
            print(f"VIOLATED: {what}", flush=True)
        print(f"{time.monotonic() - begun_s:.0f} s", flush=True)
        if found[name].violations:
            print(f"the logs of the nodes are in {folder}")
        else:
            shutil.rmtree(folder)
    draw(found)
    return int(any(each.violations for each in found.values()))


def draw(found: dict[str, Verdict]) -> None:
    """Print the table."""
    columns = ("effects", "aside", "kills w/s", "lost", "redone", "worst", "lost after", "went on", "took", "verdict")
    print(f"\n{'place':<20}" + "".join(f"{word:>14}" for word in columns))
    for name, (story, landed, redone, stood_still, violations) in found.items():
        kinds, chunk = Counter(kill.kind for kill in story.kills), story.wishes.chunk
        lost_s = list(takeovers.declared_after_s(story.kills, story.attempts))
        went_on_s = [each.took_s for each in stood_still if each.kill.kind == SUPERVISOR]
        cells = (
            f"{len(landed.effects):,}",
            str(len(landed.letters)),
            f"{kinds[WORKER]}/{kinds[SUPERVISOR]}",
            str(sum(run["crashes"] for run in story.runs)),
            f"{redone.again / chunk:.1f}",
            f"{max(redone.by_process.values(), default=0) / chunk:.2f}",
            _p50_and_most(lost_s),
            _p50_and_most(went_on_s),
            f"{story.took_s:.0f} s",
            f"{len(violations)} violated" if violations else "ok",
        )
        print(f"{name:<20}" + "".join(f"{cell:>14}" for cell in cells))
    print(
        "aside: dead letters; kills of workers and of supervisors; lost: attempts that the ledger has as lost; redone: "
        "calls of process()\nin vain, in chunks, and the most that one process left; lost after: p50 and longest, from "
        "a supervisor's death until its runs were\nfree for others; went on: until the next chunk of its partitions "
        "landed, which have to wait for a free worker: there are eight on six"
    )


def _p50_and_most(times_s: list[float]) -> str:
    return f"{quantile(times_s, 0.5):.1f}/{max(times_s):.1f} s" if times_s else "-"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bulk_chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="*", metavar="PLACE", help=", ".join(PLACES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument("--ttl", type=float, default=3.0, help="in seconds")
    parser.add_argument("--gap", type=float, default=1.5, help="from one kill to the next, on average, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--planted", default="", choices=("", *planted.BUGS), help="a bug, to see that it is found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

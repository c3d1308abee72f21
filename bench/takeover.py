"""How long is a lock without a holder? From `kill -9` of a holder, and from a voluntary release, to the next holder.

    python bench/takeover.py [--json] [--store redis …] [--kills 20] [--ttl 3]

- *kill*: a process holds a lock and renews it; another process waits for it; the first is killed. Several pairs run
  at a time, on locks of their own. Promise: p99 ≤ ttl + 1 s on every store. (The memory store's holder is a thread that
  is stopped for good: it has no processes that could die.)
- *resign*: an elected leader resigns; the other candidate leads. *release*: a lock is released and another node waits
  for it. Promise: p99 ≤ 0.3 s on stores with a watch.

With 20 samples the p99 is the largest.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

from stores import NAMES, Place, in_project_environment, running

in_project_environment()

from fencepost import locks  # noqa: E402
from fencepost.testing import until  # noqa: E402
from fencepost.testing.contenders import ProcessContender, ThreadContender  # noqa: E402
from fencepost.threaded import ThreadedRuntime  # noqa: E402

logging.getLogger("fencepost").setLevel(logging.CRITICAL)
AT_A_TIME = 5
NOW = ThreadedRuntime().monotonic


def main() -> None:
    options = _options()
    results: dict[str, dict[str, Any]] = {}
    for name in options.store or NAMES:
        with running(name) as place:
            results[name] = measure(place, options)
        _say(options, name, results[name])
    if options.json:
        print(json.dumps({"ttl_s": options.ttl, "stores": results}))
    broken = [name for name, result in results.items() if not result["kept"]]
    if broken:
        sys.exit(f"promise broken on: {', '.join(broken)}")


def measure(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    with locks.connect(place.url) as store:
        has_watch = store.capabilities.watch
        killed = takeovers_by_kill(place, options.kills, options.ttl)
    resigned = hand_overs(place, options, by_resignation)
    released = hand_overs(place, options, by_release)
    worst_hand_over = max(_p99(resigned), _p99(released))
    return {
        "kill_p50_s": _quantile(killed, 0.5),
        "kill_p99_s": _p99(killed),
        "resign_p50_s": _quantile(resigned, 0.5),
        "resign_p99_s": _p99(resigned),
        "release_p99_s": _p99(released),
        "watch": has_watch,
        "kept": _p99(killed) <= options.ttl + 1 and (worst_hand_over <= 0.3 or not has_watch),
    }


# -- kill -9 ---------------------------------------------------------------------------------------------------------


def takeovers_by_kill(place: Place, kills: int, ttl_s: float) -> list[float]:
    kind: Any = ThreadContender if place.name == "memory" else ProcessContender
    waiters = [kind(place.url) for _ in range(min(AT_A_TIME, kills))]
    times: list[float] = []
    try:
        while len(times) < kills:
            times += _one_batch(kind, place, waiters[: kills - len(times)], ttl_s, batch=len(times))
    finally:
        for waiter in waiters:
            waiter.end()
    return times


def _one_batch(kind: Any, place: Place, waiters: list[Any], ttl_s: float, *, batch: int) -> list[float]:
    holders = [kind(place.url) for _ in waiters]
    names = [f"kill/{batch}/{index}" for index in range(len(waiters))]
    for holder, name in zip(holders, names, strict=True):
        assert "holder" in holder.ask("lock", name=name, ttl=ttl_s)
    for waiter, name in zip(waiters, names, strict=True):
        assert "held_by" in waiter.ask("lock", name=name, ttl=ttl_s)
        waiter.send("lock", name=name, ttl=ttl_s, wait=20 * ttl_s)
    threading.Event().wait(ttl_s)  # renewals come every ttl/3: the kill falls right after one, the worst moment
    times = []
    for holder, waiter in zip(holders, waiters, strict=True):
        killed_at = NOW()
        holder.kill()
        times.append((killed_at, waiter))
    taken = [waiter.hear()["at"] - killed_at for killed_at, waiter in times]
    for waiter, name in zip(waiters, names, strict=True):
        waiter.ask("release", name=name)
    for holder in holders:
        holder.end()
    return taken


# -- hand-over -------------------------------------------------------------------------------------------------------


def hand_overs(place: Place, options: argparse.Namespace, how: Callable[..., list[float]]) -> list[float]:
    with locks.connect(place.url) as one, locks.connect(place.url) as other:
        return how(one, other, options.kills, options.ttl)


def by_resignation(one: locks.Locks, other: locks.Locks, times: int, ttl_s: float) -> list[float]:
    elected_at: dict[str, float] = {}
    names = [f"resign/{index}" for index in range(times)]
    firsts = [one.election(name, ttl=ttl_s) for name in names]
    until(lambda: all(first.is_leader for first in firsts), 60, "the first node leads everywhere")
    for name in names:
        other.election(name, ttl=ttl_s, on_elected=lambda lease: elected_at.setdefault(lease.name, NOW()))
    until(lambda: all(election.leader for election in other._elections), 60, "the second node stands by everywhere")
    taken = []
    for first in firsts:
        resigned_at = NOW()
        assert first.resign(), "it did not lead any more"
        until(lambda name=first.name: name in elected_at, 30, "the second node leads")
        taken.append(elected_at[first.name] - resigned_at)
    return taken


def by_release(one: locks.Locks, other: locks.Locks, times: int, ttl_s: float) -> list[float]:
    got_at: dict[str, float] = {}

    def wait(name: str) -> None:
        lease = other.lock(name, ttl=ttl_s, wait=120).acquire()
        got_at[name] = NOW()
        lease.release()

    leases = [one.lock(f"release/{index}", ttl=ttl_s).acquire() for index in range(times)]
    waiters = [threading.Thread(target=wait, args=(lease.name,)) for lease in leases]
    for waiter in waiters:
        waiter.start()
    threading.Event().wait(1.0)  # all of them are asleep in their watch by now
    taken = []
    for lease in leases:
        released_at = NOW()
        assert lease.release(), "it was lost"
        until(lambda name=lease.name: name in got_at, 30, "the waiter gets it")
        taken.append(got_at[lease.name] - released_at)
    for waiter in waiters:
        waiter.join()
    return taken


# -- the rest --------------------------------------------------------------------------------------------------------


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1], 3)


def _p99(values: list[float]) -> float:
    return _quantile(values, 0.99)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--store", action="append", choices=NAMES, help="only this store; may be repeated")
    parser.add_argument("--kills", type=int, default=20, help="how many of each")
    parser.add_argument("--ttl", type=float, default=3.0, help="in seconds")
    return parser.parse_args()


def _say(options: argparse.Namespace, name: str, result: dict[str, Any]) -> None:
    line = (
        f"{name:12} kill -9: p50 {result['kill_p50_s']:.2f} s, p99 {result['kill_p99_s']:.2f} s"
        f" (ttl {options.ttl:g} s); resign p50 {result['resign_p50_s']:.3f} s, p99 {result['resign_p99_s']:.3f} s;"
        f" release p99 {result['release_p99_s']:.3f} s{'' if result['watch'] else ' (polls)'}"
        f"{'' if result['kept'] else '  ← promise broken'}"
    )
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()

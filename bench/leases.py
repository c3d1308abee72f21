"""How fast are locks? Acquire+release pairs per second, side by side with the barest equivalent.

    python bench/leases.py [--json] [--store redis …] [--seconds 0.1] [--rounds 41]

All contestants of a store take turns in one run on one server, and what is printed is the median of the ratios of the
turns: this machine may be noisy, but it is noisy for all of them. `ratio` is Fencepost's rate over the bare one's with
one client; `ratio_contended` with eight processes that want the same lock. `vs_driver_lock` compares with the lock that
the driver itself ships (redis-py, kazoo). `renew_1000_round_trips` is measured, too: the time to renew a thousand locks
through a proxy that adds a second to every round trip, in whole seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stores import NAMES, Place, in_project_environment, running

in_project_environment()

from bare import BARE, DRIVERS_OWN, Bare  # noqa: E402

from fencepost import locks  # noqa: E402
from fencepost.leases.schemes import store_from_url  # noqa: E402
from fencepost.threaded import ThreadedRuntime  # noqa: E402
from testbed.proxy import Proxy  # noqa: E402

logging.getLogger("fencepost").setLevel(logging.ERROR)

DELAY_S = 0.5  # each way
Pair = Callable[[], None]


def main() -> None:
    options = _options()
    results: dict[str, dict[str, Any]] = {}
    for name in options.store or NAMES:
        with running(name) as place:
            results[name] = measure(place, options)
        _say(options, name, results[name])
    if options.json:
        print(json.dumps({"stores": results}))


def measure(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    single = take_turns(contestants(place), options.rounds, options.seconds)
    contended = take_turns(contended_contestants(place, options), options.contended_rounds, None)
    ours, bare = single["fencepost"], single["bare"]
    result: dict[str, Any] = {
        "ratio": _ratio(ours, bare),
        "ratio_contended": _ratio(contended["fencepost"], contended["bare"]),
        "renew_1000_round_trips": round_trips_to_renew(place, 1000),
        "pairs_per_s": round(statistics.median(ours)),
        "bare_pairs_per_s": round(statistics.median(bare)),
        "contended_pairs_per_s": round(statistics.median(contended["fencepost"])),
        "bare_contended_pairs_per_s": round(statistics.median(contended["bare"])),
    }
    if "driver" in single:
        result["vs_driver_lock"] = _ratio(ours, single["driver"])
    return result


# -- one client ------------------------------------------------------------------------------------------------------


@contextmanager
def contestants(place: Place) -> Iterator[dict[str, Callable[[float], float]]]:
    with locks.connect(place.url) as store:
        pairs = {"fencepost": _our_pair(store, "single"), "bare": _bare_pair(BARE[place.name](place.url, "single"))}
        if place.name in DRIVERS_OWN:
            pairs["driver"] = _bare_pair(DRIVERS_OWN[place.name](place.url, "single"))
        yield {name: lambda seconds, pair=pair: rate(pair, seconds) for name, pair in pairs.items()}


def rate(pair: Pair, seconds: float) -> float:
    pair()
    count, began_at = 0, time.perf_counter()
    while (spent := time.perf_counter() - began_at) < seconds:
        pair()
        count += 1
    return count / spent


def _our_pair(store: locks.Locks, name: str) -> Pair:
    def pair() -> None:
        with store.lock(name):
            pass

    return pair


def _bare_pair(bare: Bare) -> Pair:
    def pair() -> None:
        if not bare.try_acquire():
            raise RuntimeError("the bare lock is not held")
        bare.release()

    return pair


# -- eight clients ---------------------------------------------------------------------------------------------------


@contextmanager
def contended_contestants(place: Place, options: argparse.Namespace) -> Iterator[dict[str, Callable[[Any], float]]]:
    given = options.clients, options.contended_seconds
    yield {kind: lambda _, kind=kind: contended_rate(place, kind, *given) for kind in ("fencepost", "bare")}


def contended_rate(place: Place, kind: str, clients: int, seconds: float) -> float:
    """Count the pairs that so many clients get through together; threads where a store is only one process."""
    context: Any = multiprocessing.get_context("spawn")
    if place.name == "memory":
        import multiprocessing.dummy as context
    barrier, counts = _barrier_and_counts(context, place, clients)
    workers = [context.Process(target=_contend, args=(place, kind, seconds, barrier, counts)) for _ in range(clients)]
    for worker in workers:
        worker.start()
    total = sum(counts.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds


def _barrier_and_counts(context: Any, place: Place, clients: int) -> tuple[Any, Any]:
    if place.name == "memory":
        import queue
        import threading

        return threading.Barrier(clients), queue.Queue()
    return context.Barrier(clients), context.Queue()


def _contend(place: Place, kind: str, seconds: float, barrier: Any, counts: Any) -> None:
    count = 0
    if kind == "fencepost":
        store = locks.connect(place.url)
        barrier.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with store.lock("contended", wait=60):
                count += 1
        counts.put(count)
        store.close()
    else:
        bare = BARE[place.name](place.url, "contended")
        barrier.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if bare.try_acquire():
                bare.release()
                count += 1
            else:
                time.sleep(0.001)
        counts.put(count)


# -- renewal ---------------------------------------------------------------------------------------------------------


def round_trips_to_renew(place: Place, how_many: int) -> int:
    """Renew through a proxy that makes a round trip last a second, and count the seconds."""
    if not place.port:
        return 0
    runtime = ThreadedRuntime()
    with Proxy(place.host, place.port) as proxy:
        joint = "&" if "?" in place.url else "?"
        store = store_from_url(proxy.through(place.url) + f"{joint}call_timeout=60s", runtime)
        store.start()
        session = store.open("bench", ttl_s=60, call_timeout_s=30)
        grants = [store.acquire(session, f"many/{i}", grant_id=runtime.new_id()) for i in range(how_many)]
        store.renew(session, grants)  # type: ignore[arg-type]
        proxy.delay(DELAY_S)
        began_at = time.perf_counter()
        outcome = store.renew(session, grants)  # type: ignore[arg-type]
        spent = time.perf_counter() - began_at
        proxy.delay(0)
        assert not getattr(outcome, "gone", True), outcome
        store.close(session)
        store.shutdown()
    return int(spent / (2 * DELAY_S))


# -- the rest --------------------------------------------------------------------------------------------------------


def take_turns(entered: Any, rounds: int, seconds: float | None) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    with entered as contestants:
        for turn in range(rounds):
            order = list(contestants.items())
            for name, run in order if turn % 2 else reversed(order):
                rates.setdefault(name, []).append(run(seconds))
    return rates


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--store", action="append", choices=NAMES, help="only this store; may be repeated")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long each contestant's turn lasts")
    parser.add_argument(
        "--rounds", type=int, default=41, help="how many turns each has; many short ones even out noise"
    )
    parser.add_argument("--contended-seconds", type=float, default=2.0, help="the same for many clients together")
    parser.add_argument("--contended-rounds", type=int, default=3, help="how many turns they have")
    parser.add_argument("--clients", type=int, default=8, help="how many they are")
    return parser.parse_args()


def _say(options: argparse.Namespace, name: str, result: dict[str, Any]) -> None:
    line = (
        f"{name:12} {result['pairs_per_s']:>7,} pairs/s of {result['bare_pairs_per_s']:>7,} bare"
        f" = {result['ratio']:.2f}; contended {result['contended_pairs_per_s']:>6,} of"
        f" {result['bare_contended_pairs_per_s']:>6,} = {result['ratio_contended']:.2f};"
        f" renewing 1,000 takes {result['renew_1000_round_trips']} round trip(s)"
    )
    if "vs_driver_lock" in result:
        line += f"; against the driver's own lock {result['vs_driver_lock']:.2f}"
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()

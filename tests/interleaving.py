"""Calls made statement by statement, in orders of our choosing, by two or three sessions on a real database.

Each actor makes one call on a thread of its own and stops before every statement. An order lets one actor execute a few
statements, then others, then the first again; who waits for another's lock is passed over until it has it.

How many orders a scene has is a matter of arithmetic, and of patience. `make test` plays a part of them, spread
evenly over all and the same every time; with ``FENCEPOST_INTERLEAVE=full``, as in `make interleave`, all are played.
"""

from __future__ import annotations

import itertools
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fencepost.testing import Stopwatch

PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.002

Order = tuple[int, ...]


class Actor:
    """Makes one call, statement by statement. `waits` says whether its session waits for a lock at this moment."""

    def __init__(self, name: str, waits: Callable[[], bool]) -> None:
        self.name = name
        self.outcome: Any = None
        self.is_done = True
        self.is_in_statement = False
        self._waits = waits
        self._go: queue.Queue[None] = queue.Queue()
        self._news: queue.Queue[str] = queue.Queue()

    def begin(self, act: Callable[[], Any]) -> None:
        """Go as far as the first statement."""
        self.outcome = None
        self.is_done = self.is_in_statement = False
        threading.Thread(target=self._run, args=(act,), daemon=True).start()
        self._hear(PATIENCE_S)

    def step(self) -> None:
        """Execute the next statement: to its end, or until it waits for another's lock."""
        if self.is_done:
            return
        if not self.is_in_statement:
            self.is_in_statement = True
            self._go.put(None)
        self._hears_within(LOOK_AGAIN_S)
        self.settle()

    def settle(self) -> None:
        """See what has become of a statement on its way: it ends, or it waits."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self.is_in_statement and not self._waits():
            self._hears_within(LOOK_AGAIN_S)
            assert time.monotonic() < give_up_at, f"{self.name} neither ends nor waits"

    def stop(self) -> None:
        """Stop before a statement, on the thread of the call."""
        self._news.put("stopped")
        self._go.get(timeout=PATIENCE_S)

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            self.outcome = act()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.outcome = error
        self._news.put("done")

    def _hears_within(self, timeout_s: float) -> None:
        try:
            self._hear(timeout_s)
        except queue.Empty:
            return

    def _hear(self, timeout_s: float) -> None:
        self.is_done = self._news.get(timeout=timeout_s) == "done"
        self.is_in_statement = False


def play(actors: Sequence[Actor], order: Sequence[int], look: Callable[[], None] = lambda: None) -> float:
    """Let actors that have begun make their steps in this order, and then whatever is left, to the end.

    `look` is called between any two steps, when every statement on its way either waits or has ended. Returned is for
    how many seconds at most nobody could go on, since all that were left waited for each other: a deadlock, which the
    server has to notice. (How long it took is no measure: the machine may be busy.)
    """
    with Stopwatch() as since:
        return _played(actors, order, look, since)


def _played(actors: Sequence[Actor], order: Sequence[int], look: Callable[[], None], since: Stopwatch) -> float:
    stuck_s, stuck_since = 0.0, None
    for number in itertools.chain(order, itertools.cycle(range(len(actors)))):
        if all(actor.is_done for actor in actors):
            break
        if actors[number].is_done:
            continue
        actors[number].step()
        for actor in actors:
            actor.settle()
        look()
        now_s = since.awake_s
        stuck_since = (stuck_since or now_s) if _all_wait(actors) else None
        stuck_s = max(stuck_s, now_s - stuck_since) if stuck_since is not None else stuck_s
        assert now_s < PATIENCE_S, (order, "is not over", [actor.is_done for actor in actors])
    return stuck_s


def _all_wait(actors: Sequence[Actor]) -> bool:
    return all(actor.is_done or actor.is_in_statement for actor in actors)


# -- which orders


def interrupted_once(counts: Sequence[int]) -> Iterator[Order]:
    """Yield the orders, as numbers of actors, in which each actor is interrupted at most once."""
    for order in itertools.permutations(range(len(counts))):
        *early, last = order
        for steps in itertools.product(*(range(counts[actor] + 1) for actor in early)):
            begun = [actor for actor, many in zip(early, steps, strict=True) for _ in range(many)]
            yield (*begun, *[last] * counts[last])


def at_random(counts: Sequence[int], many: int) -> Iterator[Order]:
    """Yield orders in which the actors are interrupted at random: the same ones every time."""
    for seed in range(many):
        yield tuple(random.Random(seed).choices(range(len(counts)), k=sum(counts)))


def every(counts: Sequence[int]) -> Iterator[Order]:
    """Yield every order there is."""
    if not any(counts):
        yield ()
    for number, count in enumerate(counts):
        if count:
            fewer = [*counts[:number], count - 1, *counts[number + 1 :]]
            yield from ((number, *rest) for rest in every(fewer))


# -- how many of them


class Tally:
    """How many orders the test that runs at present has tried."""

    tried = 0


def is_full() -> bool:
    return os.environ.get("FENCEPOST_INTERLEAVE") == "full"


def chosen(orders: Iterable[Order], *, part: int) -> Iterator[Order]:
    """Yield all of them, each once; or, where there is little time, `part` of them, spread evenly."""
    distinct = list(dict.fromkeys(orders))
    for order in distinct if is_full() else spread(distinct, part):
        Tally.tried += 1
        yield order


def spread(orders: Sequence[Order], part: int) -> list[Order]:
    """Choose so many, with the first and the last among them."""
    if len(orders) <= part:
        return list(orders)
    return [orders[number * (len(orders) - 1) // (part - 1)] for number in range(part)]

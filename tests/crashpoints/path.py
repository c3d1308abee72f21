"""A path: what there is before it, and what the victim does, which is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.crashpoints.by_hand import HandNode
from tests.crashpoints.world import World

BULK = "bulk"  # the family of bulk work
FENCE = "fence"  # of transactions behind a fence
Do = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Path:
    """`family` is the word of it in the table; what `prepare` does is not cut, what `act` does is.

    `beside` names paths that are cut at the same transactions, as far as they have the same: here they are not again.
    """

    family: str
    name: str
    prepare: Do
    act: Do
    beside: tuple[str, ...] = ()


PATHS: dict[str, Path] = {}


def path(family: str, name: str, prepare: Do, *, beside: tuple[str, ...] = ()) -> Callable[[Do], Do]:
    """Name what the victim does."""

    def noted(act: Do) -> Do:
        PATHS[name] = Path(family, name, prepare, act, beside)
        return act

    return noted


def claimed(node: HandNode, steps: int = 6) -> None:
    """Let a node claim all there is."""
    for _ in range(steps):
        node.state.hint()
        node.exchange.step(node.runtime.monotonic())

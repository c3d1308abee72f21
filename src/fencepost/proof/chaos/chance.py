"""Chance that a seed repeats. What the faults meet is not repeated: the processes are real."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """A row of numbers that a seed gives, the same at every start."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._drawn = 0

    def random(self) -> float:
        """Return a number in [0, 1)."""
        self._drawn += 1
        digest = hashlib.sha256(f"{self.seed}:{self._drawn}".encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    def between(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + (high - low) * self.random()

    def stretched(self, low: float, high: float) -> float:
        """Return a number in [low, high) of which small ones are as likely as large ones, in proportion."""
        return low * math.exp(self.random() * math.log(high / low))

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of them."""
        return choices[int(self.random() * len(choices))]

    def weighted(self, weights: Mapping[T, float]) -> T:
        """Return one of the keys; the larger its weight, the likelier."""
        left = self.random() * sum(weights.values())
        choices = list(weights)
        for choice in choices:
            left -= weights[choice]
            if left < 0:
                return choice
        return choices[-1]

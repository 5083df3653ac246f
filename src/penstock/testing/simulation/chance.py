"""Chance that repeats: everything a simulation leaves to it comes from one seed."""

import random
from collections.abc import Sequence
from typing import TypeVar

A = TypeVar("A")


class Chance:
    """Draws from a seed; each part of a simulation gets its own, so that one does not shift another."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = random.Random(seed)

    def fork(self, name: str) -> "Chance":
        """Another source of chance that depends on the seed and the name alone."""
        return Chance(f"{self._seed}/{name}")

    def happens(self, probability: float) -> bool:
        """True in that part of all cases."""
        return self._random.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number in the range."""
        return self._random.uniform(low, high)

    def whole(self, low: int, high: int) -> int:
        """A whole number in the range, both ends included."""
        return self._random.randint(low, high)

    def one_of(self, choices: Sequence[A]) -> A:
        """One of them."""
        return self._random.choice(choices)

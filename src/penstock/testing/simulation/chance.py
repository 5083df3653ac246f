"""Repeatable randomness: every random choice of a simulation comes from one seed."""

import random
from collections.abc import Sequence
from typing import TypeVar

A = TypeVar("A")


class Chance:
    """Random numbers from a seed; each part of a simulation has its own, so that parts do not affect each other."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = random.Random(seed)

    def fork(self, name: str) -> "Chance":
        """Return another source that depends only on the seed and the name."""
        return Chance(f"{self._seed}/{name}")

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def between(self, low: float, high: float) -> float:
        """Return a number in the range."""
        return self._random.uniform(low, high)

    def whole(self, low: int, high: int) -> int:
        """Return an integer in the range, both ends included."""
        return self._random.randint(low, high)

    def one_of(self, choices: Sequence[A]) -> A:
        """Return one of the choices."""
        return self._random.choice(choices)

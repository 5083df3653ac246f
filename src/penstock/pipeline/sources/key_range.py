"""Ranges of a key that together give every row exactly once, wherever their boundaries are."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

Key = TypeVar("Key", int, str)


class KeyRange(msgspec.Struct, frozen=True):
    """From `lower` on and before `upper`; without one, from the first or to the last."""

    lower: int | str | None = None
    upper: int | str | None = None


EVERYTHING = KeyRange()


def ranges_between(boundaries: Iterable[int] | Iterable[str]) -> list[KeyRange]:
    """The ranges that ordered boundaries make; all keys in one when there are none."""
    return [KeyRange(lower, upper) for lower, upper in pairwise((None, *boundaries, None))]


def quantiles(sample: Sequence[Key], count: int) -> list[Key]:
    """Up to `count - 1` boundaries, in order, that divide a sample into parts of about one size."""
    ordered = sorted(sample)
    if not ordered:
        return []
    return sorted({ordered[len(ordered) * place // count] for place in range(1, count)})

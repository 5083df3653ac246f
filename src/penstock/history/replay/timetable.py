"""Keeps a rate with independent tasks: one timetable, each slot of which belongs to one task.

Slots follow each other at the rate. They come in rounds, in which each part has slots in proportion to its jobs, spread
evenly. A slot that its owner missed stays empty, so there are never more than N in any second, and a part with most of
the jobs has most of the rate.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock

_ROUND = 1000


class Timetable(msgspec.Struct, frozen=True):
    """`per_s` slots a second from `start_ms` on; `shares` has the number of each part's slots in a round."""

    start_ms: int
    per_s: int
    shares: tuple[int, ...]

    def slots_of(self, part: int) -> "PartSlots":
        """Return the slots of one part, from the first on."""
        return PartSlots(self, part)

    def time_ms(self, slot: int) -> int:
        """Return when a slot begins."""
        return self.start_ms + -(-slot * SECOND_MS // self.per_s)

    def slot_at(self, time_ms: int) -> int:
        """Return the first slot that does not begin before a time."""
        since_ms = time_ms - self.start_ms
        return (since_ms - 1) * self.per_s // SECOND_MS + 1 if since_ms > 0 else 0


class PartSlots:
    """Hands out the slots of one part, each once."""

    def __init__(self, timetable: Timetable, part: int) -> None:
        self._timetable = timetable
        self._round = sum(timetable.shares)
        self._places = places(timetable.shares, part)
        self._next = 0

    def take(self, now_ms: int) -> int:
        """Return when the next slot that is not past begins."""
        number = max(self._next, self._first_from(self._timetable.slot_at(now_ms)))
        self._next = number + 1
        return self._timetable.time_ms(self._nth(number))

    def _nth(self, number: int) -> int:
        rounds, place = divmod(number, len(self._places))
        return rounds * self._round + self._places[place]

    def _first_from(self, slot: int) -> int:
        """Return how many of this part's slots come before a slot."""
        rounds, place = divmod(slot, self._round)
        return rounds * len(self._places) + bisect_left(self._places, place)


def timetable(start_ms: int, per_s: int, counts: Sequence[int]) -> Timetable:
    """Return a timetable for parts with these numbers of jobs; a part without jobs has a slot, too."""
    total = max(1, sum(counts))
    size = min(total, _ROUND)
    return Timetable(start_ms, per_s, tuple(max(1, count * size // total) for count in counts))


def places(shares: Sequence[int], part: int) -> tuple[int, ...]:
    """Return the places of a part's slots in a round, spread evenly; the parts' places are disjoint and cover it."""
    own = shares[part]
    return tuple(
        sum(_before(place, own, share, other < part) for other, share in enumerate(shares)) for place in range(own)
    )


def _before(place: int, own: int, share: int, ties_first: bool) -> int:
    """Return how many of another part's places come before this one; place k of n is at (2k + 1) / 2n of a round."""
    bound = (2 * place + 1) * share - (0 if ties_first else 1)
    return (bound // own + 1) // 2


class ReplayPace:
    """Says when a task's next delivery may begin; at once without a timetable."""

    def __init__(self, timetable: Timetable | None, part: int, clock: Clock) -> None:
        self._slots = None if timetable is None else timetable.slots_of(part)
        self._clock = clock

    def wait_s(self) -> float:
        """Take the next slot and return how long to wait for it."""
        if self._slots is None:
            return 0.0
        now_ms = self._clock.now_ms()
        return (self._slots.take(now_ms) - now_ms) / SECOND_MS

    def due_ms(self) -> int | None:
        """Return the time of the next slot; None without a timetable."""
        return None if self._slots is None else self._slots.take(0)

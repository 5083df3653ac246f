"""Deduplication: an id seen again within the window gets the first answer."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class _Sighting(msgspec.Struct, Generic[T], gc=False):
    """Ids that were seen together, each with its answer.

    There may be millions, so neither they nor their tuples are tracked by the garbage collector.
    """

    keys: tuple[str, ...]
    answers: tuple[T, ...]
    expires_ms: int


class DedupWindow(Generic[T]):
    """Remembers the answer to each id until the window has passed since the id was first seen.

    Deleting a message does not forget its id: a late retry of a send must not create a second message.
    """

    __slots__ = ("_order", "_sightings", "_window_ms")

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._sightings: dict[str, _Sighting[T]] = {}
        self._order: deque[_Sighting[T]] = deque()

    def __len__(self) -> int:
        return len(self._sightings)

    def find(self, key: str, now_ms: int) -> T | None:
        """Return the answer remembered for an id, or None if its window has passed."""
        self.evict(now_ms)
        seen = self._sightings.get(key)
        return None if seen is None else seen.answers[seen.keys.index(key)]

    def remember(self, key: str, answer: T, first_seen_ms: int) -> None:
        """Remember the answer for an id. Calls must be in order of `first_seen_ms`."""
        self._sightings[key] = seen = _Sighting((key,), (answer,), first_seen_ms + self._window_ms)
        self._order.append(seen)

    def remember_new(self, keys: Sequence[str], answers: Sequence[T], now_ms: int) -> bool:
        """Remember several ids at once; return False and remember none if one is known or occurs twice."""
        self.evict(now_ms)
        if len(set(keys)) != len(keys) or not self._sightings.keys().isdisjoint(keys):
            return False
        seen = _Sighting(tuple(keys), tuple(answers), now_ms + self._window_ms)
        self._sightings.update(dict.fromkeys(keys, seen))
        self._order.append(seen)
        return True

    def absorb(self, later: "DedupWindow[T]") -> None:
        """Remember what another window saw after this one."""
        self._sightings.update(later._sightings)
        self._order.extend(later._order)

    def forget(self, key: str) -> None:
        """Forget an id whose send failed."""
        self._sightings.pop(key, None)

    def forget_all(self, keys: Sequence[str]) -> None:
        """Forget several ids."""
        for key in keys:
            self.forget(key)

    def evict(self, now_ms: int) -> None:
        """Forget the ids whose window has passed."""
        order = self._order
        while order and order[0].expires_ms <= now_ms:
            seen = order.popleft()
            for key in seen.keys:
                if self._sightings.get(key) is seen:
                    del self._sightings[key]

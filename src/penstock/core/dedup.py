"""Deduplication: an id seen within the window answers with what it gave the first time."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class DedupWindow(Generic[T]):
    """Remembers what each id was answered with, until the window has passed since it was first seen.

    Deleting a message does not forget its id: a late retry of a send must not make a second message.
    """

    __slots__ = ("_answers", "_order", "_window_ms")

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        # One value stands in both: when it expires, what is known of its id, and whether that is still this.
        self._answers: dict[str, tuple[int, str, T]] = {}
        self._order: deque[tuple[int, str, T]] = deque()

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: str, now_ms: int) -> T | None:
        """The answer remembered for an id, if its window has not passed."""
        self.evict(now_ms)
        found = self._answers.get(key)
        return None if found is None else found[2]

    def remember(self, key: str, answer: T, first_seen_ms: int) -> None:
        """Answer later sightings of this id with `answer`. Ids are remembered in order of `first_seen_ms`."""
        self._answers[key] = seen = (first_seen_ms + self._window_ms, key, answer)
        self._order.append(seen)

    def claim(self, key: str, answer: T, first_seen_ms: int) -> T | None:
        """The answer already remembered for an id; None if there was none, and `answer` is remembered now.

        `find` and `remember` in one, for many ids in a row: `evict` first, or one that is past its window is found.
        """
        seen = (first_seen_ms + self._window_ms, key, answer)
        found = self._answers.setdefault(key, seen)
        if found is not seen:
            return found[2]
        self._order.append(seen)
        return None

    def forget(self, key: str) -> None:
        """Take back what was remembered, when the send it stood for failed."""
        self._answers.pop(key, None)

    def evict(self, now_ms: int) -> None:
        """Forget the ids whose window has passed."""
        order = self._order
        while order and order[0][0] <= now_ms:
            seen = order.popleft()
            if self._answers.get(seen[1]) is seen:
                del self._answers[seen[1]]

"""Which messages go into the next batch: several groups at once, and each group in order, whatever fails.

The entries of a batch fail one by one. So at most one batch with messages of a group is under way, and unless the
server is known to take or refuse the messages of a group together, only one message of the group is in it: if it fails,
nothing later of the group is in the queue.
"""

from collections import deque
from typing import Protocol

import msgspec

from penstock.sources.errors import HeldBack
from penstock.sources.sqs_model import SendEntry


class Sender(Protocol):
    """Who waits for messages."""

    def tell(self, place: int, error: Exception | None) -> None:
        """One of its messages, the one at this place, is in; or why it is not."""


class Parcel(msgspec.Struct, eq=False):
    """A message to send, and who waits for it."""

    # None: it has no order to keep.
    group: str | None
    entry: SendEntry
    size_bytes: int
    sender: Sender
    # Which of the sender's messages it is.
    place: int


class Outbox:
    """Messages that wait to be sent, by group."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        # Whether a batch may hold several messages of a group.
        self.together = False
        self._lanes: dict[str, deque[Parcel]] = {}
        self._loose: deque[Parcel] = deque()
        self._ready: deque[str] = deque()

    def __bool__(self) -> bool:
        """Whether something could be sent now."""
        return bool(self._ready or self._loose)

    def add(self, parcel: Parcel) -> None:
        """Put a message behind those of its group."""
        if parcel.group is None:
            self._loose.append(parcel)
        elif (lane := self._lanes.get(parcel.group)) is not None:
            lane.append(parcel)
        else:
            self._lanes[parcel.group] = deque([parcel])
            self._ready.append(parcel.group)

    def next_batch(self) -> list[Parcel]:
        """The next messages to send, at least one if there is any; their groups wait until `ended`."""
        batch = _Batch(self._most, self._most_bytes)
        while self._ready and batch.take_from(self._lanes[self._ready[0]], self.together):
            self._ready.popleft()
        while self._loose and batch.take_from(self._loose, together=False):
            pass
        return batch.parcels

    def ended(self, batch: list[Parcel], errors: "list[Exception | None]") -> None:
        """A batch came to its end: per message None, or why it is not in; that holds its group's later ones back."""
        failed = {parcel.group for parcel, error in zip(batch, errors, strict=True) if error is not None}
        for group in dict.fromkeys(parcel.group for parcel in batch if parcel.group is not None):
            lane = self._lanes[group]
            if group in failed:
                while lane:
                    held = lane.popleft()
                    held.sender.tell(held.place, HeldBack(group))
            if lane:
                self._ready.append(group)
            else:
                del self._lanes[group]
        for parcel, error in zip(batch, errors, strict=True):
            parcel.sender.tell(parcel.place, error)


class _Batch:
    """A batch that is being filled."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._room = most
        self._room_bytes = most_bytes
        self.parcels: list[Parcel] = []

    def take_from(self, lane: deque[Parcel], together: bool) -> bool:
        """Take the lane's first message, or as many as fit; False if none fits."""
        before = len(self.parcels)
        while lane and self._fits(lane[0]):
            parcel = lane.popleft()
            self._room -= 1
            self._room_bytes -= parcel.size_bytes
            self.parcels.append(parcel)
            if not together:
                break
        return len(self.parcels) > before

    def _fits(self, parcel: Parcel) -> bool:
        return self._room > 0 and (parcel.size_bytes <= self._room_bytes or not self.parcels)

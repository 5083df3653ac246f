"""The publisher's end of an SQS queue: batches of ten across groups and calls, several at once.

Which messages go into the next batch: several groups at once, and each group in order, whatever fails.

The entries of a batch fail one by one. So at most one batch with messages of a group is under way, and unless the
server is known to take or refuse the messages of a group together, only one message of the group is in it: if it fails,
nothing later of the group is in the queue.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB
from penstock.domain.pointer import DEFAULT_GROUP
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.queues.errors import HeldBack, InvalidPublication
from penstock.queues.port import Publication
from penstock.queues.sqs.client import GROUP_ATTRIBUTE, MAX_BATCH, AttributeValue, SendEntry, SqsClient, failure
from penstock.queues.uri import SqsUri


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


class SqsOutbox:
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


_BATCHES_AT_ONCE = 8
# A Penstock server writes what comes together in one commit, so that more at once is less work.
_BATCHES_AT_ONCE_TO_PENSTOCK = 24
_MAX_BATCH_BYTES = MIB
_IDENTIFIER = re.compile("[!-~]{1,128}")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Only a Penstock server has it. It takes the messages of a group in one batch together, or none of them.
_PENSTOCK_ATTRIBUTE = "PartitionCount"


class SqsPublisher:
    """Sends messages; within a group nothing is sent before what stands before it is in."""

    def __init__(self, uri: SqsUri, *, clock: Clock | None = None) -> None:
        self._fifo = uri.fifo
        self._clock = clock or SystemClock()
        self._client = SqsClient(uri, self._clock)
        self._ids = process_ids()
        self._outbox = SqsOutbox(MAX_BATCH, _MAX_BATCH_BYTES)
        self._largest_bytes = _MAX_BATCH_BYTES
        self._batches_at_once = _BATCHES_AT_ONCE
        self._round: asyncio.Handle | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Ask for the queue's settings; Unavailable or NotFound if that cannot be."""
        attributes = await self._client.open()
        self._largest_bytes = int(attributes.get("MaximumMessageSize", _MAX_BATCH_BYTES))
        is_penstock = _PENSTOCK_ATTRIBUTE in attributes
        self._outbox.together = is_penstock
        self._batches_at_once = _BATCHES_AT_ONCE_TO_PENSTOCK if is_penstock else _BATCHES_AT_ONCE

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, in order; per message None, or why it is not in."""
        if not publications:
            return []
        call = _Call(len(publications))
        self._give_all(publications, call)
        await call.done
        return call.outcomes

    async def close(self) -> None:
        """Finish what was given, and hang up."""
        self._send_more()
        while self._under_way:
            await asyncio.wait(self._under_way)
        self._client.close()

    def _give_all(self, publications: Sequence[Publication], call: "_Call") -> None:
        refused: set[str] = set()
        for place, publication in enumerate(publications):
            group = publication.group
            try:
                if group in refused:
                    raise HeldBack(group)
                entry = self._entry(publication)
            except PenstockError as error:
                call.tell(place, error)
                if group is not None:
                    refused.add(group)
            else:
                self._outbox.add(Parcel(group, entry, len(publication.body), call, place))
        # In the loop's next round, so that calls of one moment share batches.
        if self._round is None:
            self._round = asyncio.get_running_loop().call_soon(self._send_more)

    def _entry(self, publication: Publication) -> SendEntry:
        """The message on the wire; InvalidPublication if SQS cannot carry it."""
        entry = SendEntry("", _text(publication.body, self._largest_bytes))
        group = publication.group
        if self._fifo:
            entry.message_group_id = DEFAULT_GROUP if group is None else _identifier(group)
            entry.message_deduplication_id = _identifier(
                publication.dedup_id or self._ids.next_id(self._clock.now_ms())
            )
        if group is not None and entry.message_group_id != group:
            entry.message_attributes = {GROUP_ATTRIBUTE: AttributeValue(string_value=group)}
        return entry

    def _send_more(self) -> None:
        self._round = None
        while self._outbox and len(self._under_way) < self._batches_at_once:
            task = asyncio.get_running_loop().create_task(self._send(self._outbox.next_batch()))
            self._under_way.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._send_more()

    async def _send(self, batch: list[Parcel]) -> None:
        for place, parcel in enumerate(batch):
            parcel.entry.id = str(place)
        errors: list[Exception | None]
        try:
            failed = {int(entry.id): entry for entry in await self._client.send([parcel.entry for parcel in batch])}
            errors = [failure(failed[place]) if place in failed else None for place in range(len(batch))]
        except PenstockError as error:
            errors = [error] * len(batch)
        self._outbox.ended(batch, errors)


class _Call:
    """What became of the messages of one call. One future for all of them: one each took as long as to make them."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Exception | None] = [None] * count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def tell(self, place: int, error: Exception | None) -> None:
        """One of its messages is in, or why it is not."""
        self.outcomes[place] = error
        self._left -= 1
        # The caller may have been cancelled, and the future with it.
        if not self._left and not self.done.done():
            self.done.set_result(None)


def _text(body: bytes, largest_bytes: int) -> str:
    if not body:
        raise InvalidPublication("the body is empty, and SQS carries no empty message; give it a body")
    if len(body) > largest_bytes:
        raise InvalidPublication(f"the body is {len(body)} bytes, and the queue takes {largest_bytes}; send less")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidPublication(f"the body is not UTF-8 (byte {error.start}), and SQS carries only text") from None
    # The usual kind is known at a glance.
    if not (text.isascii() and text.isprintable()) and (found := _FORBIDDEN.search(text)):
        raise InvalidPublication(f"the body holds the character {found[0]!r}, which SQS does not carry; escape it")
    return text


def _identifier(text: str) -> str:
    """The text if SQS takes it as an id: 1 to 128 visible ASCII characters; else its hash, which stands for it."""
    return text if _IDENTIFIER.fullmatch(text) else "~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

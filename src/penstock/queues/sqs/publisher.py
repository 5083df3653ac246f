"""Publishes messages to an SQS queue: batches of ten across groups and calls, several at once, each group in order.

The entries of a batch fail one by one. So only one batch at a time has messages of a group, and only one of them,
unless the server accepts or rejects the messages of a group as a whole: if a message fails, no later one of its group
is in the queue.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from penstock.domain.errors import NotFound, PenstockError
from penstock.domain.limits import MIB
from penstock.domain.pointer import DEFAULT_GROUP
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.queues.errors import HeldBack, InvalidPublication
from penstock.queues.port import Publication
from penstock.queues.sqs.actions import AttributeValue, SendEntry
from penstock.queues.sqs.client import (
    GROUP_ATTRIBUTE,
    MAX_BATCH,
    PENSTOCK_ATTRIBUTE,
    SqsClient,
    SqsConnections,
    failure,
)
from penstock.queues.uri import SqsUri

log = logging.getLogger(__name__)

_MAX_BATCHES = 8
# A Penstock server writes concurrent batches in one commit, so that more at once is less work.
_MAX_BATCHES_TO_PENSTOCK = 24
_MAX_BATCH_BYTES = MIB
_IDENTIFIER = re.compile("[!-~]{1,128}")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Sender(Protocol):
    """The sender of messages."""

    def finish(self, index: int, error: Exception | None) -> None:
        """Record the result of one of its messages: None, or the error."""


class OutgoingMessage(msgspec.Struct, eq=False):
    """A message to send, and its sender."""

    # None if the message has no order.
    group: str | None
    entry: SendEntry
    size_bytes: int
    sender: Sender
    # Index among the sender's messages.
    index: int


class SqsPublisher:
    """A publisher to a queue; a message is sent when the earlier ones of its group are in the queue."""

    def __init__(
        self,
        uri: SqsUri,
        *,
        clock: Clock | None = None,
        connections: SqsConnections | None = None,
        template: SqsUri | None = None,
    ) -> None:
        self._queue = uri.shown
        self._fifo = uri.fifo
        self._clock = clock or SystemClock()
        self._client = SqsClient(uri, self._clock, connections=connections, template=template)
        self._ids = process_ids()
        self._outbox = SqsOutbox(MAX_BATCH, _MAX_BATCH_BYTES)
        self._largest_bytes = _MAX_BATCH_BYTES
        self._max_batches = _MAX_BATCHES
        self._scheduled: asyncio.Handle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Read the queue's settings; raise Unavailable or NotFound if that fails."""
        attributes = await self._client.open()
        self._largest_bytes = int(attributes.get("MaximumMessageSize", _MAX_BATCH_BYTES))
        # A Penstock server accepts the messages of a group in a batch as a whole, or none of them.
        is_penstock = PENSTOCK_ATTRIBUTE in attributes
        self._outbox.whole_groups = is_penstock
        self._max_batches = _MAX_BATCHES_TO_PENSTOCK if is_penstock else _MAX_BATCHES

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages in order; return per message None, or the error."""
        if not publications:
            return []
        outcomes = await self._publish(publications)
        # Of a group, only the first was sent; nothing of all this was stored.
        if self._client.may_create and all(isinstance(outcome, NotFound | HeldBack) for outcome in outcomes):
            log.warning("the queue %s is gone; creating it again", self._queue)
            try:
                await self.open()
            except PenstockError as error:
                return [error] * len(publications)
            outcomes = await self._publish(publications)
        return outcomes

    async def _publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        call = _Call(len(publications))
        self._queue_all(publications, call)
        await call.done
        return call.outcomes

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment before which nothing was published that the queue still has."""
        try:
            return await self._client.settled_before_ms()
        except NotFound:
            if not self._client.may_create:
                raise
        await self.open()
        return await self._client.settled_before_ms()

    async def close(self) -> None:
        """Finish pending publications, and disconnect."""
        self._send_more()
        while self._sending:
            await asyncio.wait(self._sending)
        self._client.close()

    def _queue_all(self, publications: Sequence[Publication], call: "_Call") -> None:
        refused: set[str] = set()
        for index, publication in enumerate(publications):
            group = publication.group
            try:
                if group in refused:
                    raise HeldBack(group)
                entry = self._entry(publication)
            except PenstockError as error:
                call.finish(index, error)
                if group is not None:
                    refused.add(group)
            else:
                self._outbox.add(OutgoingMessage(group, entry, len(publication.body), call, index))
        # In the next iteration of the event loop, so that calls made at the same time share batches.
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._send_more)

    def _entry(self, publication: Publication) -> SendEntry:
        """Return the entry of a message; raise InvalidPublication if SQS cannot carry it."""
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
        self._scheduled = None
        while self._outbox and len(self._sending) < self._max_batches:
            task = asyncio.get_running_loop().create_task(self._send(self._outbox.next_batch()))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self._send_more()

    async def _send(self, batch: list[OutgoingMessage]) -> None:
        for index, message in enumerate(batch):
            message.entry.id = str(index)
        errors: list[Exception | None]
        try:
            failed = {int(entry.id): entry for entry in await self._client.send([message.entry for message in batch])}
            errors = [failure(failed[index]) if index in failed else None for index in range(len(batch))]
        except PenstockError as error:
            errors = [error] * len(batch)
        self._outbox.ended(batch, errors)


class _Call:
    """The results of one call, with one future for all messages, as one per message would double the cost."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Exception | None] = [None] * count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def finish(self, index: int, error: Exception | None) -> None:
        """Record the result of a message: None, or the error."""
        self.outcomes[index] = error
        self._left -= 1
        # A cancelled caller has cancelled the future.
        if not self._left and not self.done.done():
            self.done.set_result(None)


class SqsOutbox:
    """Messages waiting to be sent, by group."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        # Whether a batch may contain several messages of a group.
        self.whole_groups = False
        self._lanes: dict[str, deque[OutgoingMessage]] = {}
        self._unordered: deque[OutgoingMessage] = deque()
        self._ready: deque[str] = deque()

    def __bool__(self) -> bool:
        """Return whether a message could be sent now."""
        return bool(self._ready or self._unordered)

    def add(self, message: OutgoingMessage) -> None:
        """Append a message to its group."""
        if message.group is None:
            self._unordered.append(message)
        elif (lane := self._lanes.get(message.group)) is not None:
            lane.append(message)
        else:
            self._lanes[message.group] = deque([message])
            self._ready.append(message.group)

    def next_batch(self) -> list[OutgoingMessage]:
        """Return the next messages to send, at least one if possible; their groups wait until `ended`."""
        batch = _Batch(self._most, self._most_bytes)
        while self._ready and batch.take_from(self._lanes[self._ready[0]], self.whole_groups):
            self._ready.popleft()
        while self._unordered and batch.take_from(self._unordered, whole_groups=False):
            pass
        return batch.messages

    def ended(self, batch: list[OutgoingMessage], errors: "list[Exception | None]") -> None:
        """Record the results of a batch; a failed message makes the waiting ones of its group fail."""
        failed = {message.group for message, error in zip(batch, errors, strict=True) if error is not None}
        for group in dict.fromkeys(message.group for message in batch if message.group is not None):
            lane = self._lanes[group]
            if group in failed:
                while lane:
                    held = lane.popleft()
                    held.sender.finish(held.index, HeldBack(group))
            if lane:
                self._ready.append(group)
            else:
                del self._lanes[group]
        for message, error in zip(batch, errors, strict=True):
            message.sender.finish(message.index, error)


class _Batch:
    """A batch being filled."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._room = most
        self._room_bytes = most_bytes
        self.messages: list[OutgoingMessage] = []

    def take_from(self, lane: deque[OutgoingMessage], whole_groups: bool) -> bool:
        """Take the lane's first message, or as many as fit; return False if none fits."""
        before = len(self.messages)
        while lane and self._fits(lane[0]):
            message = lane.popleft()
            self._room -= 1
            self._room_bytes -= message.size_bytes
            self.messages.append(message)
            if not whole_groups:
                break
        return len(self.messages) > before

    def _fits(self, message: OutgoingMessage) -> bool:
        return self._room > 0 and (message.size_bytes <= self._room_bytes or not self.messages)


def _text(body: bytes, largest_bytes: int) -> str:
    if not body:
        raise InvalidPublication("the body is empty, which SQS does not allow; give it a body")
    if len(body) > largest_bytes:
        raise InvalidPublication(
            f"the body has {len(body)} bytes, more than the queue's limit of {largest_bytes}; shorten it"
        )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidPublication(f"the body is not UTF-8 (byte {error.start}); SQS carries only text") from None
    # Most bodies pass this fast check.
    if not (text.isascii() and text.isprintable()) and (found := _FORBIDDEN.search(text)):
        raise InvalidPublication(f"the body contains the character {found[0]!r}, which SQS does not carry; escape it")
    return text


def _identifier(text: str) -> str:
    """Return the text if it is a valid SQS id (1 to 128 visible ASCII characters), else its hash."""
    return text if _IDENTIFIER.fullmatch(text) else "~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

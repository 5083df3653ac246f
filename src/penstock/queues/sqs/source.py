"""The SQS source: long polls, batched deletes and visibility changes, deferred deletes (ROUTER-SQS-1 to 6).

A FIFO queue hands out no message of a group while another of that group is in flight, so the order in which messages
of a group are given back, and in which requests arrive, cannot change the group's order.

Deferred deletes: messages that are done but could not be deleted, because their receipt handles had expired.

Each is deleted when SQS hands it out the next time. What never comes again is forgotten when SQS itself has.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.domain.pointer import DEFAULT_GROUP
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.pause import pause
from penstock.queues.gather import Gatherer
from penstock.queues.port import Confirmation, Received
from penstock.queues.sqs.client import (
    GROUP_ATTRIBUTE,
    MAX_BATCH,
    DeleteEntry,
    FailedEntry,
    SqsClient,
    SqsMessage,
    SqsPolling,
    VisibilityEntry,
    failure,
)
from penstock.queues.uri import SqsUri

MAX_RETENTION_S = 4 * 24 * 3600
MAX_REMEMBERED = 100_000


class DeferredDeletes:
    """Ids of messages to delete at sight."""

    def __init__(self, retention_s: int = MAX_RETENTION_S, most: int = MAX_REMEMBERED) -> None:
        self._retention_ms = min(retention_s, MAX_RETENTION_S) * SECOND_MS
        self._most = most
        # Oldest first, since all are kept for the same time.
        self._forget_at_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._forget_at_ms)

    def remember(self, broker_id: str, now_ms: int) -> None:
        """This message is done."""
        self._forget(now_ms)
        self._forget_at_ms[broker_id] = now_ms + self._retention_ms
        self._forget_at_ms.move_to_end(broker_id)
        if len(self._forget_at_ms) > self._most:
            self._forget_at_ms.popitem(last=False)

    def is_due(self, broker_id: str, now_ms: int) -> bool:
        """Whether this message, which was handed out, is to be deleted instead."""
        until_ms = self._forget_at_ms.get(broker_id)
        return until_ms is not None and until_ms > now_ms

    def deleted(self, broker_id: str) -> None:
        """SQS has deleted it."""
        self._forget_at_ms.pop(broker_id, None)

    def _forget(self, now_ms: int) -> None:
        while self._forget_at_ms and next(iter(self._forget_at_ms.values())) <= now_ms:
            self._forget_at_ms.popitem(last=False)


DEFAULT_VISIBILITY_S = 30
# SQS allows 12 hours in all, counted from the hand-out; half an hour is left for the time that a message was with us.
MAX_DELAY_S = 43_200 - 1_800
PARTIAL_BATCH_PAUSE_S = 0.1
# Deletes wait for the server's commit: with 8 at once they fell behind deliveries, and thousands of messages waited.
_BATCHES_AT_ONCE = 32

# The ids of a batch's entries.
_PLACES = tuple(map(str, range(MAX_BATCH)))
_INVALID_HANDLE = "ReceiptHandleIsInvalid"
_EXPIRED_HANDLE = "receipt handle has expired"
# Codes of a message that is not in flight under this handle; the last one also when it was extended for 12 hours.
_NOT_OURS = {_INVALID_HANDLE, "MessageNotInflight", "InvalidParameterValue"}


def pause_after_s(received: int, most: int) -> float:
    """How long to wait before the next poll: none was a long wait already, a full batch says that there is more."""
    return PARTIAL_BATCH_PAUSE_S if 0 < received < most else 0.0


class SqsSource:
    """The consumer's end of an SQS queue."""

    exclusive = False

    def __init__(
        self,
        name: str,
        uri: SqsUri,
        *,
        visibility_s: float | None = None,
        polling: SqsPolling | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.address = uri.shown
        self.ordered = uri.fifo
        self.visibility_s: float | None = visibility_s
        polling = polling or SqsPolling()
        self._most = polling.most
        self._clock = clock or SystemClock()
        self._client = SqsClient(uri, self._clock, polling)
        self._asked_visibility_s = None if visibility_s is None else max(1, ceil(visibility_s))
        self._receiving = self._client.receiving(self._asked_visibility_s)
        self._deferred = DeferredDeletes()
        self._deletes = Gatherer(self._delete, most=MAX_BATCH, at_once=_BATCHES_AT_ONCE)
        self._visibilities = Gatherer(self._change_visibility, most=MAX_BATCH, at_once=_BATCHES_AT_ONCE)
        self._abandoned: set[asyncio.Task[list[Received]]] = set()
        # Until when polls yet to come wait, one for each partial batch: every connection polls at its own pace.
        self._pauses_until_s: deque[float] = deque()

    async def open(self) -> None:
        """Ask for the queue's settings; Unavailable or NotFound if that cannot be."""
        attributes = await self._client.open()
        own_s = int(attributes.get("VisibilityTimeout", DEFAULT_VISIBILITY_S))
        self.visibility_s = self._asked_visibility_s or max(1, own_s)
        self._deferred = DeferredDeletes(int(attributes.get("MessageRetentionPeriod", MAX_RETENTION_S)))

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        poll = asyncio.create_task(self._poll())
        try:
            return await asyncio.shield(poll)
        except asyncio.CancelledError:
            # An answer that is there already is not lost by this: the poll then ends with it.
            poll.cancel()
            self._abandoned.add(poll)
            poll.add_done_callback(self._give_back)
            raise

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; with an expired handle, when it is handed out the next time."""
        return self._deletes.add(_Deletion(message.broker_id, message.handle))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Give a message back, to be handed out again after the delay."""
        return self._visibilities.add(_Visibility(message.handle, min(max(delay_s, 0), MAX_DELAY_S)))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Keep the messages ours for another `visibility_s`."""
        visibility_s = ceil(self.visibility_s or DEFAULT_VISIBILITY_S)
        if messages:
            await asyncio.gather(
                *(self._visibilities.add(_Visibility(message.handle, visibility_s)) for message in messages)
            )

    async def close(self) -> None:
        """Finish what was acked and nacked, and hang up."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        await self._deletes.drain()
        await self._visibilities.drain()
        self._client.close()

    async def _poll(self) -> list[Received]:
        loop = asyncio.get_running_loop()
        if self._pauses_until_s and (early_s := self._pauses_until_s.popleft() - loop.time()) > 0:
            await pause(early_s)
        messages = await self._client.receive(self._receiving)
        if (pause_s := pause_after_s(len(messages), self._most)) > 0:
            self._pauses_until_s.append(loop.time() + pause_s)
        received = [_received(message) for message in messages]
        return self._without_done(received) if self._deferred else received

    def _without_done(self, received: list[Received]) -> list[Received]:
        """Delete those that were waiting for it."""
        now_ms = self._clock.now_ms()
        done = [message for message in received if self._deferred.is_due(message.broker_id, now_ms)]
        for message in done:
            self.ack(message)
        return [message for message in received if message not in done] if done else received

    def _give_back(self, poll: "asyncio.Task[list[Received]]") -> None:
        """What came for a receive that nobody waits for any more."""
        self._abandoned.discard(poll)
        if not poll.cancelled() and poll.exception() is None:
            for message in poll.result():
                self.nack(message)

    async def _delete(self, deletions: "Sequence[_Deletion]") -> "Sequence[Exception | None]":
        entries = [DeleteEntry(place, deletion.handle) for place, deletion in zip(_PLACES, deletions, strict=False)]
        failures = await self._client.delete(entries)
        if not failures and not self._deferred:
            return [None] * len(deletions)
        failed = {int(entry.id): entry for entry in failures}
        return [self._deleted(deletion, failed.get(place)) for place, deletion in enumerate(deletions)]

    def _deleted(self, deletion: "_Deletion", failed: FailedEntry | None) -> PenstockError | None:
        if failed is None:
            self._deferred.deleted(deletion.broker_id)
            return None
        if failed.kind == _INVALID_HANDLE or _EXPIRED_HANDLE in failed.message.lower():
            self._deferred.remember(deletion.broker_id, self._clock.now_ms())
            return None
        return failure(failed)

    async def _change_visibility(self, changes: "Sequence[_Visibility]") -> "Sequence[Exception | None]":
        entries = [
            VisibilityEntry(str(place), change.handle, change.visibility_s) for place, change in enumerate(changes)
        ]
        failed = {int(entry.id): entry for entry in await self._client.change_visibility(entries)}
        return [_changed(failed.get(place)) for place in range(len(changes))]


class _Deletion(msgspec.Struct, frozen=True, gc=False):
    broker_id: str
    handle: str


class _Visibility(NamedTuple):
    handle: str
    visibility_s: int


def _changed(failed: FailedEntry | None) -> PenstockError | None:
    """A message that is no longer in flight under this handle comes again anyway, or is gone."""
    return None if failed is None or failed.kind in _NOT_OURS else failure(failed)


def _received(message: SqsMessage) -> Received:
    group = message.attributes.get("MessageGroupId")
    if message.message_attributes and (told := message.message_attributes.get(GROUP_ATTRIBUTE)) is not None:
        group = told.string_value
    elif group == DEFAULT_GROUP:
        group = None
    return Received(message.message_id, message.body.encode(), group, message.receipt_handle)

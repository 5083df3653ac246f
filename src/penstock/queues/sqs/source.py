"""The SQS source: long polls, batched deletes and visibility changes, deferred deletes (ROUTER-SQS-1 to 6).

A FIFO queue delivers no message of a group while another of that group is in flight, so the order in which messages of
a group are nacked, and in which requests arrive, cannot change the group's order.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from math import ceil
from typing import NamedTuple

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.domain.pointer import DEFAULT_GROUP
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.pause import pause
from penstock.edge.pulse import LoopPulse
from penstock.queues.batcher import Batcher
from penstock.queues.errors import BrokerQueueNotFound
from penstock.queues.port import Confirmation, Received
from penstock.queues.sqs.actions import DeleteEntry, FailedEntry, SqsMessage, VisibilityEntry
from penstock.queues.sqs.client import GROUP_ATTRIBUTE, MAX_BATCH, PENSTOCK_ATTRIBUTE, SqsClient, SqsPolling, failure
from penstock.queues.sqs.watch import QueueWatch, SharedServers
from penstock.queues.uri import SqsUri

DEFAULT_VISIBILITY_S = 30
# SQS allows 12 hours in total, counted from the delivery; half an hour is left for the time since then.
MAX_DELAY_S = 43_200 - 1_800
MAX_RETENTION_S = 4 * 24 * 3600
MAX_REMEMBERED = 100_000
PARTIAL_BATCH_PAUSE_S = 0.1
# On a Penstock server a poll costs no money; the pause only lets a few messages share one.
PENSTOCK_PAUSE_S = 0.005
# Deletes wait for the server's commit; with 8 at once they fall behind deliveries.
_MAX_BATCHES = 32
# The ids of the entries of a batch.
_ENTRY_IDS = tuple(map(str, range(MAX_BATCH)))
_INVALID_HANDLE = "ReceiptHandleIsInvalid"
_EXPIRED_HANDLE = "receipt handle has expired"
# The message is not in flight under this handle; for the last code, or it was extended for 12 hours.
_INVALID_HANDLE_CODES = {_INVALID_HANDLE, "MessageNotInflight", "InvalidParameterValue"}


class SqsSource:
    """A source of an SQS queue."""

    exclusive = False

    def __init__(
        self,
        name: str,
        uri: SqsUri,
        *,
        visibility_s: float | None = None,
        polling: SqsPolling | None = None,
        clock: Clock | None = None,
        servers: SharedServers | None = None,
        template: SqsUri | None = None,
    ) -> None:
        self.name = name
        self.address = uri.shown
        self.ordered = uri.fifo
        self.visibility_s: float | None = visibility_s
        polling = polling or SqsPolling()
        self._most = polling.most
        self._clock = clock or SystemClock()
        server = servers.of(uri, self._clock, polling) if servers is not None else None
        self._client = SqsClient(
            uri, self._clock, polling, server.connections if server is not None else None, template
        )
        self._pulse = servers.pulse if servers is not None else LoopPulse()
        self._queue_url = uri.queue_url
        self._watch = server.watch if server is not None else None
        self._opening: AbstractAsyncContextManager[None] = server.opening if server is not None else nullcontext()
        # Whether the last poll found nothing, so that it waits with others before the next.
        self._is_idle = True
        self._wanted_visibility_s = None if visibility_s is None else max(1, ceil(visibility_s))
        self._receive_body = self._client.receive_body(self._wanted_visibility_s)
        # Asked after a failure, when what matters is whether the server answers (ROUTER-HEALTH-6), and while too many
        # receives wait.
        self._brief_body = self._client.receive_body(self._wanted_visibility_s, waits=False)
        self._has_failed = False
        self._deferred = DeferredDeletes()
        self._deletes = Batcher(self._delete, max_batch=MAX_BATCH, max_running=_MAX_BATCHES)
        self._visibilities = Batcher(self._change_visibility, max_batch=MAX_BATCH, max_running=_MAX_BATCHES)
        self._abandoned: set[asyncio.Task[list[Received]]] = set()
        self.pause_s = PARTIAL_BATCH_PAUSE_S
        # When the next polls may start, one for each partial batch, as every connection polls independently.
        self._pauses_until_s: deque[float] = deque()

    async def open(self) -> None:
        """Read the queue's settings; raise Unavailable or NotFound if that fails."""
        async with self._opening:
            attributes = await self._client.open()
        own_s = int(attributes.get("VisibilityTimeout", DEFAULT_VISIBILITY_S))
        self.visibility_s = self._wanted_visibility_s or max(1, own_s)
        if PENSTOCK_ATTRIBUTE in attributes:
            self.pause_s = PENSTOCK_PAUSE_S
        self._deferred = DeferredDeletes(int(attributes.get("MessageRetentionPeriod", MAX_RETENTION_S)))

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends."""
        poll = asyncio.create_task(self._poll_again() if self._has_failed else self._poll())
        try:
            return await asyncio.shield(poll)
        except PenstockError:
            self._has_failed = True
            raise
        except asyncio.CancelledError:
            # An answer that has arrived is not lost: the poll ends with it.
            poll.cancel()
            self._abandoned.add(poll)
            poll.add_done_callback(self._return_messages)
            raise

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; with an expired handle, at its next delivery."""
        return self._deletes.add(_Deletion(message.broker_id, message.handle))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue, to be redelivered after the delay."""
        return self._visibilities.add(_Visibility(message.handle, min(max(delay_s, 0), MAX_DELAY_S)))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Extend the leases of messages by `visibility_s`."""
        visibility_s = ceil(self.visibility_s or DEFAULT_VISIBILITY_S)
        if messages:
            await asyncio.gather(
                *(self._visibilities.add(_Visibility(message.handle, visibility_s)) for message in messages)
            )

    async def close(self) -> None:
        """Finish acks and nacks, and disconnect."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        await self._deletes.drain()
        await self._visibilities.drain()
        self._client.close()

    async def _poll_again(self) -> list[Received]:
        """Poll without waiting for messages."""
        received = await self._receive(self._brief_body)
        self._has_failed = False
        return received

    async def _poll(self) -> list[Received]:
        loop = asyncio.get_running_loop()
        if self._pauses_until_s and (early_s := self._pauses_until_s.popleft() - loop.time()) > 0:
            await pause(early_s)
        if self._watch is not None:
            if self._is_idle and not await self._watch.wait(self._queue_url):
                return []
            self._is_idle = False
            return await self._receive_in_turn(self._watch)
        return await self._receive(self._receive_body)

    async def _receive_in_turn(self, watch: QueueWatch) -> list[Received]:
        """Receive, and wait for messages unless too many receives wait; then the next poll joins the shared wait."""
        if not watch.has_place:
            return await self._receive(self._brief_body)
        watch.receives += 1
        try:
            return await self._receive(self._receive_body)
        finally:
            watch.receives -= 1

    async def _receive(self, body: bytes) -> list[Received]:
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        try:
            with self._pulse.waiting():
                messages = await self._client.receive(body)
        except BrokerQueueNotFound:
            if self._client.keeps_queue:
                await self._client.create()
            raise
        leased_s = self._pulse.leased_s(sent_s, self.visibility_s or DEFAULT_VISIBILITY_S)
        self._is_idle = not messages
        if pauses_after(len(messages), self._most):
            self._pauses_until_s.append(loop.time() + self.pause_s)
        received = [_received(message, leased_s, ordered=self.ordered) for message in messages]
        return self._delete_deferred(received) if self._deferred else received

    def _delete_deferred(self, received: list[Received]) -> list[Received]:
        """Delete the messages that are already done, and return the others."""
        now_ms = self._clock.now_ms()
        done = [message for message in received if self._deferred.is_due(message.broker_id, now_ms)]
        for message in done:
            self.ack(message)
        return [message for message in received if message not in done] if done else received

    def _return_messages(self, poll: "asyncio.Task[list[Received]]") -> None:
        """Return the messages of a cancelled receive to the queue."""
        self._abandoned.discard(poll)
        if not poll.cancelled() and poll.exception() is None:
            for message in poll.result():
                self.nack(message)

    async def _delete(self, deletions: "Sequence[_Deletion]") -> "Sequence[Exception | None]":
        entries = [DeleteEntry(index, deletion.handle) for index, deletion in zip(_ENTRY_IDS, deletions, strict=False)]
        failures = await self._client.delete(entries)
        if not failures and not self._deferred:
            return [None] * len(deletions)
        failed = {int(entry.id): entry for entry in failures}
        return [self._deleted(deletion, failed.get(index)) for index, deletion in enumerate(deletions)]

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
            VisibilityEntry(str(index), change.handle, change.visibility_s) for index, change in enumerate(changes)
        ]
        failed = {int(entry.id): entry for entry in await self._client.change_visibility(entries)}
        return [_changed(failed.get(index)) for index in range(len(changes))]


class _Deletion(msgspec.Struct, frozen=True, gc=False):
    broker_id: str
    handle: str


class _Visibility(NamedTuple):
    handle: str
    visibility_s: int


class DeferredDeletes:
    """Ids of messages that are done but not deleted, because their handles had expired.

    Each is deleted at its next delivery; an id is kept as long as SQS keeps the message.
    """

    def __init__(self, retention_s: int = MAX_RETENTION_S, most: int = MAX_REMEMBERED) -> None:
        self._retention_ms = min(retention_s, MAX_RETENTION_S) * SECOND_MS
        self._most = most
        # Oldest first, as all are kept for the same time.
        self._forget_at_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._forget_at_ms)

    def remember(self, broker_id: str, now_ms: int) -> None:
        """Remember that a message is done."""
        self._forget(now_ms)
        self._forget_at_ms[broker_id] = now_ms + self._retention_ms
        self._forget_at_ms.move_to_end(broker_id)
        if len(self._forget_at_ms) > self._most:
            self._forget_at_ms.popitem(last=False)

    def is_due(self, broker_id: str, now_ms: int) -> bool:
        """Return whether a received message is already done."""
        until_ms = self._forget_at_ms.get(broker_id)
        return until_ms is not None and until_ms > now_ms

    def deleted(self, broker_id: str) -> None:
        """Forget a message that SQS has deleted."""
        self._forget_at_ms.pop(broker_id, None)

    def _forget(self, now_ms: int) -> None:
        while self._forget_at_ms and next(iter(self._forget_at_ms.values())) <= now_ms:
            self._forget_at_ms.popitem(last=False)


def pauses_after(received: int, most: int) -> bool:
    """Return whether a poll is followed by a pause: a full one means that there is more, an empty one has waited."""
    return 0 < received < most


def _changed(failed: FailedEntry | None) -> PenstockError | None:
    """Return the error, except for a message no longer in flight: it is redelivered anyway, or gone."""
    return None if failed is None or failed.kind in _INVALID_HANDLE_CODES else failure(failed)


def _received(message: SqsMessage, leased_s: float, *, ordered: bool) -> Received:
    group = message.attributes.get("MessageGroupId")
    if message.message_attributes and (attribute := message.message_attributes.get(GROUP_ATTRIBUTE)) is not None:
        group = attribute.string_value
    elif group == DEFAULT_GROUP:
        group = None
    return Received(message.message_id, message.body.encode(), group, message.receipt_handle, ordered, leased_s)

"""Messages on their way between queues: dead letters and those of move tasks.

Within a database a message leaves one queue and enters the other in one commit. Between databases and between shards it
is sent first and removed then; the receiving side remembers its origin for as long as a queue can keep a message, so
that a move that a crash interrupted, and that is repeated by whoever serves the queue next, leaves one copy.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB, MINUTE_MS
from penstock.domain.message import Message
from penstock.engine import AsyncShell, Entry, Pending, Stream, decode_message, encode_message, held_bytes
from penstock.sqs.errors import ErrorKind, SqsError, queue_does_not_exist
from penstock.sqs.queue.other_shards import (
    AcceptMessages,
    DescribeQueue,
    ListSources,
    OtherShards,
    QueueElsewhere,
    ShardAnswer,
    ShardRequest,
    Target,
)
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.receipts import QueuePartition
from penstock.sqs.queue.redrive import RedrivePolicy, moved_copy

if TYPE_CHECKING:
    from penstock.sqs.service import SqsService

log = logging.getLogger(__name__)

ORIGINS_RECORD = "#origins"
"""The stream that remembers the origins of accepted messages; no partition has this name."""
ORIGINS_WINDOW_MS = 14 * 24 * 60 * MINUTE_MS
"""As long as a queue can keep a message: after that it cannot be moved a second time."""
# Base64 makes it a third longer, and a request is at most 8 MiB.
_CALL_BYTES = 4 * MIB


class Transfers:
    """Moves the messages of one shard's queues, and accepts those of others."""

    def __init__(self, service: "SqsService", others: OtherShards) -> None:
        self._service = service
        self._others = others
        self._hand_overs: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[ShardAnswer]] = set()
        self._accepting = asyncio.Lock()
        self._missing: set[str] = set()
        """The dead-letter queues of other shards that do not exist, as far as we know."""
        self._closed = False

    def find(self, queue_arn: str) -> Target | None:
        """Return the queue of an ARN; one of another shard may not exist."""
        key = self._service.key_of_arn(queue_arn)
        if key is not None and self._others.have(key):
            return QueueElsewhere(key, queue_arn)
        return self._service.find_arn(queue_arn)

    def dead_letter_queue(self, redrive: RedrivePolicy | None) -> Target | None:
        """Return where dead letters go; None if there is no such queue, as far as we know."""
        if redrive is None or redrive.dead_letter_target_arn in self._missing:
            return None
        return self.find(redrive.dead_letter_target_arn)

    async def describe(self, queue_arn: str) -> ShardAnswer:
        """Return whether a queue of any shard exists, and whose dead letters it allows."""
        target = self.find(queue_arn)
        if isinstance(target, QueueElsewhere):
            answer = await self._ask(target, DescribeQueue(queue_arn))
            self._note(queue_arn, exists=answer.exists)
            return answer
        if target is None:
            return ShardAnswer()
        allow = target.attributes.redrive_allow_policy
        return ShardAnswer(exists=True, allow=None if allow is None else allow.as_json())

    async def dead_letter_sources(self, queue: SqsQueue) -> list[str]:
        """Return the names of the queues, of all shards, whose dead letters come to this one."""
        queue_arn = self._service.arn_of(queue.name)
        answers = await self._others.ask_all(ListSources(queue_arn))
        return sorted({*self._sources(queue_arn), *(name for answer in answers for name in answer.sources)})

    async def answer(self, request: ShardRequest) -> ShardAnswer:
        """Answer another shard."""
        match request:
            case DescribeQueue(arn):
                return await self.describe(arn)
            case ListSources(arn):
                return ShardAnswer(sources=self._sources(arn))
            case AcceptMessages(arn, origins, records):
                queue = self._service.find_arn(arn)
                if queue is None:
                    raise queue_does_not_exist()
                await self._accept(queue, origins, [decode_message(record) for record in records])
                return ShardAnswer(exists=True)

    async def look(self) -> None:
        """Ask again for dead-letter queues of other shards that did not exist."""
        for queue_arn in sorted(self._missing):
            try:
                await self.describe(queue_arn)
            except PenstockError as error:
                log.warning("whether %s exists is not known: %s", queue_arn, error)

    def hand_over(self, source: SqsQueue, partition: QueuePartition, entries: list[Entry]) -> None:
        """Move messages that were received too often to the dead-letter queue."""
        target = self.dead_letter_queue(source.attributes.redrive_policy)
        if target is None or self._closed:
            partition.shell.ledger.give_back(partition.queue, entries)
            return
        task = asyncio.create_task(self.move(partition, entries, target, self._service.arn_of(source.name)))
        source.hand_overs.add(task)
        self._hand_overs.add(task)
        task.add_done_callback(partial(self._handed_over, source))

    def _handed_over(self, source: SqsQueue, task: "asyncio.Task[None]") -> None:
        source.hand_overs.discard(task)
        self._hand_overs.discard(task)
        error = task.exception()
        if error is not None:
            log.error("cannot move dead letters, they stay in their queue for now: %s", error)

    async def move(self, source: QueuePartition, entries: list[Entry], target: Target, source_arn: str | None) -> None:
        """Move entries that are being settled; those that could not be moved are given back."""
        ledger, now_ms = source.shell.ledger, self._service.clock.now_ms()
        pendings: list[Pending] = []
        failure: PenstockError | None = None
        new_id = partial(self._service.new_message_ids, 1)
        for goal, moving in _by_goal(entries, target):
            if failure is not None:
                ledger.give_back(source.queue, moving)
                continue
            copies = [moved_copy(entry, source_arn, now_ms, new_id, fifo=target.fifo) for entry in moving]
            if goal is not None and goal.shell is source.shell:
                pendings.append(ledger.move(source.queue, moving, goal.stream, copies))
                continue
            origins = [f"{source.stream.id:x}.{entry.seq:x}" for entry in moving]
            try:
                if isinstance(target, QueueElsewhere):
                    await self._send_elsewhere(target, origins, copies)
                else:
                    await self._accept(target, origins, copies)
            except PenstockError as error:
                ledger.give_back(source.queue, moving)
                failure = error
                continue
            pendings.append(ledger.settle(source.queue, moving))
        for pending in pendings:
            await source.shell.commit(pending)
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Give up what waits for other shards, and finish the rest."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        if self._hand_overs:
            await asyncio.wait(self._hand_overs)

    async def _send_elsewhere(self, target: QueueElsewhere, origins: list[str], copies: list[Message]) -> None:
        try:
            await self._ask(target, AcceptMessages(target.arn, origins, [encode_message(copy) for copy in copies]))
        except SqsError as error:
            if error.kind is ErrorKind.QUEUE_DOES_NOT_EXIST:
                self._note(target.arn, exists=False)
            raise

    async def _accept(self, queue: SqsQueue, origins: Sequence[str], copies: list[Message]) -> None:
        """Append messages from elsewhere, once each; one call at a time, so that a repeated one knows how it ended."""
        async with self._accepting:
            parts: dict[int, list[tuple[str, Message]]] = {}
            for origin, copy in zip(origins, copies, strict=True):
                parts.setdefault(queue.partition_for(copy.group).index, []).append((origin, copy))
            for index, arriving in parts.items():
                partition = queue.partitions[index]
                memory = await self._memory(partition.shell)
                if self._service.queues.get(queue.name) is not queue:
                    raise queue_does_not_exist()
                messages, seen = [copy for _, copy in arriving], [origin for origin, _ in arriving]
                ledger, now_ms = partition.shell.ledger, self._service.clock.now_ms()
                await partition.shell.commit(ledger.accept(partition.stream, messages, seen, memory, now_ms))

    async def _memory(self, shell: AsyncShell) -> Stream:
        """Return the stream of a database that remembers origins."""
        catalog = shell.ledger.catalog
        if ORIGINS_RECORD not in catalog.streams:
            now_ms = self._service.clock.now_ms()
            await shell.commit(catalog.create_stream(ORIGINS_RECORD, now_ms, dedup_window_ms=ORIGINS_WINDOW_MS))
        return catalog.streams[ORIGINS_RECORD]

    def _sources(self, queue_arn: str) -> list[str]:
        return [
            queue.name
            for queue in self._service.queues.values()
            if queue.attributes.redrive_policy is not None
            and queue.attributes.redrive_policy.dead_letter_target_arn == queue_arn
        ]

    async def _ask(self, target: QueueElsewhere, request: ShardRequest) -> ShardAnswer:
        """Ask another shard; a call in progress ends when this one is closed."""
        if self._closed:
            raise _closing()
        call = asyncio.ensure_future(self._others.ask(target.name, request))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await call
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise _closing() from None

    def _note(self, queue_arn: str, *, exists: bool) -> None:
        """Keep in mind whether a dead-letter queue exists: without one, a queue delivers a message for ever."""
        before = set(self._missing)
        (self._missing.discard if exists else self._missing.add)(queue_arn)
        if self._missing != before:
            self._service.refresh_policies()


def _by_goal(entries: list[Entry], target: Target) -> Iterator[tuple[QueuePartition | None, list[Entry]]]:
    """Return the entries for each partition of a queue; for one of another shard, as many as fit into a call."""
    if isinstance(target, QueueElsewhere):
        chunk: list[Entry] = []
        for entry in entries:
            if chunk and held_bytes([*chunk, entry]) > _CALL_BYTES:
                yield None, chunk
                chunk = []
            chunk.append(entry)
        yield None, chunk
        return
    by_partition: dict[int, list[Entry]] = {}
    for entry in entries:
        by_partition.setdefault(target.partition_for(entry.message.group).index, []).append(entry)
    for index, moving in by_partition.items():
        yield target.partitions[index], moving


def _closing() -> SqsError:
    return SqsError(ErrorKind.SERVICE_UNAVAILABLE, "These queues are being handed over.")

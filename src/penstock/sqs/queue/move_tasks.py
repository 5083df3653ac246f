"""Message move tasks: drain a dead-letter queue at a given rate, with progress and cancellation.

A task belongs to this process: after a restart the task is gone, and messages not yet moved are still in their queue.
"""

import asyncio
import logging
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.engine import Entry
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import MessageMoveTask
from penstock.sqs.queue.other_shards import Target
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.receipts import QueuePartition
from penstock.sqs.queue.redrive import SOURCE_ARN

if TYPE_CHECKING:
    from penstock.sqs.service import SqsService

log = logging.getLogger(__name__)

RUNNING, COMPLETED, CANCELLING, CANCELLED, FAILED = "RUNNING", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"
MAX_RUNNING = 100
_KEPT_PER_QUEUE = 10
# Messages per commit if no rate is given.
_BATCH = 100


class TaskHandle(msgspec.Struct, frozen=True, rename="camel"):
    """What the handle of a task contains, as JSON in base64."""

    task_id: str
    source_arn: str


def source_of_handle(text: str) -> str:
    """Return the ARN of the source in a handle; InvalidParameterValue if it is not a handle."""
    try:
        return msgspec.json.decode(b64decode(text, validate=True), type=TaskHandle).source_arn
    except (Base64Error, ValueError, msgspec.DecodeError):
        raise invalid_parameter("Value for parameter TaskHandle is invalid.") from None


@dataclass
class Move:
    """A task and its progress."""

    handle: str
    source: SqsQueue
    destination: Target | None
    source_arn: str
    destination_arn: str | None
    rate_per_s: int | None
    started_ms: int
    to_move: int
    status: str = RUNNING
    moved: int = 0
    failure: str | None = None
    running: "asyncio.Task[None] | None" = None

    def listed(self) -> MessageMoveTask:
        """Return the task as it is listed."""
        return MessageMoveTask(
            status=self.status,
            source_arn=self.source_arn,
            task_handle=self.handle if self.status == RUNNING else None,
            destination_arn=self.destination_arn,
            max_number_of_messages_per_second=self.rate_per_s,
            approximate_number_of_messages_moved=self.moved,
            approximate_number_of_messages_to_move=self.to_move,
            failure_reason=self.failure,
            started_timestamp=self.started_ms,
        )


class MoveTasks:
    """All tasks of a server; each source queue has at most one running."""

    def __init__(self, service: "SqsService", pause: Callable[[float], Awaitable[None]]) -> None:
        self._service = service
        self._pause = pause
        self._moves: dict[int, deque[Move]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def start(self, source: SqsQueue, destination: Target | None, rate_per_s: int | None) -> str:
        """Start a move and return its handle."""
        moves = self._moves.setdefault(source.incarnation, deque(maxlen=_KEPT_PER_QUEUE))
        if any(move.status in (RUNNING, CANCELLING) for move in moves):
            raise invalid_parameter(
                "There is already a task running. "
                "Only one active task is allowed for a source queue arn at a given time."
            )
        if sum(move.status == RUNNING for each in self._moves.values() for move in each) >= MAX_RUNNING:
            raise SqsError(ErrorKind.UNSUPPORTED_OPERATION, f"At most {MAX_RUNNING} move tasks run at a time.")
        service = self._service
        now_ms = service.clock.now_ms()
        (task_id,) = service.new_message_ids(1)
        handle = b64encode(msgspec.json.encode(TaskHandle(task_id, service.arn_of(source.name)))).decode()
        move = Move(
            handle,
            source,
            destination,
            service.arn_of(source.name),
            service.arn_of(destination.name) if destination is not None else None,
            rate_per_s,
            now_ms,
            sum(counters.total for counters in source.counters()),
        )
        moves.appendleft(move)
        move.running = asyncio.create_task(self._run(move))
        self._running.add(move.running)
        move.running.add_done_callback(self._running.discard)
        return handle

    async def cancel(self, handle: str) -> int | None:
        """Stop a running task and return the number of moved messages; None if it is not running."""
        for move in (move for moves in self._moves.values() for move in moves):
            if move.handle == handle and move.status == RUNNING and move.running is not None:
                move.status = CANCELLING
                await asyncio.wait([move.running])
                return move.moved
        return None

    def listed(self, source: SqsQueue, limit: int) -> list[MessageMoveTask]:
        """Return the latest tasks of a queue, newest first."""
        return [move.listed() for move in list(self._moves.get(source.incarnation, ()))[:limit]]

    def forget(self, source: SqsQueue) -> None:
        """End and drop the tasks of a deleted queue."""
        for move in self._moves.pop(source.incarnation, ()):
            if move.status == RUNNING:
                move.status = CANCELLING

    async def close(self) -> None:
        """Stop all tasks after their current batches."""
        for move in (move for moves in self._moves.values() for move in moves):
            if move.status == RUNNING:
                move.status = CANCELLING
        if self._running:
            await asyncio.wait(self._running)

    async def _run(self, move: Move) -> None:
        try:
            while move.status == RUNNING and await self._move_some(move):
                if move.rate_per_s is not None:
                    await self._pause(1.0)
            move.status = CANCELLED if move.status == CANCELLING else COMPLETED
        except PenstockError as error:
            move.status, move.failure = FAILED, error.message
            log.error("message move task failed: %s", error, extra={"queue": move.source.name})

    async def _move_some(self, move: Move) -> int:
        """Move up to one second's worth; return 0 if nothing is left that may be moved."""
        room = move.rate_per_s or _BATCH
        before = move.moved
        for partition in move.source.partitions:
            if room <= 0:
                break
            room -= await self._move_from(move, partition, room)
        return move.moved - before

    async def _move_from(self, move: Move, partition: QueuePartition, room: int) -> int:
        service = self._service
        await partition.shell.page_in(partition.queue)
        entries = partition.queue.engine.take_for_move(service.clock.now_ms(), room)
        by_target: dict[Target, list[Entry]] = {}
        for entry in entries:
            target = move.destination or service.transfers.find(entry.message.notes.get(SOURCE_ARN, ""))
            if target is None or (isinstance(target, SqsQueue) and service.queues.get(target.name) is not target):
                partition.shell.ledger.give_back(partition.queue, entries)
                gone = ErrorKind.QUEUE_DOES_NOT_EXIST
                reason = "CouldNotDetermineMessageSource" if move.destination is None else gone.query_code
                raise SqsError(gone, reason)
            by_target.setdefault(target, []).append(entry)
        failure: PenstockError | None = None
        for target, moving in by_target.items():
            if failure is not None:
                partition.shell.ledger.give_back(partition.queue, moving)
                continue
            try:
                await service.transfers.move(partition, moving, target, None)
            except PenstockError as error:
                failure = error
            else:
                move.moved += len(moving)
        if failure is not None:
            raise failure
        return len(entries)

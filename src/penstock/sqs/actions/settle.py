"""DeleteMessage and ChangeMessageVisibility, single and in batches."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from penstock.domain.limits import SECOND_MS
from penstock.engine import Entry, EntryState, LeaseNotFound
from penstock.sqs.actions.answer import AfterCommit, Answer, Commit
from penstock.sqs.actions.contents import MAX_VISIBILITY_S, check_batch, check_changed_visibility, failed_entry
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import SqsError, invalid_parameter, missing_parameter, receipt_handle_is_invalid
from penstock.sqs.model import (
    BatchResponse,
    BatchResultEntry,
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatchRequest,
    ChangeMessageVisibilityRequest,
    DeleteMessageBatchRequest,
    DeleteMessageRequest,
    EmptyResponse,
    Shape,
)
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.receipts import QueuePartition, ReceiptHandle, decode_handle
from penstock.sqs.queue.throttle import Action
from penstock.sqs.service import SqsService

_RANGE = f"Must be between 0 and {MAX_VISIBILITY_S}."
_RANGE_IN_BATCH = f"VisibilityTimeout must be an integer between 0 and {MAX_VISIBILITY_S}."


def delete_message(service: SqsService, caller: SqsCaller, request: DeleteMessageRequest) -> Answer:
    """Delete a message by its receipt handle."""
    queue = service.of_url(caller, request.queue_url)
    service.charge(queue, Action.RECEIVE, 1)
    return _after_reading(queue, [request.receipt_handle], partial(_delete, service, queue, request))


def _delete(service: SqsService, queue: SqsQueue, request: DeleteMessageRequest) -> Shape | AfterCommit:
    deletions = _Deletions(service, queue)
    deletions.begin(request.receipt_handle)
    return deletions.commit(EmptyResponse())


def delete_message_batch(service: SqsService, caller: SqsCaller, request: DeleteMessageBatchRequest) -> Answer:
    """Delete up to ten messages; each succeeds or fails on its own."""
    queue = service.of_url(caller, request.queue_url)
    check_batch(tuple([entry.id for entry in request.entries]), "DeleteMessageBatch")
    service.charge(queue, Action.RECEIVE, len(request.entries))
    handles = [entry.receipt_handle for entry in request.entries]
    return _after_reading(queue, handles, partial(_delete_batch, service, queue, request))


def _delete_batch(service: SqsService, queue: SqsQueue, request: DeleteMessageBatchRequest) -> Shape | AfterCommit:
    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    deletions = _Deletions(service, queue)
    begin = deletions.begin
    for entry in request.entries:
        try:
            begin(entry.receipt_handle)
        except SqsError as error:
            failed.append(failed_entry(entry.id, error))
        else:
            successful.append(BatchResultEntry(entry.id))
    return deletions.commit(BatchResponse(successful, failed))


def change_message_visibility(
    service: SqsService, caller: SqsCaller, request: ChangeMessageVisibilityRequest
) -> Answer:
    """Change when a received message becomes visible again."""
    queue = service.of_url(caller, request.queue_url)
    service.charge(queue, Action.RECEIVE, 1)

    def change() -> Shape | AfterCommit:
        check_changed_visibility(request.visibility_timeout, _RANGE)
        commits = _change_visibility(service, queue, request.receipt_handle, request.visibility_timeout)
        return AfterCommit(commits, EmptyResponse()) if commits else EmptyResponse()

    return _after_reading(queue, [request.receipt_handle], change)


def change_message_visibility_batch(
    service: SqsService, caller: SqsCaller, request: ChangeMessageVisibilityBatchRequest
) -> Answer:
    """Change when up to ten messages become visible again; each succeeds or fails on its own."""
    queue = service.of_url(caller, request.queue_url)
    check_batch(tuple([entry.id for entry in request.entries]), "ChangeMessageVisibilityBatch")
    service.charge(queue, Action.RECEIVE, len(request.entries))
    handles = [entry.receipt_handle for entry in request.entries]
    return _after_reading(queue, handles, partial(_change_batch, service, queue, request))


def _change_batch(
    service: SqsService, queue: SqsQueue, request: ChangeMessageVisibilityBatchRequest
) -> Shape | AfterCommit:
    commits: list[Commit] = []
    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for number, entry in enumerate(request.entries, 1):
        try:
            if entry.visibility_timeout is None:
                raise missing_parameter(f"ChangeMessageVisibilityBatchRequestEntry.{number}.VisibilityTimeout")
            check_changed_visibility(entry.visibility_timeout, _RANGE_IN_BATCH)
            commits += _change_visibility(service, queue, entry.receipt_handle, entry.visibility_timeout)
        except SqsError as error:
            failed.append(failed_entry(entry.id, error))
        else:
            successful.append(BatchResultEntry(entry.id))
    response = BatchResponse(successful, failed)
    return AfterCommit(commits, response) if commits else response


def _locate(queue: SqsQueue, text: str) -> tuple[ReceiptHandle, QueuePartition]:
    handle = decode_handle(text)
    if handle.incarnation != queue.incarnation or handle.partition >= len(queue.partitions):
        raise receipt_handle_is_invalid(text)
    return handle, queue.partitions[handle.partition]


def _after_reading(queue: SqsQueue, handles: list[str], act: Callable[[], Shape | AfterCommit]) -> Answer:
    """Act, after reading messages that handles of an earlier process name and that are only in the store."""
    unread = _unread(queue, handles) if queue.has_unread_leases and not queue.fifo else []
    return _read_and_act(unread, act) if unread else act()


def _unread(queue: SqsQueue, handles: list[str]) -> list[tuple[QueuePartition, int]]:
    unread: list[tuple[QueuePartition, int]] = []
    for text in handles:
        with suppress(SqsError):
            handle, partition = _locate(queue, text)
            stored_seq = partition.queue.next_stored_seq
            if stored_seq is not None and stored_seq <= handle.seq < partition.queue.reopened_seq:
                unread.append((partition, handle.seq))
    return unread


async def _read_and_act(unread: list[tuple[QueuePartition, int]], act: Callable[[], Shape | AfterCommit]) -> Shape:
    for partition, seq in unread:
        await partition.shell.read_up_to(partition.queue, seq)
    response = act()
    return await response.wait() if isinstance(response, AfterCommit) else response


class _Deletions:
    """The deletions of one request, committed together by partition."""

    __slots__ = ("_commits", "_leases", "_now_ms", "_queue", "_service", "_settling")

    def __init__(self, service: SqsService, queue: SqsQueue) -> None:
        self._service = service
        self._queue = queue
        self._now_ms = service.clock.now_ms()
        self._settling: dict[int, list[Entry]] = {}
        self._leases: dict[int, list[int]] = {}
        self._commits: list[Commit] = []

    def begin(self, text: str) -> None:
        """Begin a deletion. A handle of a standard queue may have nothing left to delete, as on AWS."""
        handle, partition = _locate(self._queue, text)
        try:
            entry: Entry | None = partition.queue.engine.settle(handle.lease_id, self._now_ms)
        except LeaseNotFound:
            if self._queue.fifo:
                self._repeat(partition, handle, text)
                return
            entry = self._begin_late(partition, handle)
        if entry is not None:
            self._settling.setdefault(handle.partition, []).append(entry)
            if self._queue.fifo:
                self._leases.setdefault(handle.partition, []).append(handle.lease_id)

    def _repeat(self, partition: QueuePartition, handle: ReceiptHandle, text: str) -> None:
        """Delete a message of a FIFO queue again, whose client may not have got the first answer; else refuse."""
        if handle.lease_id in self._leases.get(handle.partition, ()):
            return
        if handle.lease_id not in partition.deletions:
            raise invalid_parameter(
                f"Value {text} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
            )
        deleting = partition.queue.engine.settling(handle.seq)
        if deleting is not None:
            self._commits.append((partition.shell, partition.shell.ledger.wait_for_settlement(deleting)))

    def _begin_late(self, partition: QueuePartition, handle: ReceiptHandle) -> Entry | None:
        """Delete a message by a handle that is not the latest; wait for another request's deletion to be durable."""
        engine, seq = partition.queue.engine, handle.seq
        deleting = engine.settling(seq)
        if deleting is not None and deleting not in self._settling.get(handle.partition, ()):
            self._commits.append((partition.shell, partition.shell.ledger.wait_for_settlement(deleting)))
        return None if engine.returned(seq) is None else engine.settle_late(seq)

    def commit(self, response: Shape) -> Shape | AfterCommit:
        """Return the response, to be sent after the deletions are durable."""
        commits = self._commits
        for index, entries in self._settling.items():
            partition = self._queue.partitions[index]
            pending = partition.shell.ledger.settle(partition.queue, entries)
            commits.append((partition.shell, pending))
            if index in self._leases:
                partition.deletions.add(self._leases[index], pending)
            self._service.metrics.count_partition(self._queue, index, "delete", len(entries))
        return AfterCommit(commits, response) if commits else response


def _change_visibility(service: SqsService, queue: SqsQueue, text: str, visibility_s: int) -> list[Commit]:
    """Change when a message is visible again; return what must be durable first if the queue keeps its leases."""
    handle, partition = _locate(queue, text)
    now_ms = service.clock.now_ms()
    ledger = partition.shell.ledger
    try:
        entry = _leased_entry(queue, partition, handle, now_ms)
        deadline_ms = now_ms + visibility_s * 1000
        # In whole seconds, so that a message received just now can be hidden for the longest time there is.
        total_s = visibility_s + (now_ms - entry.leased_ms) // SECOND_MS
        if total_s > MAX_VISIBILITY_S and entry.state is EntryState.LEASED:
            raise invalid_parameter(
                f"Value {visibility_s} for parameter VisibilityTimeout is invalid. Reason: Total "
                f"VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_S} seconds]."
            )
        if entry.lease_id != handle.lease_id or entry.deadline_ms <= now_ms:
            entry = ledger.set_late_deadline(partition.queue, handle.seq, deadline_ms, now_ms)
        elif visibility_s == 0:
            ledger.release(partition.queue, handle.lease_id, now_ms, 0)
        else:
            ledger.set_deadline(partition.queue, handle.lease_id, deadline_ms, now_ms)
    except LeaseNotFound:
        raise invalid_parameter(
            f"Value {text} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        ) from None
    partition.shell.kick()
    if not queue.keeps_leases:
        return []
    # The end of a lease is in the journal already, so only its commit is waited for.
    held = [entry] if entry.state is EntryState.LEASED else []
    return [(partition.shell, ledger.save_leases(partition.queue, held))]


def _leased_entry(queue: SqsQueue, partition: QueuePartition, handle: ReceiptHandle, now_ms: int) -> Entry:
    """Return the message of a handle: under its lease, or in a standard queue any message that had that lease."""
    engine = partition.queue.engine
    try:
        return engine.lease(handle.lease_id, now_ms)
    except LeaseNotFound:
        partition.shell.ledger.run_due(now_ms)
        entry = None if queue.fifo else engine.returned(handle.seq)
        if entry is None:
            raise
        return entry

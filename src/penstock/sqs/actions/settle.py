"""DeleteMessage and ChangeMessageVisibility, single and in batches."""

from penstock.engine import Entry, LeaseNotFound
from penstock.sqs.actions.answer import AfterCommit, Answer, Commit
from penstock.sqs.actions.contents import MAX_VISIBILITY_S, check_batch, check_visibility, failed_entry
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


def delete_message(service: SqsService, caller: SqsCaller, request: DeleteMessageRequest) -> Answer:
    """Delete a message by its receipt handle."""
    queue = service.of_url(request.queue_url)
    service.charge(queue, Action.RECEIVE, 1)
    deletions = _Deletions(service, queue)
    deletions.begin(request.receipt_handle)
    return deletions.commit(EmptyResponse())


def delete_message_batch(service: SqsService, caller: SqsCaller, request: DeleteMessageBatchRequest) -> Answer:
    """Delete up to ten messages; each succeeds or fails on its own."""
    queue = service.of_url(request.queue_url)
    check_batch(tuple([entry.id for entry in request.entries]), "DeleteMessageBatch")
    service.charge(queue, Action.RECEIVE, len(request.entries))
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
) -> EmptyResponse:
    """Change when a received message becomes visible again."""
    queue = service.of_url(request.queue_url)
    service.charge(queue, Action.RECEIVE, 1)
    _change_visibility(service, queue, request.receipt_handle, request.visibility_timeout)
    return EmptyResponse()


def change_message_visibility_batch(
    service: SqsService, caller: SqsCaller, request: ChangeMessageVisibilityBatchRequest
) -> BatchResponse:
    """Change when up to ten messages become visible again; each succeeds or fails on its own."""
    queue = service.of_url(request.queue_url)
    check_batch(tuple([entry.id for entry in request.entries]), "ChangeMessageVisibilityBatch")
    service.charge(queue, Action.RECEIVE, len(request.entries))
    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for entry in request.entries:
        try:
            if entry.visibility_timeout is None:
                raise missing_parameter("VisibilityTimeout")
            _change_visibility(service, queue, entry.receipt_handle, entry.visibility_timeout)
        except SqsError as error:
            failed.append(failed_entry(entry.id, error))
        else:
            successful.append(BatchResultEntry(entry.id))
    return BatchResponse(successful, failed)


def _locate(queue: SqsQueue, text: str) -> tuple[ReceiptHandle, QueuePartition]:
    handle = decode_handle(text)
    if handle.incarnation != queue.incarnation or handle.partition >= len(queue.partitions):
        raise receipt_handle_is_invalid(text)
    return handle, queue.partitions[handle.partition]


class _Deletions:
    """The deletions of one request, committed together by partition."""

    __slots__ = ("_now_ms", "_queue", "_service", "_settling")

    def __init__(self, service: SqsService, queue: SqsQueue) -> None:
        self._service = service
        self._queue = queue
        self._now_ms = service.clock.now_ms()
        self._settling: dict[int, list[Entry]] = {}

    def begin(self, text: str) -> None:
        """Begin a deletion. An expired handle of a standard queue may have nothing left to delete, as on AWS."""
        handle, partition = _locate(self._queue, text)
        try:
            if handle.epoch != self._service.epoch:
                raise LeaseNotFound("the lease belongs to an earlier server process")
            entry = partition.queue.engine.settle(handle.lease_id, self._now_ms)
        except LeaseNotFound:
            if not self._queue.fifo:
                return
            raise invalid_parameter(
                f"Value {text} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
            ) from None
        self._settling.setdefault(handle.partition, []).append(entry)

    def commit(self, response: Shape) -> Answer:
        """Return the response, to be sent after the deletions are durable."""
        commits: list[Commit] = []
        for index, entries in self._settling.items():
            partition = self._queue.partitions[index]
            commits.append((partition.shell, partition.shell.ledger.settle(partition.queue, entries)))
            self._service.metrics.count_partition(self._queue, index, "delete", len(entries))
        return AfterCommit(commits, response) if commits else response


def _change_visibility(service: SqsService, queue: SqsQueue, text: str, visibility_s: int) -> None:
    check_visibility(visibility_s)
    handle, partition = _locate(queue, text)
    now_ms = service.clock.now_ms()
    ledger = partition.shell.ledger
    try:
        if handle.epoch != service.epoch:
            raise LeaseNotFound("the lease belongs to an earlier server process")
        entry = partition.queue.engine.lease(handle.lease_id, now_ms)
        if visibility_s == 0:
            ledger.release(partition.queue, handle.lease_id, now_ms, 0)
        else:
            deadline_ms = now_ms + visibility_s * 1000
            if deadline_ms - entry.leased_ms > MAX_VISIBILITY_S * 1000:
                raise invalid_parameter(
                    f"Value {visibility_s} for parameter VisibilityTimeout is invalid. Reason: Total "
                    f"VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_S} seconds]."
                )
            ledger.set_deadline(partition.queue, handle.lease_id, deadline_ms, now_ms)
    except LeaseNotFound:
        raise invalid_parameter(
            f"Value {text} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        ) from None
    partition.shell.kick()

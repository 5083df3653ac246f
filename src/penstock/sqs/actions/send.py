"""SendMessage and SendMessageBatch."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

from penstock.domain.message import Message, TypedValue
from penstock.engine import total_bytes
from penstock.sqs.actions.answer import AfterCommit, Commit
from penstock.sqs.actions.contents import (
    check_batch,
    check_batch_size,
    check_body,
    check_dedup_id,
    check_delay,
    check_group_id,
    failed_entry,
    too_large,
)
from penstock.sqs.actions.message_attributes import (
    TRACE_HEADER,
    body_md5,
    check_no_lists,
    checked_attributes,
    md5_of,
    size_of,
    trace_header,
)
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import SqsError, invalid_parameter, missing_parameter, not_for_this_kind
from penstock.sqs.model import (
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResponse,
    SendMessageBatchResultEntry,
    SendMessageRequest,
    SendMessageResponse,
)
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.receipts import QueuePartition
from penstock.sqs.queue.throttle import SEND
from penstock.sqs.service import SqsService

# Separates a group from a deduplication id within it; neither may contain it.
GROUP_SEPARATOR = "\x1f"

# A plain dictionary, never changed: the store encodes it faster than a read-only mapping.
_NONE: Mapping[str, TypedValue] = {}


def send_message(service: SqsService, caller: SqsCaller, request: SendMessageRequest) -> AfterCommit:
    """Send one message."""
    queue = service.of_url(caller, request.queue_url)
    _refuse_lists("SendMessage", (request,))
    now_ms = service.clock.now_ms()
    service.charge(queue, SEND, 1, now_ms)
    (message_id,) = service.new_message_ids(1)
    message = _message(message_id, queue, caller, request, now_ms, harmless=caller.is_harmless)
    response = SendMessageResponse(message.id, body_md5(message.body))
    _add_digests(response, message, request)
    partition = queue.partition_for(message.group)
    return AfterCommit([_send(service, queue, partition, (message,), (response,))], response)


def send_message_batch(
    service: SqsService, caller: SqsCaller, request: SendMessageBatchRequest
) -> AfterCommit | SendMessageBatchResponse:
    """Send up to ten messages; each succeeds or fails by itself, unless the batch is malformed."""
    queue = service.of_url(caller, request.queue_url)
    entries = request.entries
    check_batch(tuple([entry.id for entry in entries]), "SendMessageBatch")
    _refuse_lists("SendMessageBatch", entries)
    if queue.fifo:
        _check_fifo_entries(queue, entries)
    now_ms = service.clock.now_ms()
    service.charge(queue, SEND, len(entries), now_ms)
    response = SendMessageBatchResponse([], [])
    messages: list[Message] = []
    failed_bytes = 0
    harmless = caller.is_harmless
    for number, (entry, message_id) in enumerate(zip(entries, service.new_message_ids(len(entries)), strict=True), 1):
        try:
            message = _message(message_id, queue, caller, entry, now_ms, harmless=harmless)
        except SqsError as error:
            response.failed.append(failed_entry(entry.id, error if entry.message_body else _without_body(number)))
            failed_bytes += _size_of_entry(entry)
            continue
        messages.append(message)
        result = SendMessageBatchResultEntry(entry.id, message.id, body_md5(message.body))
        _add_digests(result, message, entry)
        response.successful.append(result)
    check_batch_size(total_bytes(messages) + failed_bytes)
    if not messages:
        return response
    return AfterCommit(_send_all(service, queue, messages, response.successful), response)


def _refuse_lists(action: str, requests: Sequence[SendMessageRequest | SendMessageBatchRequestEntry]) -> None:
    for request in requests:
        if request.message_attributes:
            check_no_lists(action, request.message_attributes)
        if request.message_system_attributes:
            check_no_lists(action, request.message_system_attributes)


def _check_fifo_entries(queue: SqsQueue, entries: Sequence[SendMessageBatchRequestEntry]) -> None:
    """Refuse the whole batch, as AWS does, if an entry has no group or nothing to deduplicate by."""
    by_content = queue.attributes.content_based_deduplication
    for entry in entries:
        if entry.message_group_id is None:
            raise invalid_parameter("The request must contain the parameter MessageGroupId.")
        if entry.message_deduplication_id is None and not by_content:
            raise _nothing_to_deduplicate_by()


def _without_body(number: int) -> SqsError:
    return missing_parameter(f"SendMessageBatchRequestEntry.{number}.MessageBody")


def _size_of_entry(entry: SendMessageBatchRequestEntry) -> int:
    """Return what an entry that failed counts towards the size of its batch."""
    size = len(entry.message_body.encode("utf-8", "surrogatepass"))
    for name, value in entry.message_attributes.items():
        for text in (name, value.data_type, value.string_value or ""):
            size += len(text.encode("utf-8", "surrogatepass"))
        size += len(value.binary_value or b"")
    return size


def _send_all(
    service: SqsService, queue: SqsQueue, messages: list[Message], results: list[SendMessageBatchResultEntry]
) -> list[Commit]:
    """Send the messages, one commit per partition, in the order of the entries."""
    if len(queue.partitions) == 1:
        return [_send(service, queue, queue.partitions[0], messages, results)]
    parts: dict[int, tuple[list[Message], list[SendMessageBatchResultEntry]]] = {}
    for message, result in zip(messages, results, strict=True):
        part = parts.setdefault(queue.partition_for(message.group).index, ([], []))
        part[0].append(message)
        part[1].append(result)
    return [_send(service, queue, queue.partitions[index], *part) for index, part in parts.items()]


def _send(
    service: SqsService,
    queue: SqsQueue,
    partition: QueuePartition,
    messages: Sequence[Message],
    results: Sequence[SendMessageResponse | SendMessageBatchResultEntry],
) -> Commit:
    """Send to one partition; in a FIFO queue, set the sequence number of the message or of the one it duplicates."""
    send = partition.shell.ledger.send(partition.stream, messages, messages[0].sent_ms)
    service.metrics.count_partition(queue, partition.index, "send", len(messages))
    if queue.fifo:
        if send.is_all_new:
            for seq, result in enumerate(results, send.first_seq):
                result.sequence_number = sequence_number(seq)
        else:
            for result, receipt in zip(results, send.receipts, strict=True):
                result.message_id = receipt.message_id
                result.sequence_number = sequence_number(receipt.seq)
    return partition.shell, send


def sequence_number(seq: int) -> str:
    """Return a sequence number as clients see it: 20 digits."""
    return f"{seq:020d}"


def _message(
    message_id: str,
    queue: SqsQueue,
    caller: SqsCaller,
    request: SendMessageRequest | SendMessageBatchRequestEntry,
    now_ms: int,
    *,
    harmless: bool,
) -> Message:
    """Return the message that a request describes; SqsError if it may not be sent."""
    body = check_body(request.message_body, harmless=harmless)
    size = len(body)
    typed = _NONE
    if request.message_attributes:
        typed = checked_attributes(request.message_attributes)
        size += size_of(typed)
    if size > queue.attributes.maximum_message_size:
        by_itself = isinstance(request, SendMessageBatchRequestEntry)
        raise too_large(queue.attributes.maximum_message_size, fails_by_itself=by_itself)
    notes = caller.notes
    if request.message_system_attributes:
        notes = {**notes, TRACE_HEADER: trace_header(request.message_system_attributes)[TRACE_HEADER].value.decode()}
    if queue.fifo:
        group, dedup_id, delay_s = _fifo_fields(queue, request, body)
    else:
        group, dedup_id, delay_s = _standard_fields(queue, request)
    deliver_at_ms = now_ms + delay_s * 1000 if delay_s else 0
    return Message(message_id, body, now_ms, size, group, typed, dedup_id, deliver_at_ms, notes)


def _add_digests(
    result: SendMessageResponse | SendMessageBatchResultEntry,
    message: Message,
    request: SendMessageRequest | SendMessageBatchRequestEntry,
) -> None:
    if message.attributes:
        result.md5_of_message_attributes = md5_of(message.attributes)
    if request.message_system_attributes:
        result.md5_of_message_system_attributes = md5_of(trace_header(request.message_system_attributes))


def _standard_fields(
    queue: SqsQueue, request: SendMessageRequest | SendMessageBatchRequestEntry
) -> tuple[str, str, int]:
    if request.message_deduplication_id is not None:
        raise not_for_this_kind("MessageDeduplicationId", request.message_deduplication_id)
    group = request.message_group_id
    if group is not None:
        check_group_id(group)
    delay_s = queue.attributes.delay_seconds if request.delay_seconds is None else check_delay(request.delay_seconds)
    return group or "", "", delay_s


def _fifo_fields(
    queue: SqsQueue, request: SendMessageRequest | SendMessageBatchRequestEntry, body: bytes
) -> tuple[str, str, int]:
    attributes = queue.attributes
    group = request.message_group_id
    if group is None:
        raise missing_parameter("MessageGroupId")
    check_group_id(group)
    if request.delay_seconds:
        raise not_for_this_kind("DelaySeconds", request.delay_seconds)
    dedup_id = request.message_deduplication_id
    if dedup_id is not None:
        check_dedup_id(dedup_id)
    elif attributes.content_based_deduplication:
        dedup_id = sha256(body).hexdigest()
    else:
        raise _nothing_to_deduplicate_by()
    if queue.deduplicates_by_group:
        dedup_id = f"{group}{GROUP_SEPARATOR}{dedup_id}"
    return group, dedup_id, attributes.delay_seconds


def _nothing_to_deduplicate_by() -> SqsError:
    return invalid_parameter(
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )

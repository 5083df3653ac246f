"""SendMessage and SendMessageBatch."""

from collections.abc import Mapping
from hashlib import md5, sha256

import msgspec

from penstock.core.message import Message, TypedValue
from penstock.queue.pending import PendingSend, Receipt
from penstock.sqs.actions.batches import check_batch, failed_entry
from penstock.sqs.caller import Caller
from penstock.sqs.contents import (
    check_batch_size,
    check_body,
    check_dedup_id,
    check_delay,
    check_group_id,
    check_size,
)
from penstock.sqs.errors import SqsError, invalid_parameter, missing_parameter, not_for_this_kind
from penstock.sqs.message_attributes import TRACE_HEADER, checked_attributes, md5_of, size_of, trace_header
from penstock.sqs.model import (
    BatchResultErrorEntry,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResponse,
    SendMessageBatchResultEntry,
    SendMessageRequest,
    SendMessageResponse,
)
from penstock.sqs.partition import Partition
from penstock.sqs.queue import SqsQueue
from penstock.sqs.service import SqsService
from penstock.sqs.throttling import Action

# Separates a group from a deduplication id within it; neither may contain it.
GROUP_SEPARATOR = "\x1f"

# A plain dictionary, never changed: the store encodes one quicker than a read-only mapping.
_NONE: Mapping[str, TypedValue] = {}


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message that may be sent, and the digests its sender is answered with."""

    message: Message
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


async def send_message(service: SqsService, caller: Caller, request: SendMessageRequest) -> SendMessageResponse:
    """Send one message."""
    queue = service.of_url(request.queue_url)
    service.charge(queue, Action.SEND, 1)
    draft = _draft(service, queue, caller, request, service.clock.now_ms())
    partition = queue.partition_for(draft.message.group)
    send = partition.shell.ledger.send(partition.stream, (draft.message,), draft.message.sent_ms)
    await partition.shell.commit(send)
    service.metrics.count_partition(queue, partition.index, "send", 1)
    receipt = send.receipts[0]
    return SendMessageResponse(
        receipt.message_id,
        draft.md5_of_body,
        draft.md5_of_attributes,
        draft.md5_of_system_attributes,
        sequence_number(receipt.seq) if queue.fifo else None,
    )


async def send_message_batch(
    service: SqsService, caller: Caller, request: SendMessageBatchRequest
) -> SendMessageBatchResponse:
    """Send up to ten messages; each succeeds or fails by itself."""
    queue = service.of_url(request.queue_url)
    check_batch([entry.id for entry in request.entries])
    service.charge(queue, Action.SEND, len(request.entries))
    failed: list[BatchResultErrorEntry] = []
    drafts: list[tuple[str, Draft]] = []
    now_ms = service.clock.now_ms()
    for entry in request.entries:
        try:
            drafts.append((entry.id, _draft(service, queue, caller, entry, now_ms)))
        except SqsError as error:
            failed.append(failed_entry(entry.id, error))
    check_batch_size(sum(draft.message.size_bytes for _, draft in drafts))
    sends = _send_all(queue, drafts)
    successful: list[SendMessageBatchResultEntry] = []
    for partition, send, part in sends:
        await partition.shell.commit(send)
        service.metrics.count_partition(queue, partition.index, "send", len(part))
        successful += [
            _result(queue, id, draft, receipt) for (id, draft), receipt in zip(part, send.receipts, strict=True)
        ]
    return SendMessageBatchResponse(successful, failed)


def _send_all(
    queue: SqsQueue, drafts: list[tuple[str, Draft]]
) -> list[tuple[Partition, PendingSend, list[tuple[str, Draft]]]]:
    """One send per partition, in the order of the entries."""
    parts: dict[int, list[tuple[str, Draft]]] = {}
    if len(queue.partitions) == 1 and drafts:
        parts[0] = drafts
    else:
        for item in drafts:
            parts.setdefault(queue.partition_for(item[1].message.group).index, []).append(item)
    sends = []
    for index, part in parts.items():
        partition = queue.partitions[index]
        messages = [draft.message for _, draft in part]
        sends.append((partition, partition.shell.ledger.send(partition.stream, messages, messages[0].sent_ms), part))
    return sends


def _result(queue: SqsQueue, id: str, draft: Draft, receipt: Receipt) -> SendMessageBatchResultEntry:
    return SendMessageBatchResultEntry(
        id,
        receipt.message_id,
        draft.md5_of_body,
        draft.md5_of_attributes,
        draft.md5_of_system_attributes,
        sequence_number(receipt.seq) if queue.fifo else None,
    )


def sequence_number(seq: int) -> str:
    """A sequence number as clients see it: 20 digits."""
    return f"{seq:020d}"


def _draft(
    service: SqsService,
    queue: SqsQueue,
    caller: Caller,
    request: SendMessageRequest | SendMessageBatchRequestEntry,
    now_ms: int,
) -> Draft:
    """The message a request asks for; SqsError when it may not be sent."""
    attributes = queue.attributes
    body = check_body(request.message_body)
    size = len(body)
    typed = _NONE
    md5_of_attributes = md5_of_system = None
    if request.message_attributes:
        typed = checked_attributes(request.message_attributes)
        size += size_of(typed)
        md5_of_attributes = md5_of(typed)
    check_size(size, attributes.maximum_message_size)
    notes = caller.notes
    if request.message_system_attributes:
        system = trace_header(request.message_system_attributes)
        md5_of_system = md5_of(system)
        notes = {**notes, TRACE_HEADER: system[TRACE_HEADER].value.decode()}
    if queue.fifo:
        group, dedup_id, delay_s = _fifo_fields(queue, request, body)
    else:
        group, dedup_id, delay_s = _standard_fields(queue, request)
    message = Message(
        service.new_message_id(),
        body,
        now_ms,
        size,
        group,
        typed,
        dedup_id,
        now_ms + delay_s * 1000 if delay_s else 0,
        notes,
    )
    return Draft(message, md5(body, usedforsecurity=False).hexdigest(), md5_of_attributes, md5_of_system)


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
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )
    if attributes.deduplicates_by_group:
        dedup_id = f"{group}{GROUP_SEPARATOR}{dedup_id}"
    return group, dedup_id, attributes.delay_seconds

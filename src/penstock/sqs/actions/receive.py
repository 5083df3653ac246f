"""ReceiveMessage."""

from collections.abc import Callable, Sequence
from hashlib import md5

from penstock.queue.entry import Entry
from penstock.sqs.actions.send import GROUP_SEPARATOR, sequence_number
from penstock.sqs.caller import Caller
from penstock.sqs.contents import check_attempt_id, check_max_messages, check_visibility, check_wait
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, not_for_this_kind
from penstock.sqs.message_attributes import chosen, md5_of, shown
from penstock.sqs.model import ReceivedMessage, ReceiveMessageRequest, ReceiveMessageResponse
from penstock.sqs.partition import Delivery
from penstock.sqs.queue import MAX_IN_FLIGHT, SqsQueue
from penstock.sqs.receipt_handle import encode_handle
from penstock.sqs.service import SqsService
from penstock.sqs.throttling import Action

_SYSTEM: dict[str, Callable[[SqsQueue, Entry], str | None]] = {
    "SenderId": lambda queue, entry: entry.message.notes.get("SenderId"),
    "SentTimestamp": lambda queue, entry: str(entry.message.sent_ms),
    "ApproximateReceiveCount": lambda queue, entry: str(entry.receive_count),
    "ApproximateFirstReceiveTimestamp": lambda queue, entry: str(entry.first_received_ms),
    "SequenceNumber": lambda queue, entry: sequence_number(entry.seq) if queue.fifo else None,
    "MessageDeduplicationId": lambda queue, entry: entry.message.dedup_id.rpartition(GROUP_SEPARATOR)[2] or None,
    "MessageGroupId": lambda queue, entry: entry.message.group or None,
    "AWSTraceHeader": lambda queue, entry: entry.message.notes.get("AWSTraceHeader"),
    "DeadLetterQueueSourceArn": lambda queue, entry: entry.message.notes.get("DeadLetterQueueSourceArn"),
}


async def receive_message(
    service: SqsService, caller: Caller, request: ReceiveMessageRequest
) -> ReceiveMessageResponse:
    """Lease up to ten messages, waiting for one if asked to."""
    queue = service.of_url(request.queue_url)
    attributes = queue.attributes
    max_messages = 1 if request.max_number_of_messages is None else request.max_number_of_messages
    check_max_messages(max_messages)
    visibility_s = request.visibility_timeout
    if visibility_s is None:
        visibility_s = attributes.visibility_timeout
    else:
        check_visibility(visibility_s)
    wait_s = request.wait_time_seconds
    if wait_s is None:
        wait_s = attributes.receive_message_wait_time_seconds
    else:
        check_wait(wait_s)
    system_names = _system_names([*request.attribute_names, *request.message_system_attribute_names])
    service.charge(queue, Action.RECEIVE, 1)
    deliveries = await _deliveries(service, caller, queue, request, max_messages, wait_s, visibility_s * 1000)
    messages = [
        _received(service, queue, delivery, system_names, request.message_attribute_names) for delivery in deliveries
    ]
    return ReceiveMessageResponse(messages)


async def _deliveries(
    service: SqsService,
    caller: Caller,
    queue: SqsQueue,
    request: ReceiveMessageRequest,
    max_messages: int,
    wait_s: float,
    lease_ms: int,
) -> list[Delivery]:
    attempt_id = request.receive_request_attempt_id
    if attempt_id is not None:
        if not queue.fifo:
            raise not_for_this_kind("ReceiveRequestAttemptId", attempt_id)
        check_attempt_id(attempt_id)
        repeated = queue.attempts.repeat(attempt_id, lease_ms, service.clock.now_ms())
        if repeated is not None:
            return repeated
    if not queue.fifo and queue.in_flight() >= MAX_IN_FLIGHT:
        raise SqsError(ErrorKind.OVER_LIMIT, f"Too many messages in flight: at most {MAX_IN_FLIGHT} at a time.")
    deliveries = await queue.receive(max_messages, 0, lease_ms)
    if not deliveries and wait_s:
        deliveries = await caller.while_there(queue.receive(max_messages, wait_s, lease_ms))
    if attempt_id is not None and deliveries:
        queue.attempts.remember(attempt_id, deliveries, service.clock.now_ms())
    if len(queue.partitions) > 1:
        for delivery in deliveries:
            service.metrics.count_partition(queue, delivery.partition.index, "receive", 1)
    return deliveries


def _received(
    service: SqsService,
    queue: SqsQueue,
    delivery: Delivery,
    system_names: Sequence[str],
    attribute_names: list[str],
) -> ReceivedMessage:
    entry = delivery.entry
    message = entry.message
    received = ReceivedMessage(
        message.id,
        encode_handle(delivery.partition.index, queue.incarnation, entry.seq, entry.lease_id, service.epoch),
        md5(message.body, usedforsecurity=False).hexdigest(),
        message.body.decode(),
    )
    if system_names:
        values = ((name, _SYSTEM[name](queue, entry)) for name in system_names)
        received.attributes = {name: value for name, value in values if value is not None}
    if attribute_names and message.attributes:
        typed = chosen(message.attributes, attribute_names)
        if typed:
            received.message_attributes = shown(typed)
            received.md5_of_message_attributes = md5_of(typed)
    return received


def _system_names(asked: list[str]) -> Sequence[str]:
    if not asked:
        return ()
    if "All" in asked:
        return tuple(_SYSTEM)
    for name in asked:
        if name not in _SYSTEM:
            raise invalid_parameter(f"Unknown Attribute {name}.")
    return asked

"""ReceiveMessage: lease messages, or wait for some."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.engine import Entry
from penstock.sqs.actions.answer import AfterCommit, Answer
from penstock.sqs.actions.contents import (
    MAX_RECEIVED,
    check_attempt_id,
    check_max_messages,
    check_visibility,
    check_wait,
)
from penstock.sqs.actions.message_attributes import body_md5, chosen, md5_of, shown
from penstock.sqs.actions.send import GROUP_SEPARATOR, sequence_number
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, not_for_this_kind
from penstock.sqs.model import ReceivedMessage, ReceiveMessageRequest, ReceiveMessageResponse, Shape
from penstock.sqs.queue.queue import MAX_IN_FLIGHT, SqsQueue
from penstock.sqs.queue.receipts import SqsDelivery, encode_handle
from penstock.sqs.queue.redrive import first_received_ms, total_receives
from penstock.sqs.queue.throttle import Action
from penstock.sqs.service import SqsService

_SYSTEM: dict[str, Callable[[SqsQueue, Entry], str | None]] = {
    "SenderId": lambda queue, entry: entry.message.notes.get("SenderId"),
    "SentTimestamp": lambda queue, entry: str(entry.message.sent_ms),
    "ApproximateReceiveCount": lambda queue, entry: str(total_receives(entry)),
    "ApproximateFirstReceiveTimestamp": lambda queue, entry: str(first_received_ms(entry)),
    "SequenceNumber": lambda queue, entry: sequence_number(entry.seq) if queue.fifo else None,
    "MessageDeduplicationId": lambda queue, entry: entry.message.dedup_id.rpartition(GROUP_SEPARATOR)[2] or None,
    "MessageGroupId": lambda queue, entry: entry.message.group or None,
    "AWSTraceHeader": lambda queue, entry: entry.message.notes.get("AWSTraceHeader"),
    "DeadLetterQueueSourceArn": lambda queue, entry: entry.message.notes.get("DeadLetterQueueSourceArn"),
}

_HAND_OVER_S = 5.0


def receive_message(service: SqsService, caller: SqsCaller, request: ReceiveMessageRequest) -> Answer:
    """Lease up to ten messages; if there are none, wait if the request asks for it."""
    queue = service.of_url(caller, request.queue_url)
    receive = _Receive(service, queue, request)
    if caller.hop is None or not caller.hop.woken:
        service.charge(queue, Action.RECEIVE, 1)
    repeated = receive.repeated()
    if repeated is not None:
        return receive.durable(repeated, receive.response(repeated))
    deliveries = queue.lease_now(receive.max_messages, receive.lease_ms)
    if not deliveries and not queue.fifo and queue.in_flight() >= MAX_IN_FLIGHT:
        raise SqsError(ErrorKind.OVER_LIMIT, f"Too many messages in flight: at most {MAX_IN_FLIGHT} at a time.")
    if deliveries or not (receive.wait_s or queue.wants_page()):
        return receive.after_hand_overs(deliveries) if queue.hand_overs else receive.fresh_response(deliveries)
    return receive.wait(caller)


def leases_over() -> SqsError:
    """Return the error of a receive whose answer is ready only after its leases."""
    return SqsError(ErrorKind.SERVICE_UNAVAILABLE, "The messages were received too late; receive again.")


class _Receive:
    """A receive and its response."""

    __slots__ = (
        "_attempt_id",
        "_attribute_names",
        "_queue",
        "_service",
        "_system_names",
        "lease_ms",
        "max_messages",
        "wait_s",
    )

    def __init__(self, service: SqsService, queue: SqsQueue, request: ReceiveMessageRequest) -> None:
        attributes = queue.attributes
        self._service = service
        self._queue = queue
        self.max_messages = 1
        if request.max_number_of_messages is not None:
            self.max_messages = check_max_messages(request.max_number_of_messages)
        visibility_s = attributes.visibility_timeout
        if request.visibility_timeout is not None:
            visibility_s = check_visibility(request.visibility_timeout)
        self.lease_ms = visibility_s * 1000
        self.wait_s = attributes.receive_message_wait_time_seconds
        if request.wait_time_seconds is not None:
            self.wait_s = check_wait(request.wait_time_seconds)
        self._system_names = _system_names([*request.attribute_names, *request.message_system_attribute_names])
        self._attribute_names = request.message_attribute_names
        self._attempt_id = request.receive_request_attempt_id

    def repeated(self) -> list[SqsDelivery] | None:
        """Return what an earlier receive with the same attempt id returned, if it is still valid."""
        attempt_id = self._attempt_id
        if attempt_id is None:
            return None
        if not self._queue.fifo:
            raise not_for_this_kind("ReceiveRequestAttemptId", attempt_id)
        check_attempt_id(attempt_id)
        return self._queue.attempts.repeat(attempt_id, self.lease_ms, self._service.clock.now_ms())

    async def wait(self, caller: SqsCaller) -> Shape:
        """Read on in the store or wait for a message, as long as the caller is connected."""
        queue = self._queue
        deliveries = await queue.receive(self.max_messages, 0, self.lease_ms)
        if not deliveries and self.wait_s:
            deliveries = await caller.while_connected(queue.receive(self.max_messages, self.wait_s, self.lease_ms))
        return await self.after_hand_overs(deliveries)

    async def after_hand_overs(self, deliveries: list[SqsDelivery]) -> Shape:
        """Return the response once the dead letters that this receive found are in their queue.

        A group goes on behind its dead letter, so a receive that found nothing else looks again. The dead-letter
        queue may be on a node that does not answer, so the response does not wait for ever.
        """
        queue, loop = self._queue, asyncio.get_running_loop()
        until_s = loop.time() + _HAND_OVER_S
        for _ in range(MAX_RECEIVED):
            if not queue.hand_overs or loop.time() >= until_s:
                break
            await asyncio.wait(queue.hand_overs, timeout=until_s - loop.time())
            deliveries = deliveries or queue.lease_now(self.max_messages, self.lease_ms)
        answer = self.fresh_response(deliveries)
        return await answer.wait() if isinstance(answer, AfterCommit) else answer

    def fresh_response(self, deliveries: list[SqsDelivery]) -> ReceiveMessageResponse | AfterCommit:
        """Return the response for messages leased just now."""
        queue, service = self._queue, self._service
        if self._attempt_id is not None and deliveries:
            queue.attempts.remember(self._attempt_id, deliveries, service.clock.now_ms())
        for delivery in deliveries:
            service.metrics.count_partition(queue, delivery.partition.index, "receive", len(delivery.entries))
        return self.durable(deliveries, self.response(deliveries))

    def durable(
        self, deliveries: list[SqsDelivery], response: ReceiveMessageResponse
    ) -> ReceiveMessageResponse | AfterCommit:
        """Return the response, to be sent once the leases are durable if the queue keeps them."""
        if not deliveries or not self._queue.keeps_leases:
            return response
        commits = [
            (each.partition.shell, each.partition.shell.ledger.save_leases(each.partition.queue, each.entries))
            for each in deliveries
        ]
        return AfterCommit(commits, response, partial(self._require_leased, deliveries))

    def _require_leased(self, deliveries: list[SqsDelivery]) -> None:
        """Raise if others may have the messages by now, as when the process was paused meanwhile (SQS-NODE-7)."""
        self._service.require_owned()
        now_ms = self._service.clock.now_ms()
        if self.lease_ms and any(entry.deadline_ms <= now_ms for each in deliveries for entry in each.entries):
            raise leases_over()

    def response(self, deliveries: list[SqsDelivery]) -> ReceiveMessageResponse:
        """Return the response for these deliveries."""
        incarnation = self._queue.incarnation
        asks_more = self._system_names or self._attribute_names
        messages: list[ReceivedMessage] = []
        for delivery in deliveries:
            partition = delivery.partition.index
            for entry in delivery.entries:
                message = entry.message
                body = message.body
                received = ReceivedMessage(
                    message.id,
                    encode_handle(partition, incarnation, entry.seq, entry.lease_id),
                    body_md5(body),
                    body.decode(),
                )
                if asks_more:
                    self._add_attributes(received, entry)
                messages.append(received)
        return ReceiveMessageResponse(messages)

    def _add_attributes(self, received: ReceivedMessage, entry: Entry) -> None:
        if self._system_names:
            values = ((name, _SYSTEM[name](self._queue, entry)) for name in self._system_names)
            received.attributes = {name: value for name, value in values if value is not None}
        attributes = entry.message.attributes
        if self._attribute_names and attributes:
            typed = chosen(attributes, self._attribute_names)
            if typed:
                received.message_attributes = shown(typed)
                received.md5_of_message_attributes = md5_of(typed)


def _system_names(asked: list[str]) -> Sequence[str]:
    if not asked:
        return ()
    if "All" in asked:
        return tuple(_SYSTEM)
    for name in asked:
        if name not in _SYSTEM:
            raise invalid_parameter(f"Unknown Attribute {name}.")
    return asked

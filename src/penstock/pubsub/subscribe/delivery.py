"""Deliveries of the protocol, and their acks and deadlines, from any call."""

from collections.abc import Iterable, MutableSequence, Sequence

from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, BrokerSubscription, ack_id_of
from penstock.domain.limits import MAX_ACK_DEADLINE_S, SECOND_MS
from penstock.engine import Entry
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.subscribe.outstanding import StreamIndex
from penstock.pubsub.wire import decode


def deliver(
    subscription: BrokerSubscription, entries: Iterable[Entry], into: MutableSequence[types.ReceivedMessage]
) -> list[str]:
    """Append messages to a response; return their ack ids."""
    counts_attempts = subscription.config.options.dead_letter_policy is not None
    tag = subscription.tag
    add = into.add  # type: ignore[attr-defined]  # a method of raw repeated fields
    ack_ids: list[str] = []
    for entry in entries:
        message = entry.message
        received = add()
        received.ack_id = ack_id = ack_id_of(entry, tag)
        ack_ids.append(ack_id)
        if counts_attempts:
            received.delivery_attempt = entry.receive_count
        sent = received.message
        sent.data = message.body
        sent.message_id = message.id
        publish_time = sent.publish_time
        publish_time.seconds, milliseconds = divmod(message.sent_ms, SECOND_MS)
        publish_time.nanos = milliseconds * 1_000_000
        if message.group:
            sent.ordering_key = message.group
        if message.attributes:
            sent.attributes.update(message.attributes)
        if message.notes:
            sent.attributes.update(message.notes)
    return ack_ids


class Acks:
    """Settles deliveries and frees the capacity of the streams that hold them."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self.streams = StreamIndex()

    async def settle(self, subscription: BrokerSubscription, ack_ids: Iterable[str]) -> list[str]:
        """Acknowledge deliveries; return the ack ids that are not current, an error only for exactly-once delivery."""
        ids = list(ack_ids)
        free = self.streams.free
        for ack_id in ids:
            free(ack_id)
        return await self._broker.ack_current(subscription, ids)

    def set_deadlines(self, subscription: BrokerSubscription, deadlines_s: Sequence[tuple[str, int]]) -> list[str]:
        """Set deadlines in seconds from now, 0 to give a delivery back; return the ack ids that are not current."""
        for ack_id, seconds in deadlines_s:
            if not 0 <= seconds <= MAX_ACK_DEADLINE_S:
                raise InvalidRequest(
                    f"an ack deadline must be between 0 and {MAX_ACK_DEADLINE_S} seconds, got {seconds}"
                )
            if not seconds:
                self.streams.free(ack_id)
        return self._broker.set_ack_deadlines(subscription, deadlines_s)


def exactly_once(subscription: BrokerSubscription) -> bool:
    """Return whether the subscription confirms acks."""
    return decode(wire.Subscription, subscription.config.definition).enable_exactly_once_delivery

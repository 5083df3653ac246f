"""Leased messages as the protocol delivers them."""

from collections.abc import Iterable, MutableSequence

from google.pubsub_v1 import types

from penstock.broker.subscription import Subscription, ack_id_of
from penstock.domain.limits import SECOND_MS
from penstock.engine.entry import Entry


def deliver(
    subscription: Subscription, entries: Iterable[Entry], into: MutableSequence[types.ReceivedMessage]
) -> list[str]:
    """Append messages to a response; gives their ack ids."""
    counts_attempts = subscription.config.options.dead_letter_policy is not None
    tag = subscription.tag
    add = into.add  # type: ignore[attr-defined]  # what a raw repeated field has
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
        moment = sent.publish_time
        moment.seconds, milliseconds = divmod(message.sent_ms, SECOND_MS)
        moment.nanos = milliseconds * 1_000_000
        if message.group:
            sent.ordering_key = message.group
        if message.attributes:
            sent.attributes.update(message.attributes)
        if message.notes:
            sent.attributes.update(message.notes)
    return ack_ids

"""Which messages of a publish a subscription does not get: those it does not want, and those it has no room for."""

import logging
from collections.abc import Sequence

from penstock.broker.errors import SubscriptionFull
from penstock.broker.options import Overflow
from penstock.broker.subscription import Subscription
from penstock.domain.message import Message

log = logging.getLogger(__name__)


def skips(subscriptions: Sequence[Subscription], messages: Sequence[Message], now_ms: int) -> dict[int, int] | None:
    """Queue id → a bit for each message its subscription does not get; SubscriptionFull when one of them rejects."""
    sizes = [message.size_bytes for message in messages]
    total_bytes = sum(sizes)
    full = [found for found in subscriptions if not found.has_room(len(sizes), total_bytes)]
    for subscription in full:
        if subscription.config.options.overflow is Overflow.REJECT:
            raise SubscriptionFull(
                f"subscription {subscription.name} is at its capacity and rejects; "
                "ack what waits there, raise max_messages or max_bytes, or choose overflow 'drop'"
            )
    found = unwanted_skips(subscriptions, messages)
    for subscription in full:
        bits = _drop_beyond_capacity(subscription, sizes, now_ms)
        found[subscription.queue.id] = found.get(subscription.queue.id, 0) | bits
    return found or None


def unwanted_skips(subscriptions: Sequence[Subscription], messages: Sequence[Message]) -> dict[int, int]:
    """The same for messages that subscriptions do not want, whether or not they have room."""
    found: dict[int, int] = {}
    for subscription in subscriptions:
        if subscription.unwanted is not None and (bits := subscription.unwanted_bits(messages)):
            found[subscription.queue.id] = bits
    return found


def _drop_beyond_capacity(subscription: Subscription, sizes: list[int], now_ms: int) -> int:
    bits = kept = kept_bytes = 0
    for index, size in enumerate(sizes):
        if subscription.has_room(kept + 1, kept_bytes + size):
            kept, kept_bytes = kept + 1, kept_bytes + size
        else:
            bits |= 1 << index
    if subscription.count_drops(bits.bit_count(), now_ms):
        log.warning(
            "subscription is at its capacity, new messages are dropped for it (%d so far)",
            subscription.dropped,
            extra={"queue": subscription.name},
        )
    return bits

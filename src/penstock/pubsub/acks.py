"""Acks and deadlines, by whichever call they come; with exactly-once delivery the caller is told of each one."""

from collections.abc import Iterable, Sequence

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.subscription import Subscription
from penstock.domain.limits import MAX_ACK_DEADLINE_S
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.outstanding import Holders
from penstock.pubsub.wire import decode


class Acks:
    """Settles deliveries and frees the streams that held them."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self.holders = Holders()

    async def settle(self, subscription: Subscription, ack_ids: Iterable[str]) -> list[str]:
        """Acknowledge; gives the ack ids that are not current, which is no error unless exactly-once is asked for."""
        ids = list(ack_ids)
        free = self.holders.free
        for ack_id in ids:
            free(ack_id)
        return await self._broker.ack_current(subscription, ids)

    def set_deadlines(self, subscription: Subscription, deadlines_s: Sequence[tuple[str, int]]) -> list[str]:
        """Let deliveries run out so many seconds from now; 0 gives them back. Tells the ack ids not current."""
        for ack_id, seconds in deadlines_s:
            if not 0 <= seconds <= MAX_ACK_DEADLINE_S:
                raise InvalidRequest(
                    f"an ack deadline must be between 0 and {MAX_ACK_DEADLINE_S} seconds, got {seconds}"
                )
            if not seconds:
                self.holders.free(ack_id)
        return self._broker.set_ack_deadlines(subscription, deadlines_s)


def exactly_once(subscription: Subscription) -> bool:
    """Whether the subscription confirms acks."""
    return decode(wire.Subscription, subscription.config.definition).enable_exactly_once_delivery

"""The durable consumer at JetStream: made if it is missing, and how far it has come."""

import msgspec
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from penstock.sources.errors import BrokerRefused
from penstock.sources.nats_gaps import Standing
from penstock.sources.nats_link import NatsLink
from penstock.sources.uri import NatsUri

# Delivered and not settled: what is in the router's hands, and what waits here behind it.
MAX_UNSETTLED = 10_000


class ConsumerState(msgspec.Struct, frozen=True):
    """What a source starts from."""

    # For how long the consumer leases a message now.
    lease_s: float
    standing: Standing


async def find_consumer(link: NatsLink, uri: NatsUri, lease_s: float) -> ConsumerState:
    """The consumer, made if it is missing. One with unsettled messages keeps the leases they were delivered with."""
    try:
        info = await link.streams.consumer_info(uri.stream, uri.consumer)
    except NotFoundError:
        info = await _put(link, uri, ConsumerConfig(durable_name=uri.consumer), lease_s)
    except (NatsError, TimeoutError) as error:
        raise link.unavailable(error) from error
    if info.config.ack_policy != AckPolicy.EXPLICIT or info.config.deliver_subject:
        raise BrokerRefused(
            f"the consumer of {uri.shown} is not a pull consumer with explicit acknowledgement; name another one"
        )
    if not info.num_ack_pending and info.config.ack_wait != lease_s:
        info = await _put(link, uri, info.config, lease_s)
    return ConsumerState(info.config.ack_wait or lease_s, _standing(info))


async def adopt_lease(link: NatsLink, uri: NatsUri, lease_s: float) -> None:
    """Give an existing consumer other leases."""
    try:
        info = await link.streams.consumer_info(uri.stream, uri.consumer)
    except (NatsError, TimeoutError) as error:
        raise link.unavailable(error) from error
    await _put(link, uri, info.config, lease_s)


async def _put(link: NatsLink, uri: NatsUri, config: ConsumerConfig, lease_s: float) -> ConsumerInfo:
    wanted = config.evolve(
        ack_policy=AckPolicy.EXPLICIT,
        deliver_policy=config.deliver_policy or DeliverPolicy.ALL,
        ack_wait=lease_s,
        max_ack_pending=MAX_UNSETTLED,
    )
    try:
        return await link.streams.add_consumer(uri.stream, wanted)
    except APIError as error:
        raise BrokerRefused(f"NATS refused the consumer of {uri.shown}: {error.description}") from error
    except (NatsError, TimeoutError) as error:
        raise link.unavailable(error) from error


def _standing(info: ConsumerInfo) -> Standing:
    delivered, settled = info.delivered, info.ack_floor
    return Standing(
        settled_seq=settled.stream_seq if settled else 0,
        delivered_seq=delivered.stream_seq if delivered else 0,
        delivery_seq=delivered.consumer_seq if delivered else 0,
        unsettled=info.num_ack_pending or 0,
    )

"""The durable consumer at JetStream: created if it is missing, with its lease and its progress."""

import msgspec
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from penstock.queues.errors import BrokerRefused
from penstock.queues.nats.connection import NatsConnection
from penstock.queues.nats.gaps import ConsumerProgress
from penstock.queues.uri import NatsUri

# Messages delivered and not settled: those that the router has, and those waiting behind them.
MAX_UNSETTLED = 10_000


class ConsumerState(msgspec.Struct, frozen=True):
    """The state that a source starts from."""

    # The consumer's current lease time.
    lease_s: float
    progress: ConsumerProgress


async def find_consumer(connection: NatsConnection, uri: NatsUri, lease_s: float) -> ConsumerState:
    """Return the consumer, created if missing. With unsettled messages it keeps their lease time."""
    try:
        info = await connection.streams.consumer_info(uri.stream, uri.consumer)
    except NotFoundError:
        info = await _put(connection, uri, ConsumerConfig(durable_name=uri.consumer), lease_s)
    except (NatsError, TimeoutError) as error:
        raise connection.unavailable(error) from error
    if info.config.ack_policy != AckPolicy.EXPLICIT or info.config.deliver_subject:
        raise BrokerRefused(
            f"the consumer of {uri.shown} is not a pull consumer with explicit acknowledgement; name another one"
        )
    if not info.num_ack_pending and info.config.ack_wait != lease_s:
        info = await _put(connection, uri, info.config, lease_s)
    return ConsumerState(info.config.ack_wait or lease_s, _progress(info))


async def change_lease(connection: NatsConnection, uri: NatsUri, lease_s: float) -> None:
    """Change the lease time of an existing consumer."""
    try:
        info = await connection.streams.consumer_info(uri.stream, uri.consumer)
    except (NatsError, TimeoutError) as error:
        raise connection.unavailable(error) from error
    await _put(connection, uri, info.config, lease_s)


async def _put(connection: NatsConnection, uri: NatsUri, config: ConsumerConfig, lease_s: float) -> ConsumerInfo:
    wanted = config.evolve(
        ack_policy=AckPolicy.EXPLICIT,
        deliver_policy=config.deliver_policy or DeliverPolicy.ALL,
        ack_wait=lease_s,
        max_ack_pending=MAX_UNSETTLED,
    )
    try:
        return await connection.streams.add_consumer(uri.stream, wanted)
    except APIError as error:
        raise BrokerRefused(f"NATS refused the consumer of {uri.shown}: {error.description}") from error
    except (NatsError, TimeoutError) as error:
        raise connection.unavailable(error) from error


def _progress(info: ConsumerInfo) -> ConsumerProgress:
    delivered, settled = info.delivered, info.ack_floor
    return ConsumerProgress(
        settled_seq=settled.stream_seq if settled else 0,
        delivered_seq=delivered.stream_seq if delivered else 0,
        delivery_seq=delivered.consumer_seq if delivered else 0,
        unsettled=info.num_ack_pending or 0,
    )

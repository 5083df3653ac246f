"""StreamingPull: messages as they arrive, within the client's flow control; acks on the stream or by other calls."""

import asyncio
from typing import Protocol

from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, BrokerSubscription
from penstock.domain.limits import MAX_ACK_DEADLINE_S, MIB, MIN_ACK_DEADLINE_S, SECOND_MS
from penstock.edge.clock import Clock
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, ServerStopping
from penstock.pubsub.names import subscription_name
from penstock.pubsub.subscribe.delivery import Acks, deliver, exactly_once
from penstock.pubsub.subscribe.outstanding import FlowLimits, Outstanding
from penstock.pubsub.subscribe.subscriptions import pulled_subscription

# The size of one response: enough to be worth a write, small compared with a client's limits.
_RESPONSE_MESSAGES = 1000
_RESPONSE_BYTES = MIB

_DAY_S = 86_400.0
# Clients that support keep-alives close the stream when they hear nothing for longer than this.
_KEEP_ALIVE_S = 15.0


class StreamCall(Protocol):
    """The two directions of a stream."""

    async def read(self) -> object:
        """Return the next request, or something else at the end."""
        ...

    async def write(self, response: types.StreamingPullResponse) -> None:
        """Send a response; return when the transport can take more."""
        ...


class PullStream:
    """One open StreamingPull."""

    def __init__(
        self, broker: AsyncBroker, acks: Acks, clock: Clock, first: types.StreamingPullRequest, call: StreamCall
    ) -> None:
        self.subscription_name = subscription_name(first.subscription)
        self._broker = broker
        self._acks = acks
        self._call = call
        self._lease_ms = _checked_deadline_s(first.stream_ack_deadline_seconds) * SECOND_MS
        self._wait_s = _KEEP_ALIVE_S if first.protocol_version else _DAY_S
        limits = FlowLimits.asked_for(first.max_outstanding_messages, first.max_outstanding_bytes)
        self._outstanding = Outstanding(limits, acks.streams, clock)
        self._writing = asyncio.Lock()
        self._stopping = False
        self._first = first

    async def run(self) -> None:
        """Deliver until the client ends the stream, the subscription is removed, or the server stops."""
        self._subscription()
        reading = asyncio.create_task(self._read_requests())
        delivering = asyncio.create_task(self._deliver())
        try:
            done, _ = await asyncio.wait({reading, delivering}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (reading, delivering):
                task.cancel()
            await asyncio.gather(reading, delivering, return_exceptions=True)
            self._outstanding.close()

    def stop(self) -> None:
        """End the stream; the client may open it again. The caller must also answer waiting pulls."""
        self._stopping = True
        self.recheck()

    def recheck(self) -> None:
        """Check again whether the subscription may be streamed. The caller must also answer waiting pulls."""
        self._outstanding.wake()

    async def _read_requests(self) -> None:
        request: object = self._first
        while isinstance(request, wire.StreamingPullRequest):
            await self._handle(request)
            request = await self._call.read()
            if isinstance(request, wire.StreamingPullRequest) and request.subscription:
                raise InvalidRequest("only the first request of a stream names the subscription")

    async def _handle(self, request: types.StreamingPullRequest) -> None:
        if request.stream_ack_deadline_seconds:
            self._lease_ms = _checked_deadline_s(request.stream_ack_deadline_seconds) * SECOND_MS
        if len(request.modify_deadline_seconds) != len(request.modify_deadline_ack_ids):
            raise InvalidRequest("modify_deadline_seconds and modify_deadline_ack_ids must have the same length")
        if not request.ack_ids and not request.modify_deadline_ack_ids:
            return
        subscription = self._subscription()
        response = wire.StreamingPullResponse()
        if request.modify_deadline_ack_ids:
            deadlines = zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True)
            stale = self._acks.set_deadlines(subscription, list(deadlines))
            _confirm(response.modify_ack_deadline_confirmation, request.modify_deadline_ack_ids, stale)
        if request.ack_ids:
            stale = await self._acks.settle(subscription, request.ack_ids)
            _confirm(response.acknowledge_confirmation, request.ack_ids, stale)
        if exactly_once(subscription):
            await self._write(response)

    async def _deliver(self) -> None:
        outstanding = self._outstanding
        while True:
            await outstanding.wait_for_capacity()
            if self._stopping:
                raise ServerStopping("the server is stopping; open the stream again")
            subscription = self._subscription()
            if not outstanding.has_capacity:
                continue
            entries = await self._broker.lease(
                subscription,
                min(outstanding.free_messages, _RESPONSE_MESSAGES),
                max_bytes=min(outstanding.free_bytes, _RESPONSE_BYTES),
                lease_ms=self._lease_ms,
                wait_s=self._wait_s,
            )
            response = self._response(subscription)
            ack_ids = deliver(subscription, entries, response.received_messages)
            for ack_id, entry in zip(ack_ids, entries, strict=True):
                outstanding.add(ack_id, entry)
            if entries or not self._stopping:
                await self._write(response)

    def _response(self, subscription: BrokerSubscription) -> types.StreamingPullResponse:
        properties = wire.StreamingPullResponse.SubscriptionProperties(
            exactly_once_delivery_enabled=exactly_once(subscription),
            message_ordering_enabled=subscription.config.options.message_ordering,
        )
        return wire.StreamingPullResponse(subscription_properties=properties)

    async def _write(self, response: types.StreamingPullResponse) -> None:
        async with self._writing:
            await self._call.write(response)

    def _subscription(self) -> BrokerSubscription:
        return pulled_subscription(self._broker, self.subscription_name)


def _checked_deadline_s(seconds: int) -> int:
    if not MIN_ACK_DEADLINE_S <= seconds <= MAX_ACK_DEADLINE_S:
        raise InvalidRequest(
            f"stream_ack_deadline_seconds must be between {MIN_ACK_DEADLINE_S} and {MAX_ACK_DEADLINE_S}, got {seconds}"
        )
    return seconds


def _confirm(
    confirmation: types.StreamingPullResponse.AcknowledgeConfirmation
    | types.StreamingPullResponse.ModifyAckDeadlineConfirmation,
    ack_ids: "list[str] | object",
    stale: list[str],
) -> None:
    gone = set(stale)
    confirmation.ack_ids.extend(ack_id for ack_id in ack_ids if ack_id not in gone)  # type: ignore[union-attr]
    confirmation.invalid_ack_ids.extend(stale)

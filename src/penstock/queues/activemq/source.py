"""Consumes an ActiveMQ queue over STOMP; this client keeps the order of groups.

A lease lasts as long as the connection, and as this process keeps it alive: one that slept gives its messages up, as
the broker may have done. A nacked message with a group stays here, unacknowledged, so that nothing of its group
overtakes it; one without a group returns to the broker for its delay. When the connection is lost, the broker
redelivers everything in order.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.pointer import group_in_body
from penstock.edge.pause import pause
from penstock.queues.activemq.connection import LEASE_S, StompAddress, StompConnection
from penstock.queues.activemq.stomp import Frame
from penstock.queues.batcher import Batcher
from penstock.queues.errors import BrokerUnavailable, SourceClosed
from penstock.queues.group_order import Arrival, ArrivalBuffer, State
from penstock.queues.port import Confirmation, Received, confirmed
from penstock.queues.uri import StompUri

GROUP = "PenstockGroup"
DEDUP_ID = "PenstockDedupId"
# The message-id of the first send of a message.
ORIGINAL_ID = "PenstockOriginalId"
DELAY_MS = "AMQ_SCHEDULED_DELAY"
PREFETCH_SIZE = "activemq.prefetchSize"
# Messages delivered and not acknowledged: those that the router has, and those waiting behind them.
PREFETCH = 1000
_SUBSCRIPTION = "penstock"
_MAX_READABLE_CHARS = 128
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 5.0
# Limit on remembered messages of lost connections that were not redelivered.
_MAX_STALE = 10_000


class _Delivery(msgspec.Struct, frozen=True, eq=False):
    """A delivery and its connection, the only one that may acknowledge it."""

    connection: StompConnection
    arrival: Arrival


class ActiveMqSource:
    """A source of a queue."""

    ordered = True
    exclusive = True

    def __init__(self, name: str, uri: StompUri) -> None:
        self.name = name
        self.address = uri.shown
        self.visibility_s: float | None = LEASE_S
        self._uri = uri
        self._buffer = ArrivalBuffer()
        self._connection: StompConnection | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._acking: Batcher[_Delivery] = Batcher(self._ack, max_batch=500, max_running=4)
        self._resending: Batcher[tuple[_Delivery, int]] = Batcher(self._resend, max_batch=500, max_running=4)
        # Messages that were unsettled when the connection was lost, and whether to remove them at redelivery.
        self._stale: dict[str, bool] = {}
        self._is_open = False

    async def open(self) -> None:
        """Connect and subscribe; ActiveMQ creates the queue if it is missing."""
        await self._connect()
        self._is_open = True

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends."""
        messages = await self._buffer.receive()
        if self._connection is not None:
            for message in messages:
                message.leased_s = self._connection.awake_s
        return messages

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; one of a lost connection at its redelivery."""
        arrival = self._buffer.order.find(message.broker_id)
        if arrival is not None:
            return self._acking.add(self._of_this_connection(arrival))
        if self._buffer.failure is not None:
            return confirmed(self._buffer.failure)
        if message.broker_id in self._stale:
            self._stale[message.broker_id] = True
        return confirmed()

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue, to be redelivered after the delay."""
        arrival = self._buffer.current(message)
        if arrival is None:
            return confirmed()
        if arrival.group is None and delay_s > 0:
            # Removed first: the message sent again may arrive before the broker confirms the ack of this one.
            self._buffer.settle(arrival.broker_id)
            return self._resending.add((self._of_this_connection(arrival), delay_s))
        self._buffer.give_back(arrival.broker_id, delay_s)
        return confirmed()

    async def extend(self, messages: Sequence[Received]) -> None:
        """Confirm that the connection, which heart-beats keep alive, still has the messages."""
        if self._connection is None or self._connection.is_lost:
            raise self._unavailable()

    async def close(self) -> None:
        """Finish acks and nacks, and disconnect; the broker redelivers the other messages to other consumers."""
        self._is_open = False
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        await self._acking.drain()
        await self._resending.drain()
        self._buffer.fail(SourceClosed(self.name))
        self._buffer.clear()
        if self._connection is not None:
            await self._connection.close()

    def _delivered(self, frame: Frame) -> None:
        arrival = Arrival(broker_id(frame), frame.body, group(frame), frame.headers["ack"])
        if self._stale.pop(arrival.broker_id, False) or arrival.broker_id in self._buffer.order:
            # It was acked meanwhile, or it is a copy: a crash came between sending a message again and its ack.
            self._acking.add(self._of_this_connection(arrival))
            return
        self._buffer.arrive(arrival)
        if delay_ms := frame.headers.get(DELAY_MS):
            # A broker without a scheduler ignores the delay.
            self._buffer.give_back(arrival.broker_id, int(delay_ms) / 1000)

    async def _ack(self, batch: "Sequence[_Delivery]") -> "list[Exception | None]":
        results = [self._unavailable() if delivery.connection.is_lost else None for delivery in batch]
        live = [delivery for delivery, failure in zip(batch, results, strict=True) if failure is None]
        if live:
            await self._ack_live(live)
        return [*results]

    async def _ack_live(self, deliveries: "Sequence[_Delivery]") -> None:
        *others, last = deliveries
        for delivery in others:
            delivery.connection.send("ACK", {"id": delivery.arrival.token})
        # The broker processes frames in order, so the last receipt confirms all.
        await last.connection.confirmed(last.connection.request("ACK", {"id": last.arrival.token}))
        for delivery in deliveries:
            self._forget(delivery.arrival)

    async def _resend(self, batch: "Sequence[tuple[_Delivery, int]]") -> "list[Exception | None]":
        # Not in one transaction: the broker schedules after the commit, and a crash in between would lose the message.
        receipts = [self._send_again(delivery, delay_s) for delivery, delay_s in batch]
        for (delivery, _), receipt in zip(batch, receipts, strict=True):
            await delivery.connection.confirmed(receipt)
        return await self._ack([delivery for delivery, _ in batch])

    def _send_again(self, delivery: "_Delivery", delay_s: int) -> "asyncio.Future[None]":
        arrival = delivery.arrival
        again = {ORIGINAL_ID: arrival.broker_id, DELAY_MS: str(delay_s * 1000)}
        headers = message_headers(self._uri, arrival.group) | again
        return delivery.connection.request("SEND", headers, arrival.body)

    def _forget(self, arrival: Arrival) -> None:
        kept = self._buffer.order.find(arrival.broker_id)
        if kept is not None and kept.token == arrival.token:
            self._buffer.settle(arrival.broker_id)

    def _of_this_connection(self, arrival: Arrival) -> "_Delivery":
        assert self._connection is not None
        return _Delivery(self._connection, arrival)

    def _unavailable(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"ActiveMQ is unavailable ({self._uri.shown}); the message will be redelivered")

    async def _connect(self) -> None:
        connection = await StompConnection.connect(stomp_address(self._uri), self._delivered, self._lost)
        headers = {
            "destination": destination(self._uri),
            "id": _SUBSCRIPTION,
            "ack": "client-individual",
            PREFETCH_SIZE: str(PREFETCH),
        }
        self._connection = connection
        try:
            await connection.confirmed(connection.request("SUBSCRIBE", headers))
        except BaseException:
            connection.abort()
            raise
        connection.raise_if_lost()
        self._buffer.recover()

    def _lost(self, reason: PenstockError) -> None:
        if not self._is_open:
            return
        for arrival in self._buffer.order.messages(State.OUT):
            self._stale.setdefault(arrival.broker_id, False)
        while len(self._stale) > _MAX_STALE:
            self._stale.pop(next(iter(self._stale)))
        self._buffer.fail(reason)
        self._buffer.clear()
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        wait_s = _FIRST_RETRY_S
        while self._connection is None or self._connection.is_lost:
            await pause(wait_s)
            wait_s = min(2 * wait_s, _LAST_RETRY_S)
            try:
                await self._connect()
            except PenstockError as error:
                self._buffer.fail(error)


def stomp_address(uri: StompUri) -> StompAddress:
    """Return the address of a queue's broker."""
    login = uri.login
    return StompAddress(uri.host, uri.port, login=login.user if login else None, passcode=_passcode(uri))


def destination(uri: StompUri) -> str:
    """Return the destination header of a queue."""
    return f"/queue/{uri.queue}"


def message_headers(uri: StompUri, group: str | None, dedup_id: str | None = None) -> dict[str, str]:
    """Return the headers of a message.

    The group is sent twice: as JMSXGroupID for the broker and JMS consumers, and in a header of our own, as ActiveMQ
    omits JMSXGroupID from the frames that it delivers.
    """
    headers = {"destination": destination(uri), "persistent": "true"}
    if group is not None:
        headers |= {GROUP: group, "JMSXGroupID": group}
    if dedup_id is not None:
        is_readable = len(dedup_id) <= _MAX_READABLE_CHARS
        headers[DEDUP_ID] = dedup_id if is_readable else f"sha256:{sha256(dedup_id.encode()).hexdigest()}"
    return headers


def broker_id(frame: Frame) -> str:
    """Return the id of a message, which is the same in every delivery."""
    return frame.headers.get(ORIGINAL_ID) or frame.headers["message-id"]


def group(frame: Frame) -> str | None:
    """Return the group of a message: the one that the broker names, else the one in its body (ROUTER-BROKER-4)."""
    return frame.headers.get(GROUP) or group_in_body(frame.body)


def _passcode(uri: StompUri) -> str | None:
    return uri.login.password if uri.login else None

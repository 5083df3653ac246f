"""A queue of ActiveMQ over STOMP, with the order of groups kept on this side.

A message is ours as long as the connection lives. One that is given back waits here, unacknowledged, so that nothing of
its group passes it; only one without a group goes back to the broker for its delay. When the connection is lost, the
broker delivers everything again, in order.

What Penstock's messages carry in the headers of STOMP frames.

ActiveMQ keeps JMSXGroupID of a frame that is sent, but puts none into the frames that it delivers. So the group goes
twice: as JMSXGroupID for the broker and for JMS consumers, and under a name of our own for us.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from penstock.domain.errors import PenstockError
from penstock.edge.pause import pause
from penstock.queues.activemq.connection import StompAddress, StompConnection
from penstock.queues.activemq.stomp import Frame
from penstock.queues.errors import BrokerUnavailable, SourceClosed
from penstock.queues.gather import Gatherer
from penstock.queues.group_order import Arrival, Shelf, State
from penstock.queues.port import Confirmation, Received, confirmed
from penstock.queues.uri import StompUri

GROUP = "PenstockGroup"
DEDUP_ID = "PenstockDedupId"
# The message-id that a message had when it was sent for the first time.
ORIGINAL_ID = "PenstockOriginalId"
DELAY_MS = "AMQ_SCHEDULED_DELAY"
PREFETCH_SIZE = "activemq.prefetchSize"
_READABLE_ID = 128


def stomp_address(uri: StompUri) -> StompAddress:
    """Where the broker of a queue listens."""
    login = uri.login
    return StompAddress(uri.host, uri.port, login=login.user if login else None, passcode=_passcode(uri))


def destination(uri: StompUri) -> str:
    """The queue, as frames name it."""
    return f"/queue/{uri.queue}"


def message_headers(uri: StompUri, group: str | None, dedup_id: str | None = None) -> dict[str, str]:
    """The headers of every message that is sent."""
    headers = {"destination": destination(uri), "persistent": "true"}
    if group is not None:
        headers |= {GROUP: group, "JMSXGroupID": group}
    if dedup_id is not None:
        is_readable = len(dedup_id) <= _READABLE_ID
        headers[DEDUP_ID] = dedup_id if is_readable else f"sha256:{sha256(dedup_id.encode()).hexdigest()}"
    return headers


def broker_id(frame: Frame) -> str:
    """What identifies a message each time it comes, re-sent or not."""
    return frame.headers.get(ORIGINAL_ID) or frame.headers["message-id"]


def group(frame: Frame) -> str | None:
    """The group of a message."""
    return frame.headers.get(GROUP)


def _passcode(uri: StompUri) -> str | None:
    return uri.login.password if uri.login else None


# Delivered and not acknowledged: what is in the router's hands, and what waits here behind it.
PREFETCH = 1000
_SUBSCRIPTION = "penstock"
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 5.0
# Of hand-outs of lost connections that never came again, so many are remembered.
_MOST_STALE = 10_000


class _Delivery(msgspec.Struct, frozen=True, eq=False):
    """An arrival and the connection that it came by: no other may acknowledge it."""

    connection: StompConnection
    arrival: Arrival


class ActiveMqSource:
    """The consumer's end of a queue."""

    ordered = True
    exclusive = True

    def __init__(self, name: str, uri: StompUri) -> None:
        self.name = name
        self.address = uri.shown
        self.visibility_s: float | None = None
        self._uri = uri
        self._shelf = Shelf()
        self._connection: StompConnection | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._acking: Gatherer[_Delivery] = Gatherer(self._ack, most=500, at_once=4)
        self._resending: Gatherer[tuple[_Delivery, int]] = Gatherer(self._resend, most=500, at_once=4)
        # What was out when its connection was lost, and whether to remove it when it comes again.
        self._stale: dict[str, bool] = {}
        self._is_open = False

    async def open(self) -> None:
        """Connect and subscribe; ActiveMQ makes the queue if it is missing."""
        await self._connect()
        self._is_open = True

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        return await self._shelf.receive()

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; one of a lost connection when it comes again."""
        arrival = self._shelf.order.find(message.broker_id)
        if arrival is not None:
            return self._acking.add(self._of_this_connection(arrival))
        if self._shelf.failure is not None:
            return confirmed(self._shelf.failure)
        if message.broker_id in self._stale:
            self._stale[message.broker_id] = True
        return confirmed()

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Give a message back, to be handed out again after the delay."""
        arrival = self._shelf.current(message)
        if arrival is None:
            return confirmed()
        if arrival.group is None and delay_s > 0:
            # Forgotten first: what is re-sent may come before the broker has confirmed that this one is gone.
            self._shelf.settle(arrival.broker_id)
            return self._resending.add((self._of_this_connection(arrival), delay_s))
        self._shelf.give_back(arrival.broker_id, delay_s)
        return confirmed()

    async def extend(self, messages: Sequence[Received]) -> None:
        """Nothing to do: messages are ours while the connection lives, and its heart-beats keep it alive."""

    async def close(self) -> None:
        """Finish what was acked and nacked, and hang up; the broker delivers the rest to others."""
        self._is_open = False
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        await self._acking.drain()
        await self._resending.drain()
        self._shelf.fail(SourceClosed(self.name))
        self._shelf.clear()
        if self._connection is not None:
            await self._connection.close()

    # Deliveries

    def _delivered(self, frame: Frame) -> None:
        arrival = Arrival(broker_id(frame), frame.body, group(frame), frame.headers["ack"])
        if self._stale.pop(arrival.broker_id, False) or arrival.broker_id in self._shelf.order:
            # It was acked meanwhile, or it is the twin of one that is here: a crash parted a re-send from its ack.
            self._acking.add(self._of_this_connection(arrival))
            return
        self._shelf.arrive(arrival)
        if delay_ms := frame.headers.get(DELAY_MS):
            # A broker without a scheduler delivers at once what it should have kept.
            self._shelf.give_back(arrival.broker_id, int(delay_ms) / 1000)

    # Settling

    async def _ack(self, batch: "Sequence[_Delivery]") -> "list[Exception | None]":
        results = [self._away() if delivery.connection.is_lost else None for delivery in batch]
        live = [delivery for delivery, failure in zip(batch, results, strict=True) if failure is None]
        if live:
            await self._ack_live(live)
        return [*results]

    async def _ack_live(self, deliveries: "Sequence[_Delivery]") -> None:
        *others, last = deliveries
        for delivery in others:
            delivery.connection.send("ACK", {"id": delivery.arrival.token})
        # The broker works frames off in order: the last receipt stands for all.
        await last.connection.confirmed(last.connection.request("ACK", {"id": last.arrival.token}))
        for delivery in deliveries:
            self._forget(delivery.arrival)

    async def _resend(self, batch: "Sequence[tuple[_Delivery, int]]") -> "list[Exception | None]":
        # Not in one transaction: the broker schedules after the commit, and a crash between would lose the message.
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
        kept = self._shelf.order.find(arrival.broker_id)
        if kept is not None and kept.token == arrival.token:
            self._shelf.settle(arrival.broker_id)

    def _of_this_connection(self, arrival: Arrival) -> "_Delivery":
        assert self._connection is not None
        return _Delivery(self._connection, arrival)

    def _away(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"ActiveMQ is away ({self._uri.shown}); the message will come again")

    # The connection

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
        self._shelf.recover()

    def _lost(self, reason: PenstockError) -> None:
        if not self._is_open:
            return
        for arrival in self._shelf.order.messages(State.OUT):
            self._stale.setdefault(arrival.broker_id, False)
        while len(self._stale) > _MOST_STALE:
            self._stale.pop(next(iter(self._stale)))
        self._shelf.fail(reason)
        self._shelf.clear()
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
                self._shelf.fail(error)

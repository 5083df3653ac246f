"""A durable pull consumer of a NATS JetStream stream, with the order of groups kept on this side.

A message that is given back with a group waits here, kept ours by JetStream's in-progress mark, so that nothing of its
group passes it; one without a group goes back to JetStream with its delay. One router at a time may consume a durable
consumer: docs/reference/sources-brokers.md says why, and what a standby does.

The durable consumer at JetStream: made if it is missing, and how far it has come.
"""

import asyncio
import json
from collections.abc import Sequence
from urllib.parse import unquote

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from penstock.domain.errors import PenstockError
from penstock.edge.pause import pause
from penstock.queues.errors import BrokerRefused, SourceClosed
from penstock.queues.gather import Gatherer
from penstock.queues.group_order import Arrival, Shelf, State
from penstock.queues.nats.gaps import DeliveryGaps, GapStanding, Numbers
from penstock.queues.nats.link import ANSWER_S, NatsLink
from penstock.queues.port import Confirmation, Received, confirmed
from penstock.queues.uri import NatsUri

# Delivered and not settled: what is in the router's hands, and what waits here behind it.
MAX_UNSETTLED = 10_000


class ConsumerState(msgspec.Struct, frozen=True):
    """What a source starts from."""

    # For how long the consumer leases a message now.
    lease_s: float
    standing: GapStanding


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


def _standing(info: ConsumerInfo) -> GapStanding:
    delivered, settled = info.delivered, info.ack_floor
    return GapStanding(
        settled_seq=settled.stream_seq if settled else 0,
        delivered_seq=delivered.stream_seq if delivered else 0,
        delivery_seq=delivered.consumer_seq if delivered else 0,
        unsettled=info.num_ack_pending or 0,
    )


GROUP_HEADER = "Penstock-Group"
PULL_MOST = 256
PULL_S = 20.0
# While a message may be missing, pulls are short: how one ends tells whether JetStream has more to give.
SEARCH_PULL_S = 0.5
# Groups with something to hand out, beyond which no more is pulled ahead.
READY_ENOUGH = 128
MAX_HELD_BYTES = 64 * 1024 * 1024
_AFTER_ERROR_S = 0.25
_ACK = b"+ACK"
_IN_PROGRESS = b"+WPI"
_NO_MORE_FOR_NOW = ("404", "408")


class _Settlement(msgspec.Struct, frozen=True):
    """What JetStream is told of a message."""

    arrival: Arrival
    payload: bytes


class NatsSource:
    """The consumer's end of a JetStream consumer."""

    ordered = True
    exclusive = True

    def __init__(self, name: str, uri: NatsUri, *, visibility_s: float) -> None:
        self.name = name
        self.address = uri.shown
        self.visibility_s: float | None = visibility_s
        self._uri = uri
        self._wanted_lease_s = visibility_s
        self._lease_s = visibility_s
        self._shelf = Shelf()
        self._link = NatsLink(uri, on_delivery=self._delivered, on_lost=self._lost, on_back=self._back)
        self._settling: Gatherer[_Settlement] = Gatherer(self._settle, most=500, at_once=4)
        self._gaps: DeliveryGaps[Arrival] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        self._pull_left = 0
        self._pull_ended: asyncio.Future[Msg] | None = None
        self._held_bytes = 0

    async def open(self) -> None:
        """Connect, and make the consumer if it is missing; the stream must be there."""
        await self._link.open()
        await self._link.stream_subjects()
        state = await find_consumer(self._link, self._uri, self._wanted_lease_s)
        self._start(state)

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        try:
            return await self._shelf.receive()
        finally:
            self._room.set()

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good, also one whose lease has ended if it is here again."""
        arrival = self._shelf.order.find(message.broker_id)
        if arrival is None:
            return confirmed()
        return self._settling.add(_Settlement(arrival, _ACK))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Give a message back, to be handed out again after the delay."""
        arrival = self._shelf.current(message)
        if arrival is None:
            return confirmed()
        if arrival.group is not None:
            self._shelf.give_back(arrival.broker_id, delay_s)
            return confirmed()
        # Forgotten first: JetStream may deliver it again before it confirms.
        self._forget(arrival)
        return self._settling.add(_Settlement(arrival, _nak(delay_s)))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Keep the messages ours for another `visibility_s`."""
        current = [arrival for message in messages if (arrival := self._shelf.current(message)) is not None]
        if current:
            await self._keep_ours(current)
            await self._link.flush()

    async def close(self) -> None:
        """Finish what was acked and nacked, give everything else back, and hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settling.drain()
        try:
            if self._link.is_connected:
                await self._link.stop_deliveries()
                await self._return_all()
        except PenstockError:
            pass  # what could not be given back comes again when its lease ends
        finally:
            self._shelf.fail(SourceClosed(self.name))
            self._shelf.clear()
            await self._link.close()

    def _start(self, state: ConsumerState) -> None:
        self._lease_s = state.lease_s
        self._gaps = DeliveryGaps(state.standing, state.lease_s, asyncio.get_running_loop().time())
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pull()), loop.create_task(self._keep_waiting_ones_ours())]

    # Deliveries

    def _delivered(self, message: Msg) -> None:
        assert self._gaps is not None
        metadata = message.metadata
        group = (message.headers or {}).get(GROUP_HEADER)
        arrival = Arrival(
            f"{self._uri.stream}:{metadata.sequence.stream}",
            message.data,
            unquote(group) if group else None,
            message.reply,
        )
        numbers = Numbers(metadata.sequence.stream, metadata.sequence.consumer, metadata.num_delivered == 1)
        now_s = asyncio.get_running_loop().time()
        self._shelve(self._gaps.arrive(numbers, arrival, grouped=group is not None, now_s=now_s))
        self._pull_left -= 1
        if self._pull_left <= 0 and self._pull_ended is not None:
            self._pull_ended.cancel()

    def _shelve(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            if arrival.broker_id not in self._shelf.order:
                self._held_bytes += len(arrival.body)
            self._shelf.arrive(arrival)

    def _forget(self, arrival: Arrival) -> None:
        if arrival.broker_id in self._shelf.order:
            self._held_bytes -= len(arrival.body)
            self._shelf.settle(arrival.broker_id)
            self._room.set()

    async def _pull(self) -> None:
        while True:
            batch = self._batch()
            if batch <= 0 or not self._link.is_connected:
                self._room.clear()
                await self._room.wait()
                continue
            await self._pull_once(batch)

    def _batch(self) -> int:
        """How many messages to pull now."""
        assert self._gaps is not None
        order = self._shelf.order
        if self._gaps.is_waiting:
            return PULL_MOST
        if order.ready_lanes >= READY_ENOUGH or self._held_bytes >= MAX_HELD_BYTES:
            return 0
        return min(PULL_MOST, MAX_UNSETTLED - len(order))

    async def _pull_once(self, batch: int) -> None:
        assert self._gaps is not None
        loop = asyncio.get_running_loop()
        was_waiting = self._gaps.is_waiting
        expires_s = SEARCH_PULL_S if was_waiting else PULL_S
        self._gaps.pull_starts(loop.time())
        self._pull_left = batch
        request = json.dumps({"batch": batch, "expires": round(expires_s * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._uri.stream}.{self._uri.consumer}"
        try:
            ended = self._pull_ended = await self._link.ask(subject, request)
            if self._pull_left <= 0:  # everything came while the request was being written
                ended.cancel()
            await asyncio.wait([ended], timeout=expires_s + ANSWER_S)
            if not ended.cancelled():
                self._pull_answered(ended.result())
        except (PenstockError, asyncio.InvalidStateError):
            self._gaps.pull_broke(loop.time())
            await pause(_AFTER_ERROR_S)
        if was_waiting and not self._gaps.is_waiting and self._lease_s != self._wanted_lease_s:
            await self._adopt_lease()

    def _pull_answered(self, answer: Msg) -> None:
        assert self._gaps is not None
        headers = answer.headers or {}
        if headers.get("Status") in _NO_MORE_FOR_NOW:
            self._shelf.recover()
            self._shelve(self._gaps.pull_ran_dry())
            return
        told = f"{headers.get('Status')} {headers.get('Description', '')}".strip()
        refused = self._link.unavailable(f"a pull was answered with {told}")
        self._shelf.fail(refused)
        raise refused

    async def _adopt_lease(self) -> None:
        """Give the consumer the leases asked for, now that those of an earlier life have ended."""
        assert self._gaps is not None
        try:
            await adopt_lease(self._link, self._uri, self._wanted_lease_s)
        except PenstockError:
            return  # it is tried again when messages were missing again, or at the next start
        self._lease_s = self._wanted_lease_s
        self._gaps.use_lease(self._lease_s)

    # Settling

    async def _settle(self, batch: Sequence[_Settlement]) -> "list[Exception | None]":
        try:
            asked = [await self._link.ask(item.arrival.token, item.payload) for item in batch]
        except PenstockError as error:
            return [self._settled(item, error) for item in batch]
        await asyncio.wait(asked, timeout=ANSWER_S)
        return [self._settled(item, self._failure(answer)) for item, answer in zip(batch, asked, strict=True)]

    def _failure(self, answer: "asyncio.Future[Msg]") -> Exception | None:
        if not answer.done():
            answer.cancel()
            return self._link.unavailable("no confirmation came")
        if answer.exception() is not None:
            return answer.exception()  # type: ignore[return-value]
        status = (answer.result().headers or {}).get("Status")
        return self._link.unavailable(f"a settlement was answered with {status}") if status else None

    def _settled(self, item: _Settlement, failure: Exception | None) -> Exception | None:
        if item.payload is _ACK:
            if failure is None:
                self._forget(item.arrival)
            else:
                self._shelf.give_back(item.arrival.broker_id)
        return failure

    async def _keep_waiting_ones_ours(self) -> None:
        assert self._gaps is not None
        while True:
            await pause(self._lease_s / 3)
            try:
                await self._keep_ours([*self._shelf.order.messages(State.WAITING, State.HELD), *self._gaps.held])
            except PenstockError:
                continue  # JetStream delivers them again, to their places

    async def _keep_ours(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            await self._link.tell(arrival.token, _IN_PROGRESS)

    async def _return_all(self) -> None:
        held = self._gaps.held if self._gaps is not None else []
        for arrival in (*self._shelf.order.messages(*State), *held):
            await self._link.tell(arrival.token, _nak(0))
        await self._link.flush()

    # The connection

    def _lost(self, reason: PenstockError) -> None:
        self._shelf.fail(reason)

    def _back(self) -> None:
        self._shelf.recover()
        self._room.set()


def _nak(delay_s: int) -> bytes:
    return b"-NAK " + json.dumps({"delay": round(delay_s * 1e9)}).encode() if delay_s else b"-NAK"

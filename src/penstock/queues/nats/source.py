"""Consumes a NATS JetStream stream by a durable pull consumer; this client keeps the order of groups.

A nacked message with a group waits here, leased by JetStream's in-progress mark, so that nothing of its group overtakes
it; one without a group returns to JetStream with its delay. Only one router at a time may use a durable consumer:
docs/reference/sources-brokers.md gives the reason, and explains standby.
"""

import asyncio
import json
from collections.abc import Sequence
from urllib.parse import unquote

import msgspec
from nats.aio.msg import Msg

from penstock.domain.errors import PenstockError
from penstock.domain.pointer import group_in_body
from penstock.edge.pause import pause
from penstock.edge.pulse import LoopPulse
from penstock.queues.batcher import Batcher
from penstock.queues.errors import SourceClosed
from penstock.queues.group_order import Arrival, ArrivalBuffer, State
from penstock.queues.nats.connection import ANSWER_S, NatsConnection
from penstock.queues.nats.consumer import MAX_UNSETTLED, ConsumerState, change_lease, find_consumer
from penstock.queues.nats.gaps import DeliveryGaps, DeliveryNumbers
from penstock.queues.port import Confirmation, Received, confirmed
from penstock.queues.uri import NatsUri

GROUP_HEADER = "Penstock-Group"
MAX_PULL = 256
PULL_S = 20.0
# While a message may be missing, pulls are short: their end shows whether JetStream has more to redeliver.
SEARCH_PULL_S = 0.5
# Nothing is pulled while this many groups have messages to receive.
MAX_READY_LANES = 128
MAX_HELD_BYTES = 64 * 1024 * 1024
_AFTER_ERROR_S = 0.25
_ACK = b"+ACK"
_IN_PROGRESS = b"+WPI"
_NO_MORE_FOR_NOW = ("404", "408")


class _Settlement(msgspec.Struct, frozen=True):
    """An ack or nack of a delivery."""

    arrival: Arrival
    payload: bytes


class NatsSource:
    """A source of a JetStream consumer."""

    ordered = True
    exclusive = True

    def __init__(self, name: str, uri: NatsUri, *, visibility_s: float, template: NatsUri | None = None) -> None:
        self.name = name
        self.address = uri.shown
        self.visibility_s: float | None = visibility_s
        self._uri = uri
        self._template = template
        self._wanted_lease_s = visibility_s
        self._lease_s = visibility_s
        self._buffer = ArrivalBuffer()
        self._connection = NatsConnection(uri, on_delivery=self._delivered, on_lost=self._lost, on_back=self._back)
        self._settling: Batcher[_Settlement] = Batcher(self._settle, max_batch=500, max_running=4)
        self._gaps: DeliveryGaps[Arrival] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        self._pulse = LoopPulse()
        self._pulled_s = 0.0
        self._pull_left = 0
        self._pull_ended: asyncio.Future[Msg] | None = None
        self._held_bytes = 0

    async def open(self) -> None:
        """Connect, and create the consumer if it is missing; without a template the stream must exist."""
        await self._connection.open()
        await self._connection.stream_subjects(self._template)
        state = await find_consumer(self._connection, self._uri, self._wanted_lease_s)
        self._start(state)

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends."""
        try:
            return await self._buffer.receive()
        finally:
            self._room.set()

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good, even after its lease has ended if it was redelivered."""
        arrival = self._buffer.order.find(message.broker_id)
        if arrival is None:
            return confirmed()
        return self._settling.add(_Settlement(arrival, _ACK))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue, to be redelivered after the delay."""
        arrival = self._buffer.current(message)
        if arrival is None:
            return confirmed()
        if arrival.group is not None:
            self._buffer.give_back(arrival.broker_id, delay_s)
            return confirmed()
        # Removed first: JetStream may redeliver it before it confirms.
        self._forget(arrival)
        return self._settling.add(_Settlement(arrival, _nak(delay_s)))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Extend the leases of messages by `visibility_s`."""
        current = [arrival for message in messages if (arrival := self._buffer.current(message)) is not None]
        await self._extend_leases(current)

    async def close(self) -> None:
        """Finish acks and nacks, return the other messages to the queue, and disconnect."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settling.drain()
        try:
            if self._connection.is_connected:
                await self._connection.stop_deliveries()
                await self._return_all()
        except PenstockError:
            pass  # the others are redelivered when their leases end
        finally:
            self._buffer.fail(SourceClosed(self.name))
            self._buffer.clear()
            await self._connection.close()

    def _start(self, state: ConsumerState) -> None:
        self._lease_s = state.lease_s
        self._gaps = DeliveryGaps(state.progress, state.lease_s, asyncio.get_running_loop().time())
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pull()), loop.create_task(self._extend_waiting())]

    def _delivered(self, message: Msg) -> None:
        assert self._gaps is not None
        metadata = message.metadata
        named = (message.headers or {}).get(GROUP_HEADER)
        group = unquote(named) if named else group_in_body(message.data)
        arrival = Arrival(
            f"{self._uri.stream}:{metadata.sequence.stream}",
            message.data,
            group,
            message.reply,
            leased_s=self._pulse.leased_s(self._pulled_s, self._lease_s),
        )
        numbers = DeliveryNumbers(metadata.sequence.stream, metadata.sequence.consumer, metadata.num_delivered == 1)
        now_s = asyncio.get_running_loop().time()
        self._add(self._gaps.arrive(numbers, arrival, grouped=group is not None, now_s=now_s))
        self._pull_left -= 1
        if self._pull_left <= 0 and self._pull_ended is not None:
            self._pull_ended.cancel()

    def _add(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            if arrival.broker_id not in self._buffer.order:
                self._held_bytes += len(arrival.body)
            self._buffer.arrive(arrival)

    def _forget(self, arrival: Arrival) -> None:
        if arrival.broker_id in self._buffer.order:
            self._held_bytes -= len(arrival.body)
            self._buffer.settle(arrival.broker_id)
            self._room.set()

    async def _pull(self) -> None:
        while True:
            batch = self._batch()
            if batch <= 0 or not self._connection.is_connected:
                self._room.clear()
                await self._room.wait()
                continue
            await self._pull_once(batch)

    def _batch(self) -> int:
        """Return the number of messages to pull now."""
        assert self._gaps is not None
        order = self._buffer.order
        if self._gaps.is_waiting:
            return MAX_PULL
        if order.ready_lanes >= MAX_READY_LANES or self._held_bytes >= MAX_HELD_BYTES:
            return 0
        return min(MAX_PULL, MAX_UNSETTLED - len(order))

    async def _pull_once(self, batch: int) -> None:
        assert self._gaps is not None
        loop = asyncio.get_running_loop()
        was_waiting = self._gaps.is_waiting
        expires_s = SEARCH_PULL_S if was_waiting else PULL_S
        self._pulled_s = loop.time()
        self._gaps.pull_started(self._pulled_s)
        self._pull_left = batch
        request = json.dumps({"batch": batch, "expires": round(expires_s * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._uri.stream}.{self._uri.consumer}"
        try:
            ended = self._pull_ended = await self._connection.request(subject, request)
            if self._pull_left <= 0:  # all messages came while the request was being written
                ended.cancel()
            with self._pulse.waiting():
                await asyncio.wait([ended], timeout=expires_s + ANSWER_S)
            if not ended.cancelled():
                self._pull_answered(ended.result())
        except (PenstockError, asyncio.InvalidStateError):
            self._gaps.pull_failed(loop.time())
            await pause(_AFTER_ERROR_S)
        if was_waiting and not self._gaps.is_waiting and self._lease_s != self._wanted_lease_s:
            await self._change_lease()

    def _pull_answered(self, answer: Msg) -> None:
        assert self._gaps is not None
        headers = answer.headers or {}
        if headers.get("Status") in _NO_MORE_FOR_NOW:
            self._buffer.recover()
            self._add(self._gaps.pull_empty())
            return
        reply = f"{headers.get('Status')} {headers.get('Description', '')}".strip()
        refused = self._connection.unavailable(f"a pull was answered with {reply}")
        self._buffer.fail(refused)
        raise refused

    async def _change_lease(self) -> None:
        """Change the consumer to the configured lease time, now that the leases of its last run have ended."""
        assert self._gaps is not None
        try:
            await change_lease(self._connection, self._uri, self._wanted_lease_s)
        except PenstockError:
            return  # retried after the next gap, or at the next start
        self._lease_s = self._wanted_lease_s
        self._gaps.use_lease(self._lease_s)

    async def _settle(self, batch: Sequence[_Settlement]) -> "list[Exception | None]":
        try:
            answers = [await self._connection.request(item.arrival.token, item.payload) for item in batch]
        except PenstockError as error:
            return [self._settled(item, error) for item in batch]
        await asyncio.wait(answers, timeout=ANSWER_S)
        return [self._settled(item, self._failure(answer)) for item, answer in zip(batch, answers, strict=True)]

    def _failure(self, answer: "asyncio.Future[Msg]") -> Exception | None:
        if not answer.done():
            answer.cancel()
            return self._connection.unavailable("there was no confirmation")
        if answer.exception() is not None:
            return answer.exception()  # type: ignore[return-value]
        status = (answer.result().headers or {}).get("Status")
        return self._connection.unavailable(f"a settlement was answered with {status}") if status else None

    def _settled(self, item: _Settlement, failure: Exception | None) -> Exception | None:
        if item.payload is _ACK:
            if failure is None:
                self._forget(item.arrival)
            else:
                self._buffer.give_back(item.arrival.broker_id)
        return failure

    async def _extend_waiting(self) -> None:
        assert self._gaps is not None
        while True:
            await pause(self._lease_s / 3)
            try:
                await self._extend_leases([*self._buffer.order.messages(State.WAITING, State.HELD), *self._gaps.held])
            except PenstockError:
                continue  # JetStream redelivers them, and they keep their order

    async def _extend_leases(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals:
            return
        sent_s = asyncio.get_running_loop().time()
        for arrival in arrivals:
            await self._connection.send(arrival.token, _IN_PROGRESS)
        # The server reads in order, so that its answer confirms all of them.
        await self._connection.flush()
        for arrival in arrivals:
            arrival.leased_s = sent_s

    async def _return_all(self) -> None:
        held = self._gaps.held if self._gaps is not None else []
        for arrival in (*self._buffer.order.messages(*State), *held):
            await self._connection.send(arrival.token, _nak(0))
        await self._connection.flush()

    def _lost(self, reason: PenstockError) -> None:
        self._buffer.fail(reason)

    def _back(self) -> None:
        self._buffer.recover()
        self._room.set()


def _nak(delay_s: int) -> bytes:
    return b"-NAK " + json.dumps({"delay": round(delay_s * 1e9)}).encode() if delay_s else b"-NAK"

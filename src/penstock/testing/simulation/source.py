"""A client of a simulated queue, over a network that delays and loses requests and answers."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from penstock.domain.errors import Unavailable
from penstock.edge.pulse import LoopPulse
from penstock.queues import Confirmation, Received
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.queue import SimulatedQueue

POLL_S = 20.0
BATCH = 10


class LinkFaults(msgspec.Struct):
    """The faults of the network to a queue, as shares of all requests."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    slow: float = 0.0
    stall: float = 0.0
    lost_heartbeat: float = 0.0
    # Whether the queue cannot be opened: it is missing, or its broker is down from the start.
    is_shut: bool = False

    @property
    def loses_requests(self) -> bool:
        """Whether the queue may be out of reach for a while."""
        return bool(self.lost_request or self.lost_answer or self.stall or self.is_shut)

    def clear(self) -> None:
        """Remove all faults."""
        self.is_shut = False
        self.lost_request = self.lost_answer = self.slow = self.stall = self.lost_heartbeat = 0.0


class SimulatedSource:
    """A source over a simulated queue; `crash` simulates the crash of its process."""

    exclusive = False

    def __init__(self, queue: SimulatedQueue, faults: LinkFaults, chance: Chance, owner: object) -> None:
        self.name = queue.name
        self.address = f"simulated:{queue.name}"
        self.ordered = queue.ordered
        self.visibility_s: float | None = queue.visibility_s
        self._queue = queue
        self._faults = faults
        self._chance = chance
        self._owner = owner
        self._pulse = LoopPulse()
        # Whether no request reaches the queue.
        self.is_cut_off = False
        self._loop = asyncio.get_running_loop()
        self._crashed = False
        self._under_way = 0
        self._all_arrived = asyncio.Event()
        self._to_delete: set[str] = set()

    async def open(self) -> None:
        """Connect to the queue."""
        await self._travel()
        if self._faults.is_shut:
            raise Unavailable(f"the simulated queue {self.name} cannot be opened")

    async def receive(self) -> list[Received]:
        """Return the next messages, by a long poll."""
        if self._chance.happens(self._faults.stall):
            await asyncio.Event().wait()
        sent_s = self._loop.time()
        with self._pulse.waiting():
            received = await self._poll()
        leased_s = self._pulse.leased_s(sent_s, self._queue.visibility_s)
        for message in received:
            message.leased_s = leased_s
        return [message for message in received if not self._delete_at_once(message)]

    async def _poll(self) -> list[Received]:
        await self._travel()
        leased = self._queue.lease(BATCH, self._owner)
        if not leased:
            try:
                async with asyncio.timeout(POLL_S):
                    while not leased:
                        await self._queue.wait()
                        leased = self._queue.lease(BATCH, self._owner)
            except TimeoutError:
                return []
        # Leased before the answer is sent: if that is lost, the messages are redelivered later.
        received = [Received(each.broker_id, each.body, each.named_group, each.handle, self.ordered) for each in leased]
        await self._travel()
        return received

    def _delete_at_once(self, message: Received) -> bool:
        if message.broker_id not in self._to_delete:
            return False
        self._to_delete.discard(message.broker_id)
        self._queue.delete(message.broker_id, message.handle)
        return True

    async def _travel(self) -> None:
        await asyncio.sleep(self._latency_s())
        if self._chance.happens(self._faults.lost_request + self._faults.lost_answer) or self.is_cut_off:
            raise Unavailable(f"the simulated queue {self.name} did not answer")

    def _latency_s(self) -> float:
        return self._chance.between(1.0, 4.0) if self._chance.happens(self._faults.slow) else 0.001

    def ack(self, message: Received) -> Confirmation:
        """Remove a message."""
        return self._call(partial(self._delete, message.broker_id, message.handle))

    def _delete(self, broker_id: str, handle: str) -> None:
        if not self._queue.delete(broker_id, handle):
            self._to_delete.add(broker_id)

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue."""
        return self._call(partial(self._queue.change_visibility, message.broker_id, message.handle, delay_s))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Extend the leases."""
        if self._chance.happens(self._faults.lost_heartbeat):
            raise Unavailable("the heartbeat was lost")
        await asyncio.gather(
            *(
                self._call(
                    partial(self._queue.change_visibility, each.broker_id, each.handle, self._queue.visibility_s)
                )
                for each in messages
            )
        )

    def _call(self, effect: Callable[[], object]) -> Confirmation:
        settlement = Confirmation()
        self._under_way += 1
        self._loop.call_later(self._latency_s(), self._arrive, effect, settlement)
        return settlement

    def _arrive(self, effect: Callable[[], object], settlement: Confirmation) -> None:
        if self._crashed:
            return
        self._under_way -= 1
        settlement.resolve(self._happened(effect))
        if not self._under_way:
            self._all_arrived.set()

    def _happened(self, effect: Callable[[], object]) -> Unavailable | None:
        if self._chance.happens(self._faults.lost_request) or self.is_cut_off:
            return Unavailable("the request was lost")
        effect()
        if self._chance.happens(self._faults.lost_answer):
            return Unavailable("the answer was lost")
        return None

    def crash(self) -> None:
        """Have no effect on the queue from now on."""
        self._crashed = True

    async def close(self) -> None:
        """Wait for the pending calls."""
        while self._under_way:
            self._all_arrived.clear()
            await self._all_arrived.wait()

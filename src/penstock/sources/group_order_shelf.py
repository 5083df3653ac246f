"""Where messages stand from their arrival until they are settled, for brokers whose group order is kept here."""

import asyncio
from itertools import count

import msgspec

from penstock.domain.errors import PenstockError
from penstock.sources.group_order import GroupOrder
from penstock.sources.port import Received

POLL_S = 20.0
# As many as the other sources hand out at once, so that a small pool has room for a whole batch.
MOST_PER_RECEIVE = 10


class Arrival(msgspec.Struct, eq=False):
    """A message as the broker delivered it last."""

    broker_id: str
    body: bytes
    group: str | None
    # By which the broker takes the acknowledgement of this delivery.
    token: str
    # Of the newest hand-out of this delivery; empty if there was none.
    handle: str = ""


class Shelf:
    """Hands arrivals out in group order, takes them back, and wakes who waits for them."""

    def __init__(self) -> None:
        self.order: GroupOrder[Arrival] = GroupOrder()
        self._handles = count(1)
        self._delays: dict[str, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self._failure: PenstockError | None = None

    @property
    def failure(self) -> PenstockError | None:
        """Why nothing can be received."""
        return self._failure

    def arrive(self, arrival: Arrival) -> None:
        """Take in what the broker delivered."""
        self.order.arrive(arrival.broker_id, arrival.group, arrival)
        self._changed.set()

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        ends_s = asyncio.get_running_loop().time() + POLL_S
        while True:
            if self._failure is not None:
                raise self._failure
            if taken := self.order.take(MOST_PER_RECEIVE):
                return [self._handed_out(arrival) for arrival in taken]
            self._changed.clear()
            try:
                async with asyncio.timeout_at(ends_s):
                    await self._changed.wait()
            except TimeoutError:
                return []

    def current(self, message: Received) -> Arrival | None:
        """The arrival behind a hand-out whose handle has not expired."""
        arrival = self.order.find(message.broker_id)
        return arrival if arrival is not None and arrival.handle == message.handle else None

    def settle(self, broker_id: str) -> None:
        """Forget a message for good; the next of its group may go."""
        self._end_delay(broker_id)
        if self.order.settle(broker_id) is not None:
            self._changed.set()

    def give_back(self, broker_id: str, delay_s: float = 0) -> None:
        """Hand a message out again, after the delay, and later ones of its group only after it."""
        arrival = self.order.find(broker_id)
        if arrival is None:
            return
        arrival.handle = ""
        self._end_delay(broker_id)
        if delay_s > 0:
            self.order.hold_back(broker_id)
            loop = asyncio.get_running_loop()
            self._delays[broker_id] = loop.call_later(delay_s, self.give_back, broker_id)
        else:
            self.order.give_back(broker_id)
            self._changed.set()

    def clear(self) -> None:
        """Forget everything: the broker will deliver it again."""
        self.order.clear()
        for timer in self._delays.values():
            timer.cancel()
        self._delays.clear()

    def fail(self, reason: PenstockError) -> None:
        """Let receives fail until `recover`."""
        self._failure = reason
        self._changed.set()

    def recover(self) -> None:
        """Let receives wait for messages again."""
        self._failure = None

    def _handed_out(self, arrival: Arrival) -> Received:
        arrival.handle = f"{arrival.broker_id}/{next(self._handles)}"
        return Received(arrival.broker_id, arrival.body, arrival.group, arrival.handle)

    def _end_delay(self, broker_id: str) -> None:
        if timer := self._delays.pop(broker_id, None):
            timer.cancel()

"""The subscribers of the demo, and the events of an order system whose steps must arrive in order."""

import asyncio
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from penstock.client import Event
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signature, verify
from penstock.http.server import Receive, Scope, Send, accept_lifespan, read_body, send_answer

STEPS = ("placed", "paid", "packed", "handed-over", "in-transit", "delivered", "closed")
_ACK = b'{"ack":true}'


class OrderStep(msgspec.Struct, frozen=True):
    """The data of an event, and when it was published."""

    order: int
    step: int
    published_s: float


class _Webhook(msgspec.Struct):
    data: OrderStep


@dataclass
class DemoSubscriber:
    """An endpoint that takes `work_s` per delivery, fails at `failure_rate`, and accepts `per_s` at most."""

    name: str
    work_s: float = 0.0
    failure_rate: float = 0.0
    per_s: int | None = None
    secret: str = ""
    taken: dict[int, list[int]] = field(default_factory=dict)
    distinct: int = 0
    """Number of different events received."""
    refused: int = 0
    """Number of deliveries answered with an error or with 429."""
    forged: int = 0
    """Number of deliveries without a valid signature."""
    overlapping: int = 0
    """Number of deliveries that came while another one of their order was being answered."""
    latencies_ms: list[float] = field(default_factory=list)
    _chance: random.Random = field(default_factory=lambda: random.Random(7))
    _lately: deque[float] = field(default_factory=deque)
    _under_way: Counter[int] = field(default_factory=Counter)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a delivery."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        body = await read_body(receive)
        step = msgspec.json.decode(body, type=_Webhook).data
        self.overlapping += self._under_way[step.order] > 0
        self._under_way[step.order] += 1
        try:
            await self._answer(scope, send, body, step)
        finally:
            self._under_way[step.order] -= 1

    async def _answer(self, scope: Scope, send: Send, body: bytes, step: OrderStep) -> None:
        if self.work_s:
            await asyncio.sleep(self.work_s)
        if self._is_too_much():
            self.refused += 1
            await send_answer(scope, send, 429, b"", {"retry-after": "1"})
        elif self._chance.random() < self.failure_rate:
            self.refused += 1
            await send_answer(scope, send, 503, b"", {})
        else:
            self._take(scope, body, step)
            await send_answer(scope, send, 200, _ACK, {"content-type": "application/json"})

    def _is_too_much(self) -> bool:
        if self.per_s is None:
            return False
        now_s = time.monotonic()
        while self._lately and now_s - self._lately[0] > 1:
            self._lately.popleft()
        if len(self._lately) >= self.per_s:
            return True
        self._lately.append(now_s)
        return False

    def _take(self, scope: Scope, body: bytes, step: OrderStep) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        signature = Signature(headers[ID_HEADER], headers[TIMESTAMP_HEADER], headers[SIGNATURE_HEADER])
        if not verify(signature, body, [self.secret], int(time.time() * 1000)):
            self.forged += 1
        steps = self.taken.setdefault(step.order, [])
        self.distinct += step.step not in steps
        steps.append(step.step)
        self.latencies_ms.append((time.time() - step.published_s) * 1000)


@dataclass(frozen=True)
class Result:
    """A subscriber's record, compared with the published events."""

    name: str
    delivered: int
    refused: int
    repeated: int
    in_order: bool
    overlapping: int
    complete: bool
    signed: bool
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, subscriber: DemoSubscriber, orders: int) -> "Result":
        """Check a subscriber's record: the first delivery of each step, in order, none missing."""
        expected = list(range(len(STEPS)))
        firsts = {order: list(dict.fromkeys(steps)) for order, steps in subscriber.taken.items()}
        delivered = sum(len(steps) for steps in firsts.values())
        quantiles = statistics.quantiles(subscriber.latencies_ms or [0.0, 0.0], n=100)
        return cls(
            name=subscriber.name,
            delivered=delivered,
            refused=subscriber.refused,
            repeated=sum(len(steps) for steps in subscriber.taken.values()) - delivered,
            in_order=all(steps == sorted(steps) for steps in firsts.values()),
            overlapping=subscriber.overlapping,
            complete=len(firsts) == orders and all(sorted(steps) == expected for steps in firsts.values()),
            signed=not subscriber.forged,
            p50_ms=quantiles[49],
            p99_ms=quantiles[98],
        )

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, out of order, unsigned, or came before the answer to its predecessor."""
        return self.in_order and self.complete and self.signed and not self.overlapping

    def row(self) -> list[str]:
        """Return the row for the table."""
        yes_no = {True: "yes", False: "NO"}
        return [
            self.name,
            str(self.delivered),
            str(self.refused),
            str(self.repeated),
            yes_no[self.in_order],
            str(self.overlapping),
            yes_no[self.complete],
            yes_no[self.signed],
            f"{self.p50_ms:.0f}",
            f"{self.p99_ms:.0f}",
        ]


def order_events(orders: int, now_s: Callable[[], float] = time.time) -> Iterator[Event]:
    """Yield the events of all orders, interleaved, the steps of each order in sequence, each with the time of now."""
    for number, step in enumerate(STEPS):
        for order in range(orders):
            data = OrderStep(order, number, now_s())
            yield Event(type=f"orders:{step}", key=f"order-{order}", id=f"{order}-{number}", data=data)


def in_batches(events: Iterator[Event], size: int) -> Iterator[list[Event]]:
    """Split events into batches of at most `size`."""
    while batch := list(islice(events, size)):
        yield batch

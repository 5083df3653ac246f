"""Subscribers of the demo: each receives, sometimes fails, and keeps a record that cannot lie."""

import json
import random
import statistics
import time
from dataclasses import dataclass, field

from penstock.broker.message import InternalMessage
from penstock.demo.orders import STEPS


@dataclass
class Subscriber:
    """Takes deliveries; `work_s` is what one costs it, `failure_rate` how often it refuses one."""

    name: str
    work_s: float = 0.0
    failure_rate: float = 0.0
    forgets_rate: float = 0.0
    """How often it takes a delivery and never answers, as a process does that crashes."""
    taken: dict[str, list[int]] = field(default_factory=dict)
    distinct: int = 0
    """How many different events it has taken."""
    redelivered: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def takes(self, message: InternalMessage) -> bool | None:
        """True to ack, False to nack, None to forget. Only what is acked counts as taken."""
        self.redelivered += message.delivery_attempt > 1
        dice = self.chance.random()
        if dice < self.failure_rate:
            return False
        if dice < self.failure_rate + self.forgets_rate:
            return None
        steps = self.taken.setdefault(message.ordering_key or "", [])
        step = json.loads(message.data)["step"]
        self.distinct += step not in steps
        steps.append(step)
        self.latencies_ms.append(time.time() * 1000 - message.publish_time_ms)
        return True


@dataclass(frozen=True)
class Result:
    """What a subscriber got, held against what was published."""

    name: str
    delivered: int
    redelivered: int
    in_order: bool
    complete: bool
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, subscriber: Subscriber, orders: int) -> "Result":
        """Judge a subscriber's record: first takings of each order's steps, in order, none missing."""
        expected = list(range(len(STEPS)))
        firsts = {key: list(dict.fromkeys(steps)) for key, steps in subscriber.taken.items()}
        delivered = sum(len(steps) for steps in firsts.values())
        quantiles = statistics.quantiles(subscriber.latencies_ms or [0.0, 0.0], n=100)
        return cls(
            name=subscriber.name,
            delivered=delivered,
            redelivered=subscriber.redelivered,
            in_order=all(steps == sorted(steps) for steps in firsts.values()),
            complete=len(firsts) == orders and all(sorted(steps) == expected for steps in firsts.values()),
            p50_ms=quantiles[49],
            p99_ms=quantiles[98],
        )

    @property
    def ok(self) -> bool:
        """Whether nothing is missing and nothing is out of order."""
        return self.in_order and self.complete

    def row(self) -> list[str]:
        """For the table."""
        yes_no = {True: "yes", False: "NO"}
        return [
            self.name,
            str(self.delivered),
            str(self.redelivered),
            yes_no[self.in_order],
            yes_no[self.complete],
            f"{self.p50_ms:.0f}",
            f"{self.p99_ms:.0f}",
        ]

    def summary(self) -> dict[str, object]:
        """For programs."""
        return {
            "subscription": self.name,
            "delivered": self.delivered,
            "redelivered": self.redelivered,
            "in_order": self.in_order,
            "complete": self.complete,
            "p50_ms": round(self.p50_ms, 1),
            "p99_ms": round(self.p99_ms, 1),
        }

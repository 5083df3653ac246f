"""The events of a made-up order system: each order is a key whose events must arrive in this order."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from penstock.client import Event

STEPS = ("placed", "paid", "packed", "handed-over", "in-transit", "delivered", "closed")


class OrderStep(msgspec.Struct, frozen=True):
    """What an event says, and when it was published."""

    order: int
    step: int
    published_s: float


def order_events(orders: int, now_s: float) -> Iterator[Event]:
    """The events of all orders, interleaved as in a busy shop: every step of an order comes after its last."""
    for number, step in enumerate(STEPS):
        for order in range(orders):
            data = OrderStep(order, number, now_s)
            yield Event(type=f"orders:{step}", key=f"order-{order}", id=f"{order}-{number}", data=data)


def in_batches(events: Iterator[Event], size: int) -> Iterator[list[Event]]:
    """Events by batches of at most `size`."""
    while batch := list(islice(events, size)):
        yield batch

"""The events of a made-up order system: each order is a key whose events must arrive in this order."""

import json
from collections.abc import Iterator
from itertools import islice

from penstock.broker.message import InternalMessage

STEPS = ("placed", "paid", "packed", "handed-over", "in-transit", "delivered", "closed")


def order_events(orders: int) -> Iterator[InternalMessage]:
    """The events of all orders, interleaved as in a busy shop: every step of an order comes after its last."""
    for step_number, step in enumerate(STEPS):
        for order in range(orders):
            body = json.dumps({"order": order, "step": step_number, "type": f"orders:{step}"})
            yield InternalMessage(body.encode(), {"type": f"orders:{step}"}, f"order-{order}")


def in_batches(events: Iterator[InternalMessage], size: int) -> Iterator[list[InternalMessage]]:
    """Events by batches of at most `size`."""
    while batch := list(islice(events, size)):
        yield batch

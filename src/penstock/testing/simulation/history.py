"""What happened under a seed, down to the moment: the same seed gives the same history.

What a simulation ends with when the router did something it must never do.
"""

import msgspec


class Delivery(msgspec.Struct, frozen=True):
    """A request that reached the network, and when: virtual seconds since the start."""

    at_s: float
    message_id: str


class History(msgspec.Struct, frozen=True):
    """How many messages were published, how long it all took in virtual time, and every request in order."""

    messages: int
    passed_s: float
    deliveries: tuple[Delivery, ...]


class InvariantBroken(AssertionError):
    """A promise of the router did not hold; the text says which, and the seed that shows it."""

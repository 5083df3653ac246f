"""The history of a simulation, which is the same for the same seed, and the error of a broken invariant."""

import msgspec


class Delivery(msgspec.Struct, frozen=True):
    """A request that reached the network, and its time in virtual seconds since the start."""

    at_s: float
    message_id: str


class History(msgspec.Struct, frozen=True):
    """The number of published messages, the virtual time that passed, and every request in order."""

    messages: int
    passed_s: float
    deliveries: tuple[Delivery, ...]


class InvariantBroken(AssertionError):
    """The router broke an invariant; the text contains it and the seed."""

"""Which deliveries of a JetStream consumer may be handed out, and which may have an earlier one missing.

JetStream delivers new messages in stream order, but one that was delivered and got lost (with a router that crashed, or
with a connection) comes again only when its lease ends, behind newer ones. Every delivery carries two numbers: the
message's place in the stream, and the delivery's own place among all deliveries of the consumer. So:

- At the start the consumer tells how many messages are unsettled, and up to which place messages were delivered. Until
  all of those have come again, or their leases have ended and JetStream has no more of them to give, messages with a
  group wait here.
- Later a hole in the numbers of deliveries tells that some were lost; messages behind the hole wait in the same way.

JetStream gives what it has to deliver again before what is new. So after the leases have ended, a pull that brings a
new message, or nothing, shows that nothing is missing any more.
"""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

# How late JetStream may notice that a lease has ended.
MARGIN_S = 0.5


class Numbers(msgspec.Struct, frozen=True):
    """The numbers of a delivery."""

    stream_seq: int
    delivery_seq: int
    is_first: bool


class GapStanding(msgspec.Struct, frozen=True):
    """How far a consumer has come."""

    # Everything up to here is settled.
    settled_seq: int
    # Nothing behind this was delivered.
    delivered_seq: int
    delivery_seq: int
    unsettled: int


class DeliveryGaps(Generic[T]):
    """Holds deliveries back while an earlier message may be missing; gives them out in stream order."""

    def __init__(self, standing: GapStanding, lease_s: float, now_s: float) -> None:
        self._lease_s = lease_s
        self._complete_to = standing.settled_seq if standing.unsettled else standing.delivered_seq
        self._highest = standing.delivered_seq
        self._last_delivery = standing.delivery_seq
        self._lost = 0
        self._missing = standing.unsettled
        self._missing_to = standing.delivered_seq
        self._leases_end_s = now_s + lease_s + MARGIN_S
        self._came: set[int] = set()
        self._held: dict[int, T] = {}
        self._pull_is_telling = False

    @property
    def is_waiting(self) -> bool:
        """Whether a message may be missing."""
        return self._missing > 0

    @property
    def held(self) -> list[T]:
        """What is held back, in no order."""
        return list(self._held.values())

    def use_lease(self, lease_s: float) -> None:
        """Reckon with another length of leases from now on."""
        self._lease_s = lease_s

    def arrive(self, numbers: Numbers, delivery: T, *, grouped: bool, now_s: float) -> list[T]:
        """Take a delivery in; those that may be handed out now, in order."""
        self._look_for_a_hole(numbers, now_s)
        self._highest = max(self._highest, numbers.stream_seq)
        if self._missing == 0:
            self._complete_to = self._highest
            return [delivery]
        self._count(numbers)
        may_pass = not grouped or numbers.stream_seq <= self._complete_to
        if not may_pass:
            self._held[numbers.stream_seq] = delivery
        at_once = [delivery] if may_pass else []
        if self._missing == 0 or (numbers.is_first and self._pull_is_telling):
            return at_once + self._release()
        return at_once

    def pull_starts(self, now_s: float) -> None:
        """A new pull is sent, and no other is under way."""
        self._pull_is_telling = now_s >= self._leases_end_s

    def pull_ran_dry(self) -> list[T]:
        """The pull ended for want of messages; the deliveries that may be handed out now, in order."""
        return self._release() if self.is_waiting and self._pull_is_telling else []

    def pull_broke(self, now_s: float) -> None:
        """The pull ended and nobody knows what it would have brought: that is leased anew."""
        self._leases_end_s = now_s + self._lease_s + MARGIN_S
        self._pull_is_telling = False

    def _look_for_a_hole(self, numbers: Numbers, now_s: float) -> None:
        lost = max(0, numbers.delivery_seq - self._last_delivery - 1)
        self._last_delivery = max(self._last_delivery, numbers.delivery_seq)
        self._lost += lost
        if lost:
            self.pull_broke(now_s)
        if numbers.stream_seq <= self._highest or not self._lost:
            return
        skipped = numbers.stream_seq - self._highest - (1 if numbers.is_first else 0)
        missing = min(self._lost, skipped)
        # New messages come in stream order: a lost one has its place before this.
        self._lost = 0 if numbers.is_first else self._lost - missing
        if missing:
            self._missing += missing
            self._missing_to = numbers.stream_seq

    def _count(self, numbers: Numbers) -> None:
        seq = numbers.stream_seq
        if seq <= self._complete_to or seq in self._came:
            return
        self._came.add(seq)
        # One that comes for the first time was never missing; it is noted in case it comes again.
        if not numbers.is_first and seq <= self._missing_to:
            self._missing -= 1

    def _release(self) -> list[T]:
        released = [self._held[seq] for seq in sorted(self._held)]
        self._missing = 0
        self._complete_to = self._highest
        self._held.clear()
        self._came.clear()
        return released

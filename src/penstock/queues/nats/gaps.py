"""Detects gaps in the deliveries of a JetStream consumer, and holds messages back until the gaps are filled.

JetStream delivers new messages in stream order, but redelivers a lost one (after a crash of a router, or a lost
connection) only when its lease ends, behind newer ones. Every delivery has two numbers: the message's position in the
stream, and the delivery's position among all deliveries of the consumer. So:

- At the start JetStream reports how many messages are unsettled, and the last position delivered. Until all of those
  are redelivered, or their leases have ended and JetStream has no more of them, messages with a group wait here.
- Later a gap in the numbers of deliveries shows that some were lost; messages behind the gap wait in the same way.

JetStream redelivers old messages before it delivers new ones. So after the leases have ended, a pull that returns a
new message, or none, shows that nothing is missing any more.
"""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

# The delay after which JetStream notices that a lease has ended.
MARGIN_S = 0.5


class DeliveryNumbers(msgspec.Struct, frozen=True):
    """The numbers of a delivery."""

    stream_seq: int
    delivery_seq: int
    is_first: bool


class ConsumerProgress(msgspec.Struct, frozen=True):
    """The progress of a consumer."""

    # Every message up to this one is settled.
    settled_seq: int
    # No message after this one was delivered.
    delivered_seq: int
    delivery_seq: int
    unsettled: int


class DeliveryGaps(Generic[T]):
    """Holds deliveries back while an earlier message may be missing; releases them in stream order."""

    def __init__(self, progress: ConsumerProgress, lease_s: float, now_s: float) -> None:
        self._lease_s = lease_s
        self._complete_to = progress.settled_seq if progress.unsettled else progress.delivered_seq
        self._highest = progress.delivered_seq
        self._last_delivery = progress.delivery_seq
        self._lost = 0
        self._missing = progress.unsettled
        self._missing_to = progress.delivered_seq
        self._leases_end_s = now_s + lease_s + MARGIN_S
        self._seen: set[int] = set()
        self._held: dict[int, T] = {}
        self._pull_is_conclusive = False

    @property
    def is_waiting(self) -> bool:
        """Whether a message may be missing."""
        return self._missing > 0

    @property
    def held(self) -> list[T]:
        """The deliveries held back, in no order."""
        return list(self._held.values())

    def use_lease(self, lease_s: float) -> None:
        """Use another lease time from now on."""
        self._lease_s = lease_s

    def arrive(self, numbers: DeliveryNumbers, delivery: T, *, grouped: bool, now_s: float) -> list[T]:
        """Add a delivery, and return those that may be received now, in order."""
        self._detect_loss(numbers, now_s)
        self._highest = max(self._highest, numbers.stream_seq)
        if self._missing == 0:
            self._complete_to = self._highest
            return [delivery]
        self._count(numbers)
        may_pass = not grouped or numbers.stream_seq <= self._complete_to
        if not may_pass:
            self._held[numbers.stream_seq] = delivery
        passed = [delivery] if may_pass else []
        if self._missing == 0 or (numbers.is_first and self._pull_is_conclusive):
            return passed + self._release()
        return passed

    def pull_started(self, now_s: float) -> None:
        """Record that a new pull starts, while no other is running."""
        self._pull_is_conclusive = now_s >= self._leases_end_s

    def pull_empty(self) -> list[T]:
        """Record that the pull ended without more messages, and return the deliveries that it releases, in order."""
        return self._release() if self.is_waiting and self._pull_is_conclusive else []

    def pull_failed(self, now_s: float) -> None:
        """Record that the pull failed: its messages are lost, and leased again."""
        self._leases_end_s = now_s + self._lease_s + MARGIN_S
        self._pull_is_conclusive = False

    def _detect_loss(self, numbers: DeliveryNumbers, now_s: float) -> None:
        lost = max(0, numbers.delivery_seq - self._last_delivery - 1)
        self._last_delivery = max(self._last_delivery, numbers.delivery_seq)
        self._lost += lost
        if lost:
            self.pull_failed(now_s)
        if numbers.stream_seq <= self._highest or not self._lost:
            return
        skipped = numbers.stream_seq - self._highest - (1 if numbers.is_first else 0)
        missing = min(self._lost, skipped)
        # New messages come in stream order, so a lost one is before this one.
        self._lost = 0 if numbers.is_first else self._lost - missing
        if missing:
            self._missing += missing
            self._missing_to = numbers.stream_seq

    def _count(self, numbers: DeliveryNumbers) -> None:
        seq = numbers.stream_seq
        if seq <= self._complete_to or seq in self._seen:
            return
        self._seen.add(seq)
        # A first delivery was never missing; it is recorded in case it is redelivered.
        if not numbers.is_first and seq <= self._missing_to:
            self._missing -= 1

    def _release(self) -> list[T]:
        released = [self._held[seq] for seq in sorted(self._held)]
        self._missing = 0
        self._complete_to = self._highest
        self._held.clear()
        self._seen.clear()
        return released

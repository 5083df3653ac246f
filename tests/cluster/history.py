"""What clients of a cluster saw, and which promises it breaks.

Times are of one clock. A request has two of them, since the server acts at an unknown moment in between; a promise is
broken only if it is, whenever that moment was.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock


@dataclass(frozen=True)
class Sent:
    """A send that was acknowledged."""

    group: str
    number: int


@dataclass(frozen=True)
class Receipt:
    """A message in the answer of a receive."""

    group: str
    number: int
    call: int
    """The receive that returned it; one may return several of a group."""
    asked_s: float
    answered_s: float
    lease_s: float


@dataclass(frozen=True)
class Deletion:
    """A delete that was acknowledged."""

    group: str
    number: int
    asked_s: float
    answered_s: float


@dataclass
class ClusterHistory:
    """Everything that clients were told, recorded by any thread."""

    sends: list[Sent] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    delete_attempts: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a delete of a message was first asked for, acknowledged or not."""
    lock: Lock = field(default_factory=Lock)

    def attempt_delete(self, group: str, number: int, asked_s: float) -> None:
        """Record that a delete is asked for."""
        with self.lock:
            self.delete_attempts.setdefault((group, number), asked_s)

    def undelivered(self) -> set[tuple[str, int]]:
        """Acknowledged sends that no receive has returned."""
        with self.lock:
            received = {(each.group, each.number) for each in self.receipts}
            return {(each.group, each.number) for each in self.sends} - received

    def breaches(self) -> list[str]:
        """Every broken promise, as a sentence."""
        return [*self._lost(), *self._out_of_order(), *self._handed_out_twice(), *self._overlapping(), *self._risen()]

    def _by_group(self) -> dict[str, list[Receipt]]:
        groups: dict[str, list[Receipt]] = defaultdict(list)
        for receipt in sorted(self.receipts, key=lambda each: (each.answered_s, each.call, each.number)):
            groups[receipt.group].append(receipt)
        return groups

    def _lost(self) -> Iterator[str]:
        for group, number in sorted(self.undelivered()):
            yield f"{group}/{number} was acknowledged and is lost"

    def _out_of_order(self) -> Iterator[str]:
        for group, receipts in self._by_group().items():
            firsts = list(dict.fromkeys(each.number for each in receipts))
            for before, after in itertools.pairwise(firsts):
                if after <= before:
                    yield f"{group}/{after} came first after {group}/{before}"

    def _handed_out_twice(self) -> Iterator[str]:
        for group, receipts in self._by_group().items():
            last: dict[int, Receipt] = {}
            for receipt in receipts:
                earlier = last.get(receipt.number)
                if earlier is not None and receipt.answered_s < earlier.asked_s + earlier.lease_s:
                    early_s = earlier.asked_s + earlier.lease_s - receipt.answered_s
                    yield f"{group}/{receipt.number} was handed out twice while its lease ran ({early_s:.3f} s early)"
                last[receipt.number] = receipt

    def _overlapping(self) -> Iterator[str]:
        """While a message is in flight, no other receive gets a later one of its group."""
        for group, receipts in self._by_group().items():
            for place, earlier in enumerate(receipts):
                free_s = self.delete_attempts.get((group, earlier.number), float("inf"))
                for later in receipts[place + 1 :]:
                    in_flight = later.answered_s < min(earlier.asked_s + earlier.lease_s, free_s)
                    if in_flight and later.call != earlier.call and later.number > earlier.number:
                        yield f"{group}/{later.number} was handed out while {group}/{earlier.number} was in flight"

    def _risen(self) -> Iterator[str]:
        deleted = {(each.group, each.number): each.answered_s for each in self.deletions}
        for receipt in self.receipts:
            if receipt.asked_s > deleted.get((receipt.group, receipt.number), float("inf")):
                yield f"{receipt.group}/{receipt.number} was deleted and came again"

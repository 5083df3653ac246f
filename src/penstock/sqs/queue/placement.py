"""Placement: which database each partition of a queue lives in.

Ownership: who serves a queue's partitions. One node owns them all today; several will share them by leases.
"""

import re
from typing import Protocol

from penstock.domain.errors import InvalidArgument

_ENTRY = re.compile(r"(?P<queue>[A-Za-z0-9_-]+\.fifo):(?P<count>\d+)=(?P<names>[A-Za-z0-9_,-]+)")

PartitionMap = dict[str, list[str]]
"""Queue name → the database of each of its partitions."""

HOME = ""
"""The server's own database."""


def parse_partition_map(text: str, known: set[str]) -> PartitionMap:
    """Read `orders.fifo:8=a,a,a,a,b,b,b,b` (several separated by `;` or spaces)."""
    placements: PartitionMap = {}
    for entry in re.split(r"[;\s]+", text.strip()):
        if not entry:
            continue
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise InvalidArgument(f"{entry!r} is no partition map entry; write orders.fifo:4=a,a,b,b")
        names = match["names"].split(",")
        if len(names) != int(match["count"]):
            raise InvalidArgument(f"{entry!r} names {len(names)} databases for {match['count']} partitions")
        unknown = sorted(set(names) - known)
        if unknown:
            raise InvalidArgument(
                f"{entry!r} names the database {unknown[0]!r}, which is not configured; "
                f"known are {', '.join(sorted(known)) or 'none'} (sqs.databases)"
            )
        placements[match["queue"]] = names
    return placements


def place(placements: PartitionMap, queue_name: str, partitions: int) -> list[str]:
    """The database of each partition of a queue that is being made."""
    names = placements.get(queue_name)
    if names is None:
        return [HOME] * partitions
    if len(names) != partitions:
        raise InvalidArgument(
            f"the partition map places {len(names)} partitions of {queue_name}, but it is to have {partitions}"
        )
    return names


CAPABILITIES = ("htfifo",)
"""What this node can do; a queue that needs more is not served by it."""


class PartitionOwnership(Protocol):
    """Asked before anything is done with a queue."""

    def may_create_partitioned(self) -> bool:
        """Whether every live node can serve a queue with several partitions."""
        ...

    def owns(self, incarnation: int) -> bool:
        """Whether this node serves a queue; if not, the request belongs to another."""
        ...


class SoleOwner:
    """The ownership of a single node."""

    def may_create_partitioned(self) -> bool:
        """This node reports `htfifo`."""
        return "htfifo" in CAPABILITIES

    def owns(self, incarnation: int) -> bool:
        """Everything is here."""
        return True

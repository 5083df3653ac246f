"""Which database stores each partition of a queue, and which node serves the queue."""

import re
from collections.abc import Collection
from typing import Protocol

from penstock.domain.errors import InvalidArgument

_ENTRY = re.compile(r"(?P<queue>[A-Za-z0-9_-]+\.fifo):(?P<count>\d+)=(?P<names>[A-Za-z0-9_,-]+)")

PartitionMap = dict[str, list[str]]
"""Queue name → the database of each of its partitions."""

OWN_DATABASE = ""
"""The name of the server's own database."""

PARTITIONED = "htfifo"
"""The capability to serve a queue with several partitions."""

CAPABILITIES = (PARTITIONED,)
"""What this version supports."""


def parse_partition_map(text: str, known: set[str]) -> PartitionMap:
    """Read `orders.fifo:8=a,a,a,a,b,b,b,b`; several entries are separated by `;` or spaces."""
    placements: PartitionMap = {}
    for entry in re.split(r"[;\s]+", text.strip()):
        if not entry:
            continue
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise InvalidArgument(f"{entry!r} is not a partition map entry; write it as orders.fifo:4=a,a,b,b")
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
    """Return the database of each partition of a new queue."""
    names = placements.get(queue_name)
    if names is None:
        return [OWN_DATABASE] * partitions
    if len(names) != partitions:
        raise InvalidArgument(
            f"the partition map places {len(names)} partitions of {queue_name}, but the queue is to have {partitions}"
        )
    return names


class PartitionOwnership(Protocol):
    """Decides whether a queue with partitions may be created."""

    async def may_create_partitioned(self) -> bool:
        """Return whether every live node can serve a queue with several partitions."""
        ...


class SoleOwner:
    """The ownership of a single node."""

    def __init__(self, capabilities: Collection[str]) -> None:
        self._capabilities = capabilities

    async def may_create_partitioned(self) -> bool:
        """Return whether this node supports partitioned queues."""
        return PARTITIONED in self._capabilities

"""A partition of a queue, and what is handed out from it."""

import msgspec

from penstock.engine.async_shell import AsyncShell
from penstock.engine.entry import Entry
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream


class Partition(msgspec.Struct, frozen=True):
    """A part of a queue with its own order, deduplication and writer."""

    index: int
    shell: AsyncShell
    stream: Stream
    queue: StoredQueue


class Delivery(msgspec.Struct, frozen=True):
    """Messages leased by one receive, and the partition they came from."""

    partition: Partition
    entries: list[Entry]

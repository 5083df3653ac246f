"""Which message of the source a copy is of: its deduplication id says so.

Not the source's own deduplication id: a backlog may hold two messages with the same one, sent hours apart.
"""

import re

import msgspec

from penstock.sqs.snapshot import SnapshotMessage

_FORM = re.compile(r"(\d+)-(\d+)-(.+)")


class Origin(msgspec.Struct, frozen=True):
    """A place in the source queue."""

    partition: int
    sequence: int
    message_id: str

    @property
    def dedup_id(self) -> str:
        """The deduplication id of the copy."""
        return f"{self.partition}-{self.sequence}-{self.message_id}"


def origin_of(copy: SnapshotMessage) -> Origin | None:
    """Where a copy came from; None if a message is no copy."""
    found = _FORM.fullmatch(copy.dedup_id)
    return None if found is None else Origin(int(found[1]), int(found[2]), found[3])

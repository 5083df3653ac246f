"""What the store keeps with a queue; every partition carries it, the first one's counts."""

import msgspec

from penstock.sqs.attributes import QueueAttributes


class SqsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it is on disk."""

    name: str
    attributes: QueueAttributes
    tags: dict[str, str] = {}
    created_s: int
    modified_s: int
    placement: tuple[str, ...] = ("",)
    """The database of each partition; the empty name is the server's own."""


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(SqsRecord).decode


def partition_name(queue_name: str, index: int) -> str:
    """The name of a partition's stream and queue in the engine; `#` is in no queue name."""
    return f"{queue_name}#{index}"


def split_partition_name(name: str) -> tuple[str, int]:
    """The queue's name and the partition's index."""
    queue_name, _, index = name.rpartition("#")
    return queue_name, int(index)

"""The queues of other shards, as a shard's own queues know them: by ARN, through the nodes that serve them.

A shard asks another one only for what crosses between queues: whether a dead-letter queue exists and whom it allows,
whose dead letters a queue takes, and to accept messages that leave this shard.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.sqs.errors import queue_does_not_exist
from penstock.sqs.model import Shape
from penstock.sqs.names import FIFO_SUFFIX
from penstock.sqs.queue.queue import SqsQueue

SHARD_ACTION = "PenstockShard"
SHARD_TARGET = f"AmazonSQS.{SHARD_ACTION}".encode()


class QueueElsewhere(msgspec.Struct, frozen=True):
    """A queue of another shard, which may or may not exist."""

    name: str
    """Its key, as for the queues of this shard."""
    arn: str

    @property
    def fifo(self) -> bool:
        """Whether it keeps the order within each group."""
        return self.arn.endswith(FIFO_SUFFIX)


Target = SqsQueue | QueueElsewhere
"""Where messages can be moved."""


class DescribeQueue(msgspec.Struct, frozen=True, tag="describe"):
    """Asks whether a queue exists, and whose dead letters it allows."""

    arn: str


class ListSources(msgspec.Struct, frozen=True, tag="sources"):
    """Asks which queues send their dead letters to a queue."""

    arn: str


class AcceptMessages(msgspec.Struct, frozen=True, tag="accept"):
    """Asks to take messages over; one whose origin was taken over before is skipped."""

    arn: str
    origins: Sequence[str]
    messages: Sequence[bytes]


ShardRequest = DescribeQueue | ListSources | AcceptMessages


class ShardAnswer(Shape):
    """The answer of a shard to another one."""

    exists: bool = False
    allow: str | None = None
    """The RedriveAllowPolicy, if the queue has one."""
    sources: list[str] = msgspec.field(default_factory=list)


class OtherShards(Protocol):
    """What a shard knows about the others."""

    def have(self, key: str) -> bool:
        """Return whether the queue with this key belongs to another shard, if it exists."""
        ...

    async def ask(self, key: str, request: ShardRequest) -> ShardAnswer:
        """Ask the owner of the queue's shard; SqsError if it refuses, or if there is none for some seconds."""
        ...

    async def ask_all(self, request: ShardRequest) -> list[ShardAnswer]:
        """Ask the owners of all other shards."""
        ...


class NoOtherShards:
    """What a server knows whose queues are all in one shard."""

    def have(self, key: str) -> bool:
        """Return False."""
        return False

    async def ask(self, key: str, request: ShardRequest) -> ShardAnswer:
        """Refuse."""
        raise queue_does_not_exist()

    async def ask_all(self, request: ShardRequest) -> list[ShardAnswer]:
        """Return nothing."""
        return []

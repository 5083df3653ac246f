"""What the admin surface is asked and what it answers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.sqs.model import MessageMoveTask

MAX_PEEK = 100
MAX_DEAD_LETTER_SOURCES = 100


class PeekQuery(msgspec.Struct, frozen=True):
    """Which messages to show: the first ones, or those after a cursor."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PEEK)] = 10
    cursor: str | None = None


class RedriveOrder(msgspec.Struct):
    """The body of a redrive."""

    destination: str | None = None
    per_second: int | None = None


class QueueSummary(msgspec.Struct, frozen=True):
    """A queue at this moment."""

    name: str
    fifo: bool
    partitions: int
    visible: int
    not_visible: int
    delayed: int
    waiting_receivers: int


class QueueSummaries(msgspec.Struct, frozen=True):
    """Queues, by name; the cursor asks for the next page, null after the last."""

    queues: list[QueueSummary]
    cursor: str | None


class QueueDescription(QueueSummary, frozen=True):
    """A queue with all there is to say about it; of the queues whose dead letters come here, the first ones by name."""

    arn: str
    attributes: dict[str, str]
    tags: dict[str, str]
    dead_letter_sources: list[str]
    dead_letter_source_count: int
    move_tasks: list[MessageMoveTask]
    partition_messages: list[int]
    throttle_tokens: dict[str, float]


class PeekedMessage(msgspec.Struct, frozen=True):
    """A message as the admin surface shows it."""

    message_id: str
    partition: int
    sequence: int
    group: str | None
    state: str
    sent_ms: int
    receive_count: int
    body: str
    attributes: dict[str, str]


class PeekedPage(msgspec.Struct, frozen=True):
    """Some messages, and where the next ones are."""

    messages: list[PeekedMessage]
    cursor: str | None


class Purged(msgspec.Struct, frozen=True):
    """The queue that is empty now."""

    purged: str


class Retired(msgspec.Struct, frozen=True):
    """The queue that is no more."""

    retired: str


class RedriveStarted(msgspec.Struct, frozen=True):
    """The task that moves dead letters back."""

    task: str

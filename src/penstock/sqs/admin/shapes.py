"""Requests and answers of the admin endpoints."""

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


class RedriveRequest(msgspec.Struct):
    """The body of a redrive."""

    destination: str | None = None
    per_second: int | None = None


class QueueSummary(msgspec.Struct, frozen=True):
    """A queue and its current counts."""

    name: str
    fifo: bool
    partitions: int
    visible: int
    not_visible: int
    delayed: int
    waiting_receivers: int


class QueueSummaries(msgspec.Struct, frozen=True):
    """Queues by name. The cursor asks for the next page; it is null after the last."""

    queues: list[QueueSummary]
    cursor: str | None


class QueueDescription(QueueSummary, frozen=True):
    """A queue with its attributes, tags and move tasks, and the first of the queues whose dead letters it takes."""

    arn: str
    attributes: dict[str, str]
    tags: dict[str, str]
    dead_letter_sources: list[str]
    dead_letter_source_count: int
    move_tasks: list[MessageMoveTask]
    partition_messages: list[int]
    throttle_tokens: dict[str, float]


class PeekedMessage(msgspec.Struct, frozen=True):
    """A message as the admin endpoints show it, with tokens, passwords and secrets in its JSON masked."""

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
    """A page of messages. The cursor asks for the next page; it is null after the last."""

    messages: list[PeekedMessage]
    cursor: str | None


class Purged(msgspec.Struct, frozen=True):
    """The queue whose messages were deleted."""

    purged: str


class Retired(msgspec.Struct, frozen=True):
    """The queue that was deleted."""

    retired: str


class RedriveStarted(msgspec.Struct, frozen=True):
    """The task that moves dead letters back."""

    task: str

"""Publishes messages to a JetStream stream, deduplicated by Nats-Msg-Id."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

import msgspec
from nats.aio.msg import Msg

from penstock.domain.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.queues.errors import BrokerRefused, HeldBack, InvalidPublication
from penstock.queues.nats.connection import ANSWER_S, NatsConnection
from penstock.queues.nats.source import GROUP_HEADER
from penstock.queues.port import Publication
from penstock.queues.uri import NatsUri

# The protocol and the names of the headers add to the size of a message.
_OVERHEAD_BYTES = 256
_MAX_READABLE_CHARS = 128
_PRINTABLE = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}~"


class _ApiError(msgspec.Struct, frozen=True):
    """The error of a message that JetStream did not store."""

    description: str = "no reason given"


class _Stored(msgspec.Struct, frozen=True):
    """JetStream's answer to a message."""

    error: _ApiError | None = None


class NatsPublisher:
    """A publisher to a stream."""

    def __init__(self, uri: NatsUri, template: NatsUri | None = None) -> None:
        self._uri = uri
        self._template = template
        self._connection = NatsConnection(uri)
        self._subject = uri.stream
        self._clock = SystemClock()

    async def open(self) -> None:
        """Connect; without a template the stream must exist."""
        await self._connection.open()
        subjects = await self._connection.stream_subjects(self._template)
        self._subject = ".".join("penstock" if token in ("*", ">") else token for token in subjects[0].split("."))

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages, one at a time per group, groups in parallel; return per message None, or the error."""
        groups = _groups(publications)
        ended = await asyncio.gather(*(self._publish_group([publications[at] for at in group]) for group in groups))
        results: list[Exception | None] = [None] * len(publications)
        for group, group_results in zip(groups, ended, strict=True):
            for at, result in zip(group, group_results, strict=True):
                results[at] = result
        return results

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment before which nothing was published that the consumer has not settled."""
        asked_ms = self._clock.now_ms()
        oldest_ms = await self._connection.oldest_sent_ms()
        return asked_ms if oldest_ms is None else min(oldest_ms, asked_ms)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def _publish_group(self, group: Sequence[Publication]) -> "list[Exception | None]":
        results: list[Exception | None] = []
        for publication in group:
            failure = await self._store(publication)
            results.append(failure)
            if failure is not None:
                break
        return results + [HeldBack(later.group) for later in group[len(results) :]]

    async def _store(self, publication: Publication) -> Exception | None:
        try:
            headers = self._headers(publication)
            answer = await self._connection.request(self._subject, publication.body, headers)
            async with asyncio.timeout(ANSWER_S):
                return self._refusal(await answer)
        except PenstockError as error:
            return error
        except TimeoutError:
            return self._connection.unavailable("there was no confirmation")

    def _headers(self, publication: Publication) -> dict[str, str]:
        headers = {"Nats-Expected-Stream": self._uri.stream}
        if publication.group is not None:
            headers[GROUP_HEADER] = quote(publication.group, _PRINTABLE)
        if publication.dedup_id is not None:
            headers["Nats-Msg-Id"] = _message_id(publication.dedup_id)
        size_bytes = len(publication.body) + sum(map(len, headers.values())) + _OVERHEAD_BYTES
        if size_bytes > self._connection.max_payload_bytes:
            raise InvalidPublication(
                f"a message has {size_bytes} bytes, more than the limit of {self._connection.max_payload_bytes};"
                " shorten it, or raise max_payload of the NATS server"
            )
        return headers

    def _refusal(self, answer: Msg) -> Exception | None:
        if status := (answer.headers or {}).get("Status"):
            return self._connection.unavailable(f"a publication was answered with {status}")
        error = msgspec.json.decode(answer.data, type=_Stored).error
        return BrokerRefused(f"NATS did not store the message: {error.description}") if error else None


def _message_id(dedup_id: str) -> str:
    """Return the id for the header: readable if it is short."""
    if len(dedup_id) > _MAX_READABLE_CHARS:
        return f"sha256:{sha256(dedup_id.encode()).hexdigest()}"
    return quote(dedup_id, _PRINTABLE)


def _groups(publications: Sequence[Publication]) -> list[list[int]]:
    """Return the indexes of the publications by group; one without a group is alone."""
    groups: defaultdict[str | int, list[int]] = defaultdict(list)
    for at, publication in enumerate(publications):
        groups[at if publication.group is None else publication.group].append(at)
    return list(groups.values())

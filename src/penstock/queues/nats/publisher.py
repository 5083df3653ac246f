"""Puts messages into a JetStream stream, deduplicated by Nats-Msg-Id."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

import msgspec
from nats.aio.msg import Msg

from penstock.domain.errors import PenstockError
from penstock.queues.errors import BrokerRefused, HeldBack, InvalidPublication
from penstock.queues.nats.link import ANSWER_S, NatsLink
from penstock.queues.nats.source import GROUP_HEADER
from penstock.queues.port import Publication
from penstock.queues.uri import NatsUri

# What the protocol and the headers' names add to a message.
_OVERHEAD_BYTES = 256
_READABLE_ID = 128
_PRINTABLE = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}~"


class _ApiError(msgspec.Struct, frozen=True):
    """Why JetStream did not store a message."""

    description: str = "no reason given"


class _Stored(msgspec.Struct, frozen=True):
    """JetStream's answer to a message."""

    error: _ApiError | None = None


class NatsPublisher:
    """The publisher's end of a stream."""

    def __init__(self, uri: NatsUri) -> None:
        self._uri = uri
        self._link = NatsLink(uri)
        self._subject = uri.stream

    async def open(self) -> None:
        """Connect; the stream must be there."""
        await self._link.open()
        subjects = await self._link.stream_subjects()
        self._subject = ".".join("penstock" if token in ("*", ">") else token for token in subjects[0].split("."))

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, one at a time of each group, groups side by side; per message None, or why it is not in."""
        lines = _lines(publications)
        ended = await asyncio.gather(*(self._publish_line([publications[at] for at in line]) for line in lines))
        results: list[Exception | None] = [None] * len(publications)
        for line, line_results in zip(lines, ended, strict=True):
            for at, result in zip(line, line_results, strict=True):
                results[at] = result
        return results

    async def close(self) -> None:
        """Hang up."""
        await self._link.close()

    async def _publish_line(self, line: Sequence[Publication]) -> "list[Exception | None]":
        results: list[Exception | None] = []
        for publication in line:
            failure = await self._store(publication)
            results.append(failure)
            if failure is not None:
                break
        return results + [HeldBack(later.group) for later in line[len(results) :]]

    async def _store(self, publication: Publication) -> Exception | None:
        try:
            headers = self._headers(publication)
            answer = await self._link.ask(self._subject, publication.body, headers)
            async with asyncio.timeout(ANSWER_S):
                return self._refusal(await answer)
        except PenstockError as error:
            return error
        except TimeoutError:
            return self._link.unavailable("no confirmation came")

    def _headers(self, publication: Publication) -> dict[str, str]:
        headers = {"Nats-Expected-Stream": self._uri.stream}
        if publication.group is not None:
            headers[GROUP_HEADER] = quote(publication.group, _PRINTABLE)
        if publication.dedup_id is not None:
            headers["Nats-Msg-Id"] = _message_id(publication.dedup_id)
        size_bytes = len(publication.body) + sum(map(len, headers.values())) + _OVERHEAD_BYTES
        if size_bytes > self._link.max_payload_bytes:
            raise InvalidPublication(
                f"a message of {size_bytes} bytes is longer than the {self._link.max_payload_bytes} bytes that NATS"
                " takes; shorten it, or raise max_payload of the server"
            )
        return headers

    def _refusal(self, answer: Msg) -> Exception | None:
        if status := (answer.headers or {}).get("Status"):
            return self._link.unavailable(f"a publication was answered with {status}")
        error = msgspec.json.decode(answer.data, type=_Stored).error
        return BrokerRefused(f"NATS did not store the message: {error.description}") if error else None


def _message_id(dedup_id: str) -> str:
    """The id as a header carries it: readable if it is short."""
    if len(dedup_id) > _READABLE_ID:
        return f"sha256:{sha256(dedup_id.encode()).hexdigest()}"
    return quote(dedup_id, _PRINTABLE)


def _lines(publications: Sequence[Publication]) -> list[list[int]]:
    """The places of the publications, those of one group in one line; one without a group has a line of its own."""
    lines: defaultdict[str | int, list[int]] = defaultdict(list)
    for at, publication in enumerate(publications):
        lines[at if publication.group is None else publication.group].append(at)
    return list(lines.values())

"""Publishes messages to an ActiveMQ queue, each call in one transaction. ActiveMQ does not deduplicate."""

import asyncio
from collections.abc import Sequence
from itertools import count

from penstock.domain.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.queues.activemq.connection import ANSWER_S, StompConnection
from penstock.queues.activemq.source import destination, message_headers, stomp_address
from penstock.queues.activemq.stomp import MAX_BODY_BYTES, Frame
from penstock.queues.errors import BrokerUnavailable, HeldBack, InvalidPublication
from penstock.queues.port import Publication
from penstock.queues.uri import StompUri

# ActiveMQ accepts header lines up to 10 KiB, and escapes make them longer.
MAX_GROUP_BYTES = 4096


class ActiveMqPublisher:
    """A publisher to a queue, which reconnects after a lost connection."""

    def __init__(self, uri: StompUri) -> None:
        self._uri = uri
        self._connection: StompConnection | None = None
        self._transactions = count(1)
        self._connecting = asyncio.Lock()
        self._clock = SystemClock()

    async def open(self) -> None:
        """Connect; ActiveMQ creates the queue if it is missing."""
        await self._connected()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages in order: all valid ones, or none."""
        results = _refusals(publications)
        wanted = [publication for publication, refusal in zip(publications, results, strict=True) if refusal is None]
        failure = await self._send_all(wanted) if wanted else None
        return [refusal or failure for refusal in results]

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment before which nothing was published that the queue still has, by browsing to its first."""
        asked_ms = self._clock.now_ms()
        first: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        def found(frame: Frame) -> None:
            if not first.done():
                first.set_result(frame)

        def failed(reason: PenstockError) -> None:
            if not first.done():
                first.set_exception(reason)

        connection = await StompConnection.connect(stomp_address(self._uri), found, failed)
        try:
            connection.send("SUBSCRIBE", {"destination": destination(self._uri), "id": "browser", "browser": "true"})
            async with asyncio.timeout(ANSWER_S):
                frame = await first
        except TimeoutError:
            raise BrokerUnavailable(f"the broker did not show the first message of {self._uri.shown}") from None
        finally:
            connection.abort()
        if frame.headers.get("browser") == "end":
            return asked_ms
        return min(int(frame.headers.get("timestamp", "0")), asked_ms)

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()

    async def _send_all(self, publications: Sequence[Publication]) -> Exception | None:
        transaction = str(next(self._transactions))
        try:
            connection = await self._connected()
            connection.send("BEGIN", {"transaction": transaction})
            for publication in publications:
                headers = message_headers(self._uri, publication.group, publication.dedup_id)
                connection.send("SEND", headers | {"transaction": transaction}, publication.body)
                await connection.drain()
            await connection.confirmed(connection.request("COMMIT", {"transaction": transaction}))
        except PenstockError as error:
            return error
        return None

    async def _connected(self) -> StompConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await StompConnection.connect(stomp_address(self._uri), _no_message, _ignore_error)
            return self._connection


def _refusals(publications: Sequence[Publication]) -> "list[Exception | None]":
    refused: set[str | None] = set()
    results: list[Exception | None] = []
    for publication in publications:
        group = publication.group
        refusal = HeldBack(group) if group is not None and group in refused else _refusal(publication)
        if refusal is not None:
            refused.add(group)
        results.append(refusal)
    return results


def _refusal(publication: Publication) -> Exception | None:
    if len(publication.body) > MAX_BODY_BYTES:
        return InvalidPublication(
            f"a message has {len(publication.body)} bytes; a consumer accepts {MAX_BODY_BYTES} at most"
        )
    if len((publication.group or "").encode()) > MAX_GROUP_BYTES:
        return InvalidPublication(f"a group is longer than the {MAX_GROUP_BYTES} bytes that a STOMP header carries")
    if "\0" in f"{publication.group}{publication.dedup_id}":
        return InvalidPublication("a group or a deduplication id contains a NUL character, which STOMP cannot carry")
    return None


def _no_message(_frame: Frame) -> None:
    pass


def _ignore_error(_reason: PenstockError) -> None:
    """Do nothing: a lost connection makes pending publications fail, and the next one reconnects."""

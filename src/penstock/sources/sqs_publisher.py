"""The publisher's end of an SQS queue: batches of ten across groups and calls, several at once."""

import asyncio
import re
from collections.abc import Sequence
from hashlib import sha256

from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB
from penstock.domain.pointer import DEFAULT_GROUP
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.sources.errors import HeldBack, InvalidPublication
from penstock.sources.port import Publication
from penstock.sources.sqs_client import MAX_BATCH, SqsClient, failure
from penstock.sources.sqs_model import GROUP_ATTRIBUTE, AttributeValue, SendEntry
from penstock.sources.sqs_outbox import Outbox, Parcel
from penstock.sources.uri import SqsUri

_BATCHES_AT_ONCE = 8
# A Penstock server writes what comes together in one commit, so that more at once is less work.
_BATCHES_AT_ONCE_TO_PENSTOCK = 24
_MAX_BATCH_BYTES = MIB
_IDENTIFIER = re.compile("[!-~]{1,128}")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Only a Penstock server has it. It takes the messages of a group in one batch together, or none of them.
_PENSTOCK_ATTRIBUTE = "PartitionCount"


class SqsPublisher:
    """Sends messages; within a group nothing is sent before what stands before it is in."""

    def __init__(self, uri: SqsUri, *, clock: Clock | None = None) -> None:
        self._fifo = uri.fifo
        self._clock = clock or SystemClock()
        self._client = SqsClient(uri, self._clock)
        self._ids = process_ids()
        self._outbox = Outbox(MAX_BATCH, _MAX_BATCH_BYTES)
        self._largest_bytes = _MAX_BATCH_BYTES
        self._batches_at_once = _BATCHES_AT_ONCE
        self._round: asyncio.Handle | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Ask for the queue's settings; Unavailable or NotFound if that cannot be."""
        attributes = await self._client.open()
        self._largest_bytes = int(attributes.get("MaximumMessageSize", _MAX_BATCH_BYTES))
        is_penstock = _PENSTOCK_ATTRIBUTE in attributes
        self._outbox.together = is_penstock
        self._batches_at_once = _BATCHES_AT_ONCE_TO_PENSTOCK if is_penstock else _BATCHES_AT_ONCE

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, in order; per message None, or why it is not in."""
        if not publications:
            return []
        call = _Call(len(publications))
        self._give_all(publications, call)
        await call.done
        return call.outcomes

    async def close(self) -> None:
        """Finish what was given, and hang up."""
        self._send_more()
        while self._under_way:
            await asyncio.wait(self._under_way)
        self._client.close()

    def _give_all(self, publications: Sequence[Publication], call: "_Call") -> None:
        refused: set[str] = set()
        for place, publication in enumerate(publications):
            group = publication.group
            try:
                if group in refused:
                    raise HeldBack(group)
                entry = self._entry(publication)
            except PenstockError as error:
                call.tell(place, error)
                if group is not None:
                    refused.add(group)
            else:
                self._outbox.add(Parcel(group, entry, len(publication.body), call, place))
        # In the loop's next round, so that calls of one moment share batches.
        if self._round is None:
            self._round = asyncio.get_running_loop().call_soon(self._send_more)

    def _entry(self, publication: Publication) -> SendEntry:
        """The message on the wire; InvalidPublication if SQS cannot carry it."""
        entry = SendEntry("", _text(publication.body, self._largest_bytes))
        group = publication.group
        if self._fifo:
            entry.message_group_id = DEFAULT_GROUP if group is None else _identifier(group)
            entry.message_deduplication_id = _identifier(
                publication.dedup_id or self._ids.next_id(self._clock.now_ms())
            )
        if group is not None and entry.message_group_id != group:
            entry.message_attributes = {GROUP_ATTRIBUTE: AttributeValue(string_value=group)}
        return entry

    def _send_more(self) -> None:
        self._round = None
        while self._outbox and len(self._under_way) < self._batches_at_once:
            task = asyncio.get_running_loop().create_task(self._send(self._outbox.next_batch()))
            self._under_way.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._send_more()

    async def _send(self, batch: list[Parcel]) -> None:
        for place, parcel in enumerate(batch):
            parcel.entry.id = str(place)
        errors: list[Exception | None]
        try:
            failed = {int(entry.id): entry for entry in await self._client.send([parcel.entry for parcel in batch])}
            errors = [failure(failed[place]) if place in failed else None for place in range(len(batch))]
        except PenstockError as error:
            errors = [error] * len(batch)
        self._outbox.ended(batch, errors)


class _Call:
    """What became of the messages of one call. One future for all of them: one each took as long as to make them."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Exception | None] = [None] * count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def tell(self, place: int, error: Exception | None) -> None:
        """One of its messages is in, or why it is not."""
        self.outcomes[place] = error
        self._left -= 1
        # The caller may have been cancelled, and the future with it.
        if not self._left and not self.done.done():
            self.done.set_result(None)


def _text(body: bytes, largest_bytes: int) -> str:
    if not body:
        raise InvalidPublication("the body is empty, and SQS carries no empty message; give it a body")
    if len(body) > largest_bytes:
        raise InvalidPublication(f"the body is {len(body)} bytes, and the queue takes {largest_bytes}; send less")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidPublication(f"the body is not UTF-8 (byte {error.start}), and SQS carries only text") from None
    # The usual kind is known at a glance.
    if not (text.isascii() and text.isprintable()) and (found := _FORBIDDEN.search(text)):
        raise InvalidPublication(f"the body holds the character {found[0]!r}, which SQS does not carry; escape it")
    return text


def _identifier(text: str) -> str:
    """The text if SQS takes it as an id: 1 to 128 visible ASCII characters; else its hash, which stands for it."""
    return text if _IDENTIFIER.fullmatch(text) else "~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""A lean asyncio client of one SQS queue: the actions of a consumer and a publisher, their errors as Penstock's.

What goes over the wire to SQS and back, as far as a consumer and a publisher need it.

How an SQS queue is polled; the numbers are ROUTER-SQS-1's.
"""

import os
import ssl
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from penstock.delivery import Answer, AnyAddress, DeliveryFailed, HttpClient, Target, own_part_settings, parse_target
from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB
from penstock.edge.clock import Clock
from penstock.queues.errors import BrokerQueueNotFound, BrokerRefused, BrokerUnavailable, SourceClosed
from penstock.queues.sqs.http import RequestWriter, find_key, find_region
from penstock.queues.uri import SqsUri

# Carries a group that is not made of SQS's characters.
GROUP_ATTRIBUTE = "PenstockGroup"


class AttributesRequest(msgspec.Struct, rename="pascal"):
    """GetQueueAttributes."""

    queue_url: str
    attribute_names: list[str]


class AttributesAnswer(msgspec.Struct, rename="pascal"):
    """Its answer."""

    attributes: dict[str, str] = {}


class ReceiveRequest(msgspec.Struct, rename="pascal", omit_defaults=True):
    """ReceiveMessage."""

    queue_url: str
    max_number_of_messages: int
    wait_time_seconds: int
    attribute_names: list[str]
    message_attribute_names: list[str]
    visibility_timeout: int | None = None


class AttributeValue(msgspec.Struct, rename="pascal"):
    """A message attribute."""

    data_type: str = "String"
    string_value: str = ""


class SqsMessage(msgspec.Struct, rename="pascal"):
    """A message as it is handed out."""

    message_id: str
    receipt_handle: str
    body: str = ""
    attributes: dict[str, str] = {}
    message_attributes: dict[str, AttributeValue] = {}


class ReceiveAnswer(msgspec.Struct, rename="pascal"):
    """What ReceiveMessage answers."""

    messages: list[SqsMessage] = []


class DeleteEntry(msgspec.Struct, rename="pascal"):
    """One of a DeleteMessageBatch."""

    id: str
    receipt_handle: str


class VisibilityEntry(msgspec.Struct, rename="pascal"):
    """One of a ChangeMessageVisibilityBatch."""

    id: str
    receipt_handle: str
    visibility_timeout: int


class SendEntry(msgspec.Struct, rename="pascal", omit_defaults=True):
    """One of a SendMessageBatch."""

    id: str
    message_body: str
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    message_attributes: dict[str, AttributeValue] | None = None


class BatchRequest(msgspec.Struct, rename="pascal"):
    """Any of the batches."""

    queue_url: str
    entries: list[DeleteEntry] | list[VisibilityEntry] | list[SendEntry]


class FailedEntry(msgspec.Struct, rename="pascal"):
    """Why one of a batch failed."""

    id: str
    code: str = ""
    message: str = ""
    sender_fault: bool = False

    @property
    def kind(self) -> str:
        """The code without the namespace that older codes have."""
        return self.code.rpartition(".")[2]


class BatchAnswer(msgspec.Struct, rename="pascal"):
    """What a batch answers, as far as it matters: all others succeeded."""

    failed: list[FailedEntry] = []


class ErrorAnswer(msgspec.Struct):
    """What is answered with a status other than 200."""

    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)


class SqsPolling(msgspec.Struct, frozen=True):
    """Settings of every poll of SQS queues."""

    most: int = 10
    wait_s: int = 20
    # Of any call, so longer than a poll waits.
    timeout_s: float = 25.0


MAX_BATCH = 10
# Ten messages of a server that allows 1 MiB, as JSON writes them at worst.
MAX_ANSWER_BYTES = 64 * MIB

_MISSING = {"QueueDoesNotExist", "NonExistentQueue", "ResourceNotFoundException"}
_BUSY = {"Throttling", "ThrottlingException", "RequestThrottled", "OverLimit", "ServiceUnavailable", "InternalFailure"}

_encode = msgspec.json.Encoder().encode
_decode_attributes = msgspec.json.Decoder(AttributesAnswer)
_decode_received = msgspec.json.Decoder(ReceiveAnswer)
_decode_batch = msgspec.json.Decoder(BatchAnswer)

A = TypeVar("A")


class SqsClient:
    """Asks for actions on one queue, any number at once."""

    def __init__(self, uri: SqsUri, clock: Clock, polling: SqsPolling | None = None) -> None:
        self._polling = polling or SqsPolling()
        self._uri = uri
        self._queue_url = uri.queue_url
        self._clock = clock
        self._target = _target(uri)
        self._writer = self._new_writer()
        self._http: HttpClient | None = None
        self._closed = False

    async def open(self) -> dict[str, str]:
        """Look for the key anew, for it may have changed, and ask for all attributes of the queue."""
        self._writer = self._new_writer()
        request = AttributesRequest(self._queue_url, ["All"])
        return (await self._call("GetQueueAttributes", _encode(request), _decode_attributes)).attributes

    def receiving(self, visibility_s: int | None) -> bytes:
        """The body of a ReceiveMessage, which is always the same for one consumer."""
        names = ["MessageGroupId"]
        most, wait_s = self._polling.most, self._polling.wait_s
        return _encode(ReceiveRequest(self._queue_url, most, wait_s, names, [GROUP_ATTRIBUTE], visibility_s))

    async def receive(self, receiving: bytes) -> list[SqsMessage]:
        """Messages, waiting for some; none if the wait is over."""
        return (await self._call("ReceiveMessage", receiving, _decode_received, outlives_cancel=True)).messages

    async def delete(self, entries: list[DeleteEntry]) -> Sequence[FailedEntry]:
        """Delete up to ten messages; those that failed."""
        return await self._batch("DeleteMessageBatch", BatchRequest(self._queue_url, entries))

    async def change_visibility(self, entries: list[VisibilityEntry]) -> Sequence[FailedEntry]:
        """Move the moments up to ten messages become visible; those that failed."""
        return await self._batch("ChangeMessageVisibilityBatch", BatchRequest(self._queue_url, entries))

    async def send(self, entries: list[SendEntry]) -> Sequence[FailedEntry]:
        """Send up to ten messages; those that failed."""
        return await self._batch("SendMessageBatch", BatchRequest(self._queue_url, entries))

    def close(self) -> None:
        """Hang up the connections that are idle; the others when their answers are whole."""
        self._closed = True
        if self._http is not None:
            self._http.retire()

    def _new_writer(self) -> RequestWriter:
        return RequestWriter(self._target, find_region(self._uri.region), find_key())

    def _new_http(self) -> HttpClient:
        tls = None
        if self._uri.secure:
            tls = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
        settings = own_part_settings(self._polling.timeout_s, MAX_ANSWER_BYTES)
        self._http = HttpClient(AnyAddress(), settings, tls)
        return self._http

    async def _batch(self, action: str, request: BatchRequest) -> Sequence[FailedEntry]:
        return (await self._call(action, _encode(request), _decode_batch)).failed

    async def _call(
        self, action: str, body: bytes, answer: "msgspec.json.Decoder[A]", *, outlives_cancel: bool = False
    ) -> A:
        if self._closed:
            raise SourceClosed(self._target.authority)
        http = self._http or self._new_http()
        head = self._writer.head(action, body, self._clock.now_ms())
        try:
            answered = await http.send(head, body, outlives_cancel=outlives_cancel)
        except DeliveryFailed as error:
            raise BrokerUnavailable(
                f"cannot talk to {self._target.authority}: {error.message}; check that the server is up"
            ) from error
        if answered.status == 200:
            try:
                return answer.decode(answered.body or b"{}")
            except msgspec.DecodeError as error:
                raise self._strange(f"an answer to {action} that cannot be read ({error})") from error
        raise self._refusal(answered)

    def _refusal(self, answer: Answer) -> PenstockError:
        try:
            error = msgspec.json.decode(answer.body, type=ErrorAnswer)
        except msgspec.DecodeError:
            return self._strange(f"the HTTP status {answer.status}")
        kind = error.type.rpartition("#")[2].rpartition(".")[2]
        told = f"{kind or answer.status}: {error.message or error.capital_message or 'the server says no more'}"
        if kind in _MISSING:
            return BrokerQueueNotFound(f"the queue {self._queue_url} is not there; make it first ({told})")
        if answer.status >= 500 or answer.status == 429 or kind in _BUSY:
            return BrokerUnavailable(f"the server of {self._queue_url} cannot now: {told}")
        return BrokerRefused(f"the server of {self._queue_url} refused: {told}")

    def _strange(self, what: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"the server of {self._queue_url} gave {what}; check that it is an SQS endpoint")


def _target(uri: SqsUri) -> Target:
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    return parse_target(f"{'https' if uri.secure else 'http'}://{host}:{uri.port}/")


def failure(entry: FailedEntry) -> PenstockError:
    """Why one entry of a batch failed, when that is an error at all."""
    told = f"{entry.code}: {entry.message}" if entry.message else entry.code
    return BrokerRefused(told) if entry.sender_fault else BrokerUnavailable(told)

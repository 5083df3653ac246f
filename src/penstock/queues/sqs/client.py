"""An asyncio client of one SQS queue, with the actions that a consumer and a publisher need."""

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from penstock.delivery import Answer, AnyAddress, DeliveryFailed, HttpClient, Target, own_part_settings, parse_target
from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB, SECOND_MS
from penstock.edge.clock import Clock, wall_ms
from penstock.queues.errors import BrokerQueueNotFound, BrokerRefused, BrokerUnavailable, SourceClosed
from penstock.queues.sqs.actions import (
    AttributesAnswer,
    AttributesRequest,
    BatchAnswer,
    BatchRequest,
    CreateAnswer,
    CreateRequest,
    DeleteEntry,
    DeleteRequest,
    ErrorAnswer,
    FailedEntry,
    ReceiveAnswer,
    ReceiveRequest,
    SendEntry,
    SqsMessage,
    VisibilityEntry,
    WatchAnswer,
    WatchRequest,
)
from penstock.queues.sqs.request import RequestWriter, find_key, find_region
from penstock.queues.uri import SqsUri

MAX_BATCH = 10
# Ten messages of 1 MiB each, in the longest JSON encoding.
MAX_ANSWER_BYTES = 64 * MIB
# Carries a group whose characters SQS does not allow in a group id.
GROUP_ATTRIBUTE = "PenstockGroup"
# Only a Penstock server has it, and shows it to whoever asks for it; AWS refuses the request.
PENSTOCK_ATTRIBUTE = "PartitionCount"
# As CloudWatch names it, in seconds; GetQueueAttributes has it on a Penstock server, AWS refuses the request.
_OLDEST_AGE = "ApproximateAgeOfOldestMessage"
_RETENTION = "MessageRetentionPeriod"
_LONGEST_RETENTION_S = 14 * 86_400
_MISSING = {"QueueDoesNotExist", "NonExistentQueue", "ResourceNotFoundException"}
# What a queue has of the queue that it is created like. A policy names its own queue.
_INHERITED = (
    "ContentBasedDeduplication", "DeduplicationScope", "DelaySeconds", "FifoQueue", "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "MaximumMessageSize", "MessageRetentionPeriod", "PartitionCount",
    "ReceiveMessageWaitTimeSeconds", "RedrivePolicy", "SqsManagedSseEnabled", "VisibilityTimeout",
)  # fmt: skip
_MESSAGES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_BUSY = {"Throttling", "ThrottlingException", "RequestThrottled", "OverLimit", "ServiceUnavailable", "InternalFailure"}


A = TypeVar("A")


class SqsPolling(msgspec.Struct, frozen=True):
    """Settings of the polls of SQS queues; the defaults are those of ROUTER-SQS-1."""

    most: int = 10
    wait_s: int = 20
    # Applies to every call, so it must be longer than a poll.
    timeout_s: float = 25.0


_encode = msgspec.json.Encoder().encode
_decode_attributes = msgspec.json.Decoder(AttributesAnswer)
_decode_created = msgspec.json.Decoder(CreateAnswer)
_decode_nothing = msgspec.json.Decoder(dict[str, object])
_decode_received = msgspec.json.Decoder(ReceiveAnswer)
_decode_batch = msgspec.json.Decoder(BatchAnswer)
_decode_watched = msgspec.json.Decoder(WatchAnswer)


class SqsConnections:
    """The connections to one server, opened when needed and closed when the last queue that uses them is.

    Beyond `most`, requests wait for those before them.
    """

    def __init__(self, uri: SqsUri, polling: SqsPolling, most: int | None = None) -> None:
        self._uri = uri
        self._settings = own_part_settings(polling.timeout_s, MAX_ANSWER_BYTES)
        if most is not None:
            self._settings = msgspec.structs.replace(self._settings, max_connections=most)
        self._http: HttpClient | None = None
        self._users = 0

    def http(self) -> HttpClient:
        """Return the client that has the connections."""
        if self._http is None:
            tls = None
            if self._uri.secure:
                tls = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
            self._http = HttpClient(AnyAddress(), self._settings, tls)
        return self._http

    def enter(self) -> None:
        """Keep the connections until `leave`."""
        self._users += 1

    def leave(self) -> None:
        """Close idle connections, and the others when their answers are complete, if no other queue uses them."""
        self._users -= 1
        if self._users == 0 and self._http is not None:
            self._http.retire()
            self._http = None


class SqsClient:
    """Calls actions of one queue, any number at once; without connections it has some of its own.

    With a template, a queue that does not exist is created like that one.
    """

    def __init__(
        self,
        uri: SqsUri,
        clock: Clock,
        polling: SqsPolling | None = None,
        connections: SqsConnections | None = None,
        template: SqsUri | None = None,
    ) -> None:
        self._polling = polling or SqsPolling()
        self._template = template
        self._connections = connections or SqsConnections(uri, self._polling)
        self._uri = uri
        self._queue_url = uri.queue_url
        self._clock = clock
        self._target = _target(uri)
        self._writer = self._new_writer()
        self._is_using = False
        self._closed = False

    @property
    def may_create(self) -> bool:
        """Whether a queue that does not exist is created."""
        return self._template is not None

    @property
    def keeps_queue(self) -> bool:
        """Whether the queue is to exist always: its template is the queue itself."""
        return self._template == self._uri

    async def open(self) -> dict[str, str]:
        """Load the key again, as it may have changed, and return all attributes of the queue."""
        self._writer = self._new_writer()
        try:
            return await self._attributes(self._queue_url)
        except BrokerQueueNotFound:
            if self._template is None:
                raise
        await self.create()
        return await self._attributes(self._queue_url)

    async def create(self) -> None:
        """Create the queue with the settings of its template; it is not an error if it exists."""
        if self._template is None:
            raise BrokerQueueNotFound(f"the queue {self._queue_url} does not exist; create it first")
        try:
            known = await self._attributes(self._template.queue_url)
        except BrokerQueueNotFound:
            known = {}
        attributes = {name: known[name] for name in _INHERITED if known.get(name)}
        if self._uri.fifo:
            attributes["FifoQueue"] = "true"
        request = CreateRequest(self._uri.queue, attributes)
        await self._call("CreateQueue", _encode(request), _decode_created)

    async def delete_if_empty(self) -> bool:
        """Delete the queue if it has no messages; return whether it is gone."""
        try:
            if not _is_empty(await self._attributes(self._queue_url)):
                return False
            await self._call("DeleteQueue", _encode(DeleteRequest(self._queue_url)), _decode_nothing)
        except BrokerQueueNotFound:
            pass
        return True

    async def settled_before_ms(self) -> int:
        """Return a moment before which nothing was sent that the queue still has."""
        asked_ms = self._clock.now_ms()
        attributes = await self._attributes(self._queue_url, _OLDEST_AGE)
        if _is_empty(attributes):
            return asked_ms
        kept_s = attributes.get(_OLDEST_AGE) or attributes.get(_RETENTION) or _LONGEST_RETENTION_S
        # An age is cut to whole seconds.
        return asked_ms - (int(kept_s) + 1) * SECOND_MS

    async def _attributes(self, queue_url: str, name: str = PENSTOCK_ATTRIBUTE) -> dict[str, str]:
        """Return all attributes, and one that only a Penstock server has."""
        try:
            return await self._named_attributes(queue_url, "All", name)
        except BrokerRefused:
            return await self._named_attributes(queue_url, "All")

    async def _named_attributes(self, queue_url: str, *names: str) -> dict[str, str]:
        request = AttributesRequest(queue_url, list(names))
        return (await self._call("GetQueueAttributes", _encode(request), _decode_attributes)).attributes

    def receive_body(self, visibility_s: int | None, *, waits: bool = True) -> bytes:
        """Return the body of a ReceiveMessage, which is always the same for one consumer."""
        names = ["MessageGroupId"]
        most, wait_s = self._polling.most, self._polling.wait_s if waits else 0
        return _encode(ReceiveRequest(self._queue_url, most, wait_s, names, [GROUP_ATTRIBUTE], visibility_s))

    async def receive(self, body: bytes) -> list[SqsMessage]:
        """Wait for messages and return them; return none if the wait has ended."""
        return (await self._call("ReceiveMessage", body, _decode_received, outlives_cancel=True)).messages

    async def watch(self, queue_urls: list[str]) -> list[str]:
        """Wait for messages of any of several queues; return the queues to receive from."""
        body = _encode(WatchRequest(queue_urls, self._polling.wait_s))
        return (await self._send("PenstockWatchQueues", body, _decode_watched)).queue_urls

    async def delete(self, entries: list[DeleteEntry]) -> Sequence[FailedEntry]:
        """Delete up to ten messages, and return those that failed."""
        return await self._batch("DeleteMessageBatch", BatchRequest(self._queue_url, entries))

    async def change_visibility(self, entries: list[VisibilityEntry]) -> Sequence[FailedEntry]:
        """Change the visibility of up to ten messages, and return those that failed."""
        return await self._batch("ChangeMessageVisibilityBatch", BatchRequest(self._queue_url, entries))

    async def send(self, entries: list[SendEntry]) -> Sequence[FailedEntry]:
        """Send up to ten messages, and return those that failed."""
        return await self._batch("SendMessageBatch", BatchRequest(self._queue_url, entries))

    def close(self) -> None:
        """Close idle connections, and the others when their answers are complete."""
        self._closed = True
        if self._is_using:
            self._is_using = False
            self._connections.leave()

    def _new_writer(self) -> RequestWriter:
        return RequestWriter(self._target, find_region(self._uri.region), find_key())

    async def _batch(self, action: str, request: BatchRequest) -> Sequence[FailedEntry]:
        return (await self._call(action, _encode(request), _decode_batch)).failed

    async def _call(
        self, action: str, body: bytes, answer: "msgspec.json.Decoder[A]", *, outlives_cancel: bool = False
    ) -> A:
        if self._closed:
            raise SourceClosed(self._target.authority)
        if not self._is_using:
            self._is_using = True
            self._connections.enter()
        return await self._send(action, body, answer, outlives_cancel=outlives_cancel)

    async def _send(
        self, action: str, body: bytes, answer: "msgspec.json.Decoder[A]", *, outlives_cancel: bool = False
    ) -> A:
        http = self._connections.http()
        head = self._writer.head(action, body, wall_ms(self._clock))
        try:
            answered = await http.send(head, body, outlives_cancel=outlives_cancel)
        except DeliveryFailed as error:
            raise BrokerUnavailable(
                f"cannot reach {self._target.authority}: {error.message}; check that the server is running"
            ) from error
        if answered.status == 200:
            try:
                return answer.decode(answered.body or b"{}")
            except msgspec.DecodeError as error:
                raise self._unexpected(f"an invalid answer to {action} ({error})") from error
        raise self._refusal(answered)

    def _refusal(self, answer: Answer) -> PenstockError:
        try:
            error = msgspec.json.decode(answer.body, type=ErrorAnswer)
        except msgspec.DecodeError:
            return self._unexpected(f"the HTTP status {answer.status}")
        kind = error.type.rpartition("#")[2].rpartition(".")[2]
        reason = f"{kind or answer.status}: {error.message or error.capital_message or 'no reason given'}"
        if kind in _MISSING:
            return BrokerQueueNotFound(f"the queue {self._queue_url} does not exist; create it first ({reason})")
        if answer.status >= 500 or answer.status == 429 or kind in _BUSY:
            return BrokerUnavailable(f"the server of {self._queue_url} is unavailable: {reason}")
        return BrokerRefused(f"the server of {self._queue_url} rejected the request: {reason}")

    def _unexpected(self, what: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"the server of {self._queue_url} sent {what}; check that it is an SQS endpoint")


def _is_empty(attributes: Mapping[str, str]) -> bool:
    return all(attributes.get(name, "0") == "0" for name in _MESSAGES)


def _target(uri: SqsUri) -> Target:
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    return parse_target(f"{'https' if uri.secure else 'http'}://{host}:{uri.port}/")


def failure(entry: FailedEntry) -> PenstockError:
    """Return the error of a failed entry of a batch."""
    reason = f"{entry.code}: {entry.message}" if entry.message else entry.code
    return BrokerRefused(reason) if entry.sender_fault else BrokerUnavailable(reason)

"""A small blocking client for any SQS endpoint: AWS JSON 1.0 over one kept connection, signed if there is a key.

An error of the server is raised as `Code: message`: NotFound if the queue does not exist, Unavailable if the server
is at fault or does not answer, else FailedPrecondition.
"""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from penstock.client.blocking_http import BROKEN, BlockingHttp, HttpAnswer
from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, PenstockError, Unavailable
from penstock.edge.clock import Clock, wall_ms
from penstock.sqs.admin.shapes import PeekedPage
from penstock.sqs.auth.signer import Signer
from penstock.sqs.errors import ErrorKind
from penstock.sqs.model import (
    GetQueueAttributesRequest,
    GetQueueAttributesResponse,
    GetQueueUrlRequest,
    ListQueuesRequest,
    ListQueuesResponse,
    QueueUrlResponse,
    Shape,
)
from penstock.sqs.wire.json_protocol import CONTENT_TYPE
from penstock.sqs.wire.protocol import SignedRequest

# A receive waits up to 20 seconds; a server that is silent for longer than this does not answer any more.
TIMEOUT_S = 60.0
_LIST_PAGE = 1000
_ERROR_NAMESPACES = ("com.amazonaws.sqs#", "com.amazon.coral.service#")

_MISSING = {ErrorKind.QUEUE_DOES_NOT_EXIST.name_in_json, ErrorKind.RESOURCE_NOT_FOUND.name_in_json}
_UNKNOWN = ErrorKind.UNKNOWN_OPERATION.name_in_json

A = TypeVar("A")


class SqsEndpoint(msgspec.Struct, frozen=True):
    """The address of a server."""

    url: str
    secure: bool
    host: str
    port: int | None
    host_header: str
    path: str

    @classmethod
    def parse(cls, url: str) -> "SqsEndpoint":
        """Return the endpoint of a URL; InvalidArgument if it is not one."""
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname and url.isascii():
                host_header = parts.netloc.rpartition("@")[2]
                path = parts.path.rstrip("/")
                return cls(url, parts.scheme == "https", parts.hostname, parts.port, host_header, path)
        except ValueError:
            pass
        raise InvalidArgument(f"{url!r} is not an endpoint; give a URL such as http://127.0.0.1:9324")


class _ErrorBody(msgspec.Struct):
    type: str = msgspec.field(name="__type")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)


class BlockingSqsClient:
    """Calls the actions of a server, one at a time."""

    def __init__(self, endpoint: SqsEndpoint, clock: Clock, signer: Signer | None = None) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._signer = signer
        self._http = BlockingHttp(endpoint.host, endpoint.port, secure=endpoint.secure, timeout_s=TIMEOUT_S)

    def __enter__(self) -> "BlockingSqsClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def call(self, action: str, request: Shape, answer: type[A]) -> A:
        """Call an action."""
        headers = [(b"Content-Type", CONTENT_TYPE), (b"X-Amz-Target", f"AmazonSQS.{action}".encode())]
        status, body = self._exchange("POST", self._endpoint.path or "/", "", headers, msgspec.json.encode(request))
        if status == 200:
            try:
                return msgspec.json.decode(body or b"{}", type=answer)
            except msgspec.DecodeError as error:
                raise self._strange(f"an unreadable answer to {action} ({error})") from error
        raise _refusal(status, body) or self._strange(f"the HTTP status {status}")

    def queue_url(self, name: str) -> str:
        """Return the URL of a queue, given its name or its URL."""
        if "://" in name:
            return name
        return self.call("GetQueueUrl", GetQueueUrlRequest(name), QueueUrlResponse).queue_url

    def queue_urls(self, prefix: str = "") -> Iterator[str]:
        """Return the URLs of all queues whose names begin with `prefix`."""
        token: str | None = None
        while True:
            page = self.call("ListQueues", ListQueuesRequest(prefix, token, _LIST_PAGE), ListQueuesResponse)
            yield from page.queue_urls
            token = page.next_token
            if not token:
                return

    def attributes(self, queue_url: str, *names: str) -> dict[str, str]:
        """Return the named attributes of a queue, or all of them."""
        request = GetQueueAttributesRequest(queue_url, list(names) or ["All"])
        return self.call("GetQueueAttributes", request, GetQueueAttributesResponse).attributes

    def peek(self, name: str, limit: int, cursor: str | None = None) -> PeekedPage:
        """Return messages of a queue without receiving them. Only a Penstock server can do this."""
        query = {"limit": str(limit)} | ({"cursor": cursor} if cursor is not None else {})
        return self.admin("GET", f"queues/{quote(name, safe='')}/messages", PeekedPage, query)

    def admin(
        self, method: str, path: str, answer: type[A], query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> A:
        """Call an admin endpoint. Only a Penstock server has them."""
        status, answered = self._exchange(
            method, f"{self._endpoint.path}/admin/{path}", urlencode(query or {}), [], body
        )
        if status == 200:
            try:
                return msgspec.json.decode(answered, type=answer)
            except msgspec.DecodeError:
                pass
        elif refusal := _refusal(status, answered, of_admin=True):
            raise refusal
        raise FailedPrecondition(
            f"{self._endpoint.url} is not a Penstock server, and only Penstock servers can show a queue"
        )

    def _exchange(
        self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> HttpAnswer:
        host = (b"Host", self._endpoint.host_header.encode())
        request = SignedRequest(method, path.encode(), query.encode(), [host, *headers], body)
        if self._signer is not None:
            request = self._signer.signed(request, wall_ms(self._clock))
        sent_headers = {name.decode(): value.decode() for name, value in request.headers}
        try:
            return self._http.send(method, f"{path}?{query}" if query else path, body or None, sent_headers)
        except ConnectionRefusedError as error:
            raise Unavailable(
                f"no server answers at {self._endpoint.url}; start one with `penstock serve sqs`, "
                "or name another with --endpoint URL"
            ) from error
        except BROKEN as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unavailable(f"cannot talk to {self._endpoint.url}: {reason}; check the endpoint") from error

    def _strange(self, what: str) -> Unavailable:
        return Unavailable(f"{self._endpoint.url} gave {what}; check that it is an SQS endpoint")


def _refusal(status: int, body: bytes, *, of_admin: bool = False) -> PenstockError | None:
    """Return the error that a body describes; None if it describes none, or one that no admin endpoint of ours has."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.DecodeError:
        return None
    kind = error.type.rpartition("#")[2]
    if of_admin and (kind == _UNKNOWN or not error.type.startswith(_ERROR_NAMESPACES)):
        return None
    message = f"{kind}: {error.message or error.capital_message or 'the server gives no reason'}"
    if kind in _MISSING:
        return NotFound(message)
    return Unavailable(message) if status >= 500 else FailedPrecondition(message)

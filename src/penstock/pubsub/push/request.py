"""The HTTP request that posts a message to a push endpoint, wrapped in JSON or unwrapped."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from google.pubsub_v1 import types

from penstock.delivery import Headers, RequestHead, head_with
from penstock.domain.message import Message
from penstock.engine import Entry
from penstock.pubsub.wire import has

_USER_AGENT = ("user-agent", "penstock")
_WRAPPED_HEADERS: Headers = (_USER_AGENT, ("content-type", "application/json"))
_PREFIX = "x-goog-pubsub-"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
# Headers that frame the request or belong to the connection: a publisher must not set them.
_RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


class _Wrapped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message in Google's JSON, which has two names for some fields."""

    attributes: Mapping[str, str] = {}
    data: bytes = b""
    message_id: str
    id: str = msgspec.field(name="messageId")
    ordering_key: str = msgspec.field(name="orderingKey", default="")
    publish_time: str
    published: str = msgspec.field(name="publishTime")


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    message: _Wrapped
    subscription: str
    delivery_attempt: int = msgspec.field(name="deliveryAttempt", default=0)


_encode = msgspec.json.Encoder().encode


class PushFormat:
    """How the messages of one subscription are posted; raises Undeliverable if its endpoint is not a valid URL."""

    def __init__(self, subscription_name: str, push: types.PushConfig) -> None:
        self._subscription_name = subscription_name
        self._url = push.push_endpoint
        self._bare = has(push, "no_wrapper")
        self._writes_metadata = self._bare and push.no_wrapper.write_metadata
        self._head = head_with(self._url, (_USER_AGENT,) if self._bare else _WRAPPED_HEADERS)

    @property
    def endpoint(self) -> str:
        """The endpoint in the form for logs."""
        return self._head.target.endpoint

    def request(self, entry: Entry, *, counts_attempts: bool) -> tuple[RequestHead, bytes]:
        """Return the head and the body of the request for a delivery."""
        message = entry.message
        if not self._bare:
            return self._head, self._wrapped(message, entry.receive_count if counts_attempts else 0)
        if not self._writes_metadata:
            return self._head, message.body
        return head_with(self._url, (_USER_AGENT, *self._metadata(message).items())), message.body

    def _wrapped(self, message: Message, delivery_attempt: int) -> bytes:
        published = _rfc3339(message.sent_ms)
        wrapped = _Wrapped(
            message_id=message.id,
            id=message.id,
            publish_time=published,
            published=published,
            attributes=_attributes(message),
            data=message.body,
            ordering_key=message.group,
        )
        return _encode(_Envelope(wrapped, self._subscription_name, delivery_attempt))

    def _metadata(self, message: Message) -> dict[str, str]:
        """Return attributes as headers where possible; those of Pub/Sub take precedence."""
        named = ((key.lower(), value) for key, value in _attributes(message).items())
        headers = {name: value for name, value in named if name not in _RESERVED_HEADERS and _fits_header(name, value)}
        headers[f"{_PREFIX}subscription-name"] = self._subscription_name
        headers[f"{_PREFIX}message-id"] = message.id
        headers[f"{_PREFIX}publish-time"] = _rfc3339(message.sent_ms)
        if message.group and _HEADER_VALUE.fullmatch(message.group):
            headers[f"{_PREFIX}ordering-key"] = message.group
        return headers


def _fits_header(name: str, value: str) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None and _HEADER_VALUE.fullmatch(value) is not None


def _attributes(message: Message) -> dict[str, str]:
    return {**message.attributes, **message.notes}  # type: ignore[dict-item]  # the broker stores only strings


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Queue URIs: the broker and the queue. The form for display never contains a password."""

import os
import re
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

import msgspec

from penstock.queues.errors import InvalidQueueUri

NATS_PORT = 4222
STOMP_PORT = 61613
FIFO_SUFFIX = ".fifo"
ENDPOINT_OVERRIDE = "SQS_ENDPOINT_OVERRIDE"

_AWS_HOST = re.compile(r"(?:sqs|queue)\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?|([a-z0-9-]+)\.queue\.amazonaws\.com")
_FORMS = (
    "https://sqs.<region>.amazonaws.com/<account>/<queue>, nats://host:port/stream/consumer, "
    "stomp://host:port/queue/name or sqlite:///path?queue=name"
)


class Login(msgspec.Struct, frozen=True):
    """A user and a password, which `repr` does not show."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


class SqsUri(msgspec.Struct, frozen=True):
    """An SQS queue URL, and the address of its server."""

    queue_url: str
    queue: str
    host: str
    port: int
    secure: bool
    # None if the URL does not contain it.
    region: str | None

    @property
    def fifo(self) -> bool:
        """Whether groups are kept in order, which SQS derives from the name."""
        return self.queue.endswith(FIFO_SUFFIX)

    @property
    def shown(self) -> str:
        """The URI for display, without credentials."""
        return self.queue_url


class NatsUri(msgspec.Struct, frozen=True):
    """A durable consumer of a JetStream stream."""

    host: str
    port: int
    stream: str
    consumer: str
    login: Login | None = None

    @property
    def shown(self) -> str:
        """The URI for display, without credentials."""
        return f"nats://{_bracketed(self.host)}:{self.port}/{quote(self.stream)}/{quote(self.consumer)}"


class StompUri(msgspec.Struct, frozen=True):
    """A queue of a broker that speaks STOMP."""

    host: str
    port: int
    queue: str
    login: Login | None = None

    @property
    def shown(self) -> str:
        """The URI for display, without credentials."""
        return f"stomp://{_bracketed(self.host)}:{self.port}/queue/{quote(self.queue)}"


class EmbeddedUri(msgspec.Struct, frozen=True):
    """A queue in an SQLite file."""

    path: str
    queue: str

    @property
    def shown(self) -> str:
        """The URI for display, without credentials."""
        return f"sqlite://{quote(self.path)}?queue={quote(self.queue, safe='')}"


QueueUri = SqsUri | NatsUri | StompUri | EmbeddedUri


def parse_uri(uri: str, endpoint_override: str | None = None) -> QueueUri:
    """Parse a queue URI; `endpoint_override` replaces the host of an SQS queue URL."""
    try:
        parts = urlsplit(uri)
        match parts.scheme:
            case "http" | "https":
                return _sqs(uri, parts, endpoint_override)
            case "nats":
                return _nats(parts)
            case "stomp":
                return _stomp(parts)
            case "sqlite":
                return _embedded(parts)
    except ValueError:
        pass
    raise InvalidQueueUri(f"{_masked(uri)!r} is not a queue URI; give {_FORMS}")


def queue_uri(uri: str) -> QueueUri:
    """Parse a queue URI, with SQS_ENDPOINT_OVERRIDE from the environment."""
    return parse_uri(uri, os.environ.get(ENDPOINT_OVERRIDE) or None)


def _sqs(uri: str, parts: SplitResult, endpoint_override: str | None) -> SqsUri:
    segments = parts.path.strip("/").split("/")
    endpoint = urlsplit(endpoint_override) if endpoint_override else parts
    if not segments[-1] or not parts.hostname or parts.username is not None or not uri.isascii():
        raise ValueError
    if endpoint.scheme not in ("http", "https") or not endpoint.hostname:
        raise InvalidQueueUri(
            f"{ENDPOINT_OVERRIDE} is {endpoint_override!r}; give a URL such as http://127.0.0.1:9324, or unset it"
        )
    secure = endpoint.scheme == "https"
    port = endpoint.port or (443 if secure else 80)
    aws = _AWS_HOST.fullmatch(parts.hostname)
    region = (aws[1] or aws[2]) if aws else None
    return SqsUri(uri, segments[-1], endpoint.hostname, port, secure, region)


def _nats(parts: SplitResult) -> NatsUri:
    stream, consumer = _segments(parts, 2)
    return NatsUri(_host(parts), parts.port or NATS_PORT, stream, consumer, _login(parts))


def _stomp(parts: SplitResult) -> StompUri:
    kind, queue = _segments(parts, 2)
    if kind != "queue":
        raise ValueError
    return StompUri(_host(parts), parts.port or STOMP_PORT, queue, _login(parts))


def _embedded(parts: SplitResult) -> EmbeddedUri:
    (queue,) = parse_qs(parts.query, strict_parsing=True).get("queue", [""])
    # With three slashes or four, the path is absolute.
    path = "/" + unquote(parts.path).lstrip("/")
    if parts.netloc or path == "/" or not queue:
        raise ValueError
    return EmbeddedUri(path, queue)


def _segments(parts: SplitResult, count: int) -> list[str]:
    segments = [unquote(segment) for segment in parts.path.lstrip("/").split("/", count - 1)]
    if len(segments) != count or not all(segments):
        raise ValueError
    return segments


def _host(parts: SplitResult) -> str:
    if not parts.hostname:
        raise ValueError
    return parts.hostname


def _login(parts: SplitResult) -> Login | None:
    if parts.username is None:
        return None
    return Login(unquote(parts.username), unquote(parts.password or ""))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _masked(uri: str) -> str:
    return re.sub(r"//[^/]*@", "//…@", uri)

"""The queue of a pool: its URI is derived from the URI of the queue that all pools could share.

    http://127.0.0.1:9324/000000000000/dispatch.fifo  ->  …/dispatch-orders.fifo
    sqlite:///data/queue.db?queue=dispatch            ->  …?queue=dispatch-orders
    stomp://host:61613/queue/dispatch                 ->  …/queue/dispatch-orders
    nats://host:4222/dispatch/router                  ->  …/dispatch-orders/router

No two pools have the same queue: a code with characters that a queue's name cannot have gets a hash.
"""

import re
from hashlib import sha256
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

from penstock.queues.errors import InvalidQueueUri
from penstock.queues.uri import FIFO_SUFFIX

_MOST_CHARS = 80
_SHOWN_CHARS = 24
_DIGEST_CHARS = 16
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_DIGESTED = re.compile(rf"-[0-9a-f]{{{_DIGEST_CHARS}}}")


def pool_queue(uri: str, pool: str) -> str:
    """Return the URI of a pool's queue."""
    parts = urlsplit(uri)
    if parts.scheme == "sqlite":
        (queue,) = parse_qs(parts.query).get("queue", [""])
        # Put together by hand: urlunsplit drops the slashes before a path without a host.
        return f"{uri.partition('?')[0]}?queue={quote(pool_queue_name(queue, pool), safe='')}"
    segments = parts.path.split("/")
    # The consumer of NATS is the last part, its stream the one before.
    place = -2 if parts.scheme == "nats" else -1
    if len(segments) < -place or not segments[place]:
        raise InvalidQueueUri("the queue's URI does not name a queue")
    segments[place] = quote(pool_queue_name(unquote(segments[place]), pool), safe="")
    return urlunsplit(parts._replace(path="/".join(segments)))


def pool_queue_name(queue: str, pool: str) -> str:
    """Return the name of a pool's queue: up to 80 characters, all allowed in SQS if those of `queue` are."""
    stem = queue.removesuffix(FIFO_SUFFIX)
    suffix = queue[len(stem) :]
    room = _MOST_CHARS - len(FIFO_SUFFIX) - 1 - len(stem)
    if room < _SHOWN_CHARS:
        stem = f"{stem[:_SHOWN_CHARS]}-{_digest(stem)}"
        room = _MOST_CHARS - len(FIFO_SUFFIX) - 1 - len(stem)
    return f"{stem}-{_slug(pool, room)}{suffix}"


def _slug(pool: str, room: int) -> str:
    if _PLAIN.fullmatch(pool) and len(pool) <= room and not _DIGESTED.fullmatch(pool[-_DIGEST_CHARS - 1 :]):
        return pool
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", pool)[: min(_SHOWN_CHARS, room - _DIGEST_CHARS - 1)]
    return f"{shown}-{_digest(pool)}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]

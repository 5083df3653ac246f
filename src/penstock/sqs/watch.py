"""PenstockWatchQueues: wait until any of several queues has messages (SQS-WATCH-1).

An action of our own beside AWS's 23, in the JSON protocol only: a router with thousands of idle queues waits with a few
requests. It answers the URLs of the queues to receive from; those that cannot be received from are among them, as the
receive then says why.
"""

import asyncio
from functools import partial

import msgspec

from penstock.sqs.actions.contents import check_wait
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import Shape
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.service import SqsService

WATCH_ACTION = "PenstockWatchQueues"
WATCH_TARGET = f"AmazonSQS.{WATCH_ACTION}".encode()
MAX_WATCHED = 1000


class WatchQueuesRequest(Shape):
    """The queues to wait for, and how long."""

    queue_urls: list[str]
    wait_time_seconds: int = 20


class WatchQueuesResponse(Shape):
    """The queues to receive from; none if the wait has ended."""

    queue_urls: list[str] = msgspec.field(default_factory=list)


_decode = msgspec.json.Decoder(WatchQueuesRequest).decode


def read_watch(body: bytes) -> WatchQueuesRequest:
    """Return the request in a body."""
    try:
        request = _decode(body)
    except msgspec.DecodeError as error:
        raise SqsError(ErrorKind.SERIALIZATION, f"The request body cannot be read: {error}.") from None
    if len(request.queue_urls) > MAX_WATCHED:
        raise invalid_parameter(f"At most {MAX_WATCHED} queues can be watched at once.")
    return request


async def watch_queues(service: SqsService, caller: SqsCaller, body: bytes) -> WatchQueuesResponse:
    """Return as soon as a queue has messages, at the latest when the wait ends."""
    request = read_watch(body)
    wait_s = check_wait(request.wait_time_seconds)
    watch = _Watch(service, caller, request.queue_urls)
    if not watch.ready and wait_s:
        await caller.while_connected(watch.wait(wait_s))
    return WatchQueuesResponse(list(watch.ready))


class _Watch:
    """A wait for several queues."""

    def __init__(self, service: SqsService, caller: SqsCaller, urls: list[str]) -> None:
        # A dictionary, as it keeps the order and a queue may become ready twice.
        self.ready: dict[str, None] = {}
        self._queues: dict[str, SqsQueue] = {}
        self._changed = asyncio.Event()
        for url in urls:
            try:
                queue = self._queues[url] = service.of_url(caller, url)
            except SqsError:
                self.ready[url] = None
                continue
            if queue.waiters.closed or queue.is_ready():
                self.ready[url] = None

    async def wait(self, wait_s: float) -> None:
        """Wait until a queue has messages, is deleted, or the server stops."""
        watchers = [(queue.waiters.watchers, partial(self._add, url)) for url, queue in self._queues.items()]
        for those_of_queue, watcher in watchers:
            those_of_queue[watcher] = None
        # What arrived since the queues were looked at, when there were no watchers yet.
        for url, queue in self._queues.items():
            if queue.waiters.closed or queue.is_ready():
                self._add(url)
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            for those_of_queue, watcher in watchers:
                those_of_queue.pop(watcher, None)

    def _add(self, url: str) -> None:
        self.ready[url] = None
        self._changed.set()

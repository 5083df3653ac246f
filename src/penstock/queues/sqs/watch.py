"""What the queues of one server share: connections, and one wait for many queues (ROUTER-ISOLATE-3).

A source joins the wait when its last poll found nothing. Sources that join at about the same time share a request,
which names up to 256 queues; when a queue in it has messages, its sources poll, and the request goes on for the others.
Receives wait themselves, too, as long as they are few: each that waits holds one of the connections that a server has
for an address. A server that does not know the action is asked seldom; its sources use long polls, as those of AWS do.
"""

import asyncio
from math import inf

from penstock.domain.errors import PenstockError
from penstock.edge.clock import Clock
from penstock.edge.pulse import LoopPulse
from penstock.queues.sqs.client import SqsClient, SqsConnections, SqsPolling
from penstock.queues.uri import SqsUri

MAX_NAMES = 256
# How long the first source to join waits for others, while some requests are under way.
GATHER_S = 0.05
# With fewer requests under way none waits: what comes for the queue in the meantime would be late.
FEW_CALLS = 4
# More requests than full ones would need: beyond this number the smallest are merged.
SPARE_CALLS = 8
# Receives that wait at once for a server that knows the action; further ones ask, and join the shared wait.
MAX_WAITING_RECEIVES = 256
# Sources that are opened at once; thousands of connections are not needed when a router starts.
MAX_OPENING = 16
# When a server that did not know the action is asked again: twice as late each time.
ASK_AGAIN_S = 60.0
MAX_ASK_AGAIN_S = 3600.0
_AWS = ".amazonaws.com"

Origin = tuple[bool, str, int]


class SharedServers:
    """The servers of a process's sources."""

    def __init__(self) -> None:
        self._servers: dict[Origin, SharedServer] = {}
        self.pulse = LoopPulse()

    def of(self, uri: SqsUri, clock: Clock, polling: SqsPolling) -> "SharedServer":
        """Return the server of a queue."""
        origin = (uri.secure, uri.host, uri.port)
        server = self._servers.get(origin)
        if server is None:
            server = self._servers[origin] = SharedServer(uri, clock, polling)
        return server


class SharedServer:
    """The connections to a server, and the wait for its queues; None if it is AWS, or polls do not wait."""

    def __init__(self, uri: SqsUri, clock: Clock, polling: SqsPolling) -> None:
        self.connections = SqsConnections(uri, polling)
        self.opening = asyncio.Semaphore(MAX_OPENING)
        self.watch: QueueWatch | None = None
        if polling.wait_s and not uri.host.endswith(_AWS):
            self.watch = QueueWatch(SqsClient(uri, clock, polling, self.connections))


class _Call:
    """A request under way."""

    __slots__ = ("task", "urls")

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.task: asyncio.Task[None] | None = None


class QueueWatch:
    """The shared wait for the queues of one server."""

    def __init__(self, client: SqsClient) -> None:
        self._client = client
        # Whether the server has answered a wait; until then an error may mean that it is not a Penstock server.
        self._is_known = False
        self._ask_again_s = ASK_AGAIN_S
        self._unknown_until_s = -inf
        # One future for all sources of a queue; True means that it has messages, False that the wait has ended.
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._joining: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[_Call] = set()
        self.receives = 0
        """Receives that wait."""

    @property
    def has_place(self) -> bool:
        """Whether one more receive may wait by itself."""
        return self.receives < MAX_WAITING_RECEIVES or not self._is_known

    async def wait(self, url: str) -> bool:
        """Wait for messages of a queue; return False if there are none. Raise Unavailable if the server is away."""
        if not self._is_known and asyncio.get_running_loop().time() < self._unknown_until_s:
            return True
        named = self._waiting.get(url)
        if named is None:
            named = self._waiting[url] = asyncio.get_running_loop().create_future()
            self._join([url])
        return await asyncio.shield(named)

    def _join(self, urls: list[str]) -> None:
        self._joining.update(dict.fromkeys(urls))
        if self._timer is None:
            gather_s = 0.0 if len(self._calls) < FEW_CALLS else GATHER_S
            self._timer = asyncio.get_running_loop().call_later(gather_s, self._start)

    def _start(self) -> None:
        self._timer = None
        self._merge_small()
        urls = list(self._joining)
        self._joining.clear()
        for first in range(0, len(urls), MAX_NAMES):
            call = _Call(urls[first : first + MAX_NAMES])
            self._calls.add(call)
            call.task = asyncio.get_running_loop().create_task(self._run(call))

    def _merge_small(self) -> None:
        """End the smallest requests if there are too many, and take their queues into the next one."""
        excess = len(self._calls) - SPARE_CALLS - len(self._waiting) // MAX_NAMES
        if excess > 0:
            for call in sorted(self._calls, key=lambda each: len(each.urls))[:excess]:
                assert call.task is not None
                call.task.cancel()
                self._calls.discard(call)
                self._joining.update(dict.fromkeys(call.urls))

    async def _run(self, call: _Call) -> None:
        try:
            ready = await self._client.watch(call.urls)
            self._is_known = True
        except PenstockError as error:
            if self._is_known:
                self._fail(call, error)
                return
            self._put_off()
            ready = call.urls
        self._calls.discard(call)
        self._named(call.urls, ready)

    def _put_off(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._unknown_until_s:
            self._unknown_until_s = now_s + self._ask_again_s
            self._ask_again_s = min(2 * self._ask_again_s, MAX_ASK_AGAIN_S)

    def _named(self, urls: list[str], ready: list[str]) -> None:
        for url in ready or urls:
            self._end(url, bool(ready))
        if left := [url for url in urls if url in self._waiting]:
            self._join(left)

    def _end(self, url: str, has_messages: bool) -> None:
        named = self._waiting.pop(url, None)
        if named is not None and not named.done():
            named.set_result(has_messages)

    def _fail(self, call: _Call, error: PenstockError) -> None:
        self._calls.discard(call)
        for url in call.urls:
            named = self._waiting.pop(url, None)
            if named is not None and not named.done():
                named.set_exception(error)
                # Its sources may have been stopped meanwhile.
                named.exception()

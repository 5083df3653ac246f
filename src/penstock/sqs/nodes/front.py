"""Answers from the queues of all nodes: those of this one directly, the others by their owners."""

import asyncio
from collections.abc import Awaitable
from itertools import count
from urllib.parse import unquote

import msgspec

from penstock.client.types import WholeOrPageQuery
from penstock.cluster.nodes import UNREACHABLE, Node, NodeMembership
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.http.api import cursor_after, parse_query
from penstock.sqs.actions.answer import AfterCommit, Answer
from penstock.sqs.actions.contents import check_wait
from penstock.sqs.actions.receive import leases_over
from penstock.sqs.actions.table import ACTIONS
from penstock.sqs.admin.routes import ADMIN_PREFIX, page_of_names
from penstock.sqs.admin.shapes import QueueSummaries
from penstock.sqs.auth.caller import Hop, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.keys import QueueKeys
from penstock.sqs.metrics import SqsMetrics
from penstock.sqs.model import (
    RESPONSES,
    ListQueuesRequest,
    ListQueuesResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Shape,
)
from penstock.sqs.names import page, token_after
from penstock.sqs.nodes.between import read_shard_request
from penstock.sqs.nodes.hop import Hops
from penstock.sqs.nodes.owners import Owners, ServedQueues, error_of
from penstock.sqs.nodes.shards import ShardMap
from penstock.sqs.service import ServiceSettings
from penstock.sqs.watch import WATCH_TARGET, WatchQueuesRequest, WatchQueuesResponse, read_watch, watch_queues

# So short that a receiver notices a change of the owner soon.
_WATCH_S = 5
_RECEIVE = "ReceiveMessage"
# What must not be done twice; a client that gets no answer decides itself whether to repeat it.
_ONCE = frozenset({"SendMessage", "SendMessageBatch", "StartMessageMoveTask", "DeleteQueue", "PurgeQueue"})
_encode = msgspec.json.Encoder().encode


class _ReceivedAtOwner(ReceiveMessageResponse):
    """What an owner answers to a receive of another node: it never waits, but says how long the client would.

    The other node passes messages on only as long as they are leased for certain.
    """

    wait_s: int = 0
    lease_s: int = 0


_decode_received = msgspec.json.Decoder(_ReceivedAtOwner).decode
_DECODE = {action: msgspec.json.Decoder(shape).decode for action, shape in RESPONSES.items()}
_decode_watch = msgspec.json.Decoder(WatchQueuesResponse).decode
_decode_summaries = msgspec.json.Decoder(QueueSummaries).decode


class NodeFront(QueueKeys):
    """The requests of a node's clients, and those that other nodes pass on."""

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Clock,
        ids: TsidFactory,
        membership: NodeMembership,
        owners: Owners,
        hops: Hops,
        shards: ShardMap,
    ) -> None:
        super().__init__(settings.home, settings.scopes)
        self.settings = settings
        self._shards = shards
        self.clock = clock
        self.metrics = SqsMetrics()
        self._membership = membership
        self._owners = owners
        self._hops = hops
        self._request_head = f"{ids.next_value(clock.now_ms()) & 0xFFFFFFFF:08x}-0000-4000-8000"
        self._requests = count(1)
        self._stopping = False
        self.is_hop = hops.is_hop
        self.caller_of_hop = hops.caller

    def new_request_id(self) -> str:
        """Return the id of the next request."""
        return f"{self._request_head}-{next(self._requests):012x}"

    def require_owned(self) -> None:
        """Do nothing: whether this node owns the queue of a request is asked for each of them."""

    def stop_waiting(self) -> None:
        """Answer the receivers that wait for messages of other nodes, now and from now on."""
        self._stopping = True
        self._owners.end_calls()

    # AWS's actions

    def act(self, action: str, caller: SqsCaller, request: Shape) -> Answer:
        """Answer one of AWS's actions: here if this node owns the queue's shard, else by its owner."""
        if caller.hop is not None:
            return self._act_for_node(self._served(caller.hop), action, caller, request)
        if isinstance(request, ListQueuesRequest) and len(self._shards.all) > 1:
            return caller.while_connected(self._list_queues(caller, request))
        shard = self._shards.of_request(self, caller, request)
        served = self._owners.here(shard)
        if served is not None:
            return ACTIONS[action](served.service, caller, request)
        if isinstance(request, ReceiveMessageRequest):
            return caller.while_connected(self._receive(shard, caller, request))
        # Whether the client is still there matters only for what waits; watching it costs as much as the request.
        return self._act_elsewhere(shard, action, caller, request)

    def _served(self, hop: Hop) -> ServedQueues:
        served = self._owners.here(hop.shard)
        if served is None:
            raise _not_owner()
        return served

    def _act_for_node(self, served: ServedQueues, action: str, caller: SqsCaller, request: Shape) -> Answer:
        if isinstance(request, ReceiveMessageRequest):
            return _receive_now(served, caller, request)
        return ACTIONS[action](served.service, caller, request)

    async def _act_elsewhere(self, shard: str, action: str, caller: SqsCaller, request: Shape) -> Shape:
        repeatable = action not in _ONCE
        body = caller.json or _encode(request)
        target = f"AmazonSQS.{action}".encode()

        async def here(served: ServedQueues) -> Shape:
            return await _settled(ACTIONS[action](served.service, caller, request))

        async def ask(owner: Node) -> Shape:
            answer = await self._owners.ask(owner, Hop(shard), caller, body=body, target=target, repeatable=repeatable)
            if answer.status != 200:
                raise error_of(answer)
            return _DECODE[action](answer.body or b"{}")

        return await self._owners.call(shard, here, ask, repeatable=repeatable)

    async def _list_queues(self, caller: SqsCaller, request: ListQueuesRequest) -> ListQueuesResponse:
        """Merge the pages of all shards, which have the same order."""
        answers = await asyncio.gather(
            *(self._act_elsewhere(shard, "ListQueues", caller, request) for shard in self._shards.all)
        )
        pages = [answer for answer in answers if isinstance(answer, ListQueuesResponse)]
        keys = sorted(self.key_of_url(caller, url) for each in pages for url in each.queue_urls)
        chosen, token = page(keys, request.max_results, None)
        if token is None and any(each.next_token for each in pages):
            token = token_after(chosen[-1])
        return ListQueuesResponse([self.url_of(caller, key) for key in chosen], token)

    async def act_between(self, caller: SqsCaller, body: bytes) -> Shape:
        """Answer what a shard of another node asks one of this node."""
        if caller.hop is None:
            raise SqsError(ErrorKind.ACCESS_DENIED, "Only nodes of this cluster may ask this.")
        return await self._served(caller.hop).service.transfers.answer(read_shard_request(body))

    # Receives: a call of another node never waits while it may lease, so nothing is leased that no one reads.

    async def _receive(self, shard: str, caller: SqsCaller, request: ReceiveMessageRequest) -> ReceiveMessageResponse:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        response, wait_s = await self._receive_once(shard, caller, request, woken=False)
        while not response.messages and not self._stopping:
            left_s = wait_s - (loop.time() - started_s)
            if left_s <= 0:
                break
            if await self._wait_in_shard(shard, caller, [request.queue_url], left_s):
                response, _ = await self._receive_once(shard, caller, request, woken=True)
        return response

    async def _receive_once(
        self, shard: str, caller: SqsCaller, request: ReceiveMessageRequest, *, woken: bool
    ) -> tuple[ReceiveMessageResponse, int]:
        body = _encode(request)

        async def here(served: ServedQueues) -> tuple[ReceiveMessageResponse, int]:
            return _response_and_wait(await _receive_now(served, caller, request))

        async def ask(owner: Node) -> tuple[ReceiveMessageResponse, int]:
            target, loop = f"AmazonSQS.{_RECEIVE}".encode(), asyncio.get_running_loop()
            asked_s = loop.time()
            answer = await self._owners.ask(owner, Hop(shard, woken), caller, body=body, target=target)
            if answer.status != 200:
                raise error_of(answer)
            received = _decode_received(answer.body)
            if received.messages and 0 < received.lease_s <= loop.time() - asked_s:
                raise leases_over()
            return _response_and_wait(received)

        return await self._owners.call(shard, here, ask, repeatable=True)

    # Waits, which lease nothing

    async def _wait_for_messages(self, caller: SqsCaller, urls: list[str], left_s: float) -> list[str]:
        """Return those of the queues that may have messages, or none after some seconds."""
        by_shard: dict[str, list[str]] = {}
        for url in urls:
            try:
                by_shard.setdefault(self._shards.of_key(self.key_of_url(caller, url)), []).append(url)
            except SqsError:
                # The receive says what is wrong with it.
                return [url]
        waits = [
            asyncio.ensure_future(self._wait_in_shard(shard, caller, its_urls, left_s))
            for shard, its_urls in by_shard.items()
        ]
        try:
            for wait in asyncio.as_completed(waits):
                await wait
                if found := [url for each in waits if each.done() for url in each.result()]:
                    return found
        finally:
            for wait in waits:
                wait.cancel()
        return []

    async def _wait_in_shard(self, shard: str, caller: SqsCaller, urls: list[str], left_s: float) -> list[str]:
        body = _encode(WatchQueuesRequest(urls, min(_WATCH_S, max(1, round(left_s)))))

        async def here(served: ServedQueues) -> list[str]:
            return (await watch_queues(served.service, caller, body)).queue_urls

        async def ask(owner: Node) -> list[str]:
            try:
                answer = await self._owners.ask(owner, Hop(shard), caller, body=body, target=WATCH_TARGET)
            except TimeoutError:
                if self._stopping:
                    return []
                raise
            if answer.status != 200:
                raise error_of(answer)
            return _decode_watch(answer.body).queue_urls

        return await self._owners.call(shard, here, ask, repeatable=True)

    def watch(self, caller: SqsCaller, body: bytes) -> Awaitable[Shape]:
        """Wait until a queue of several has messages."""
        if caller.hop is not None:
            return watch_queues(self._served(caller.hop).service, caller, body)
        return caller.while_connected(self._watch(caller, read_watch(body)))

    async def _watch(self, caller: SqsCaller, request: WatchQueuesRequest) -> WatchQueuesResponse:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + check_wait(request.wait_time_seconds)
        while not self._stopping:
            ready = await self._wait_for_messages(caller, request.queue_urls, until_s - loop.time())
            if ready or loop.time() >= until_s:
                return WatchQueuesResponse(ready)
        return WatchQueuesResponse()

    # Everything else

    async def _describe(self) -> tuple[int, bytes]:
        try:
            return 200, _encode(await self._membership.describe())
        except UNREACHABLE:
            return 503, b'{"error":"the database of the cluster does not answer"}'

    async def administer(self, caller: SqsCaller, method: str, target: bytes, body: bytes) -> tuple[int, bytes]:
        """Answer a request to the admin endpoints by the owner, or describe the cluster."""
        path, _, query = target.partition(b"?")
        if path == b"/cluster":
            return await self._describe()
        if caller.hop is not None:
            return await self._served(caller.hop).admin.answer(method, path, query, body)
        one = path.removeprefix(f"{ADMIN_PREFIX}/".encode())
        if path.rstrip(b"/") != ADMIN_PREFIX.encode():
            shard = self._shards.of_key(unquote(one.partition(b"/")[0].decode("latin-1")))
            return await self._administer_in(shard, caller, method, target, body)
        answers = await asyncio.gather(
            *(self._administer_in(shard, caller, method, target, body) for shard in self._shards.all)
        )
        if method != "GET" or any(status != 200 for status, _ in answers):
            return max(answers, key=lambda each: each[0])
        return 200, _merged_list([content for _, content in answers], query)

    async def _administer_in(
        self, shard: str, caller: SqsCaller, method: str, target: bytes, body: bytes
    ) -> tuple[int, bytes]:
        path, _, query = target.partition(b"?")

        async def here(served: ServedQueues) -> tuple[int, bytes]:
            return await served.admin.answer(method, path, query, body)

        async def ask(owner: Node) -> tuple[int, bytes]:
            answer = await self._owners.ask(owner, Hop(shard), caller, body=body, method=method, path=target)
            return answer.status, answer.body

        return await self._owners.call(shard, here, ask, repeatable=method == "GET")


def _merged_list(contents: list[bytes], query: bytes) -> bytes:
    """Merge the pages of all shards, which have the same order."""
    pages = [_decode_summaries(content) for content in contents]
    queues = {queue.name: queue for each in pages for queue in each.queues}
    names, cursor = page_of_names(sorted(queues), parse_query(query, WholeOrPageQuery))
    if names and any(each.cursor for each in pages):
        cursor = cursor_after((names[-1],))
    return _encode(QueueSummaries([queues[name] for name in names], cursor))


async def _receive_now(served: ServedQueues, caller: SqsCaller, request: ReceiveMessageRequest) -> _ReceivedAtOwner:
    """Receive without waiting, and say how long the client wants to wait."""
    queue = served.service.of_url(caller, request.queue_url)
    wait_s, lease_s = request.wait_time_seconds, request.visibility_timeout
    if wait_s is None:
        wait_s = queue.attributes.receive_message_wait_time_seconds
    if lease_s is None:
        lease_s = queue.attributes.visibility_timeout
    check_wait(wait_s)
    at_once = msgspec.structs.replace(request, wait_time_seconds=0)
    response = await _settled(ACTIONS[_RECEIVE](served.service, caller, at_once))
    assert isinstance(response, ReceiveMessageResponse)
    return _ReceivedAtOwner(response.messages, wait_s, lease_s)


def _response_and_wait(received: _ReceivedAtOwner) -> tuple[ReceiveMessageResponse, int]:
    return ReceiveMessageResponse(received.messages), received.wait_s


async def _settled(answer: Answer) -> Shape:
    if isinstance(answer, AfterCommit):
        return await answer.wait()
    return answer if isinstance(answer, Shape) else await answer


def _not_owner() -> SqsError:
    return SqsError(ErrorKind.NOT_OWNER, "This node does not own the queue.")

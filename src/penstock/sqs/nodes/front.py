"""Answers from the queues of all nodes: those of this one directly, the others by their owners."""

from collections.abc import Awaitable
from itertools import count

import msgspec

from penstock.cluster.nodes import UNREACHABLE, Node, NodeMembership
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock, stopwatch
from penstock.sqs.actions.answer import AfterCommit, Answer
from penstock.sqs.actions.contents import check_wait
from penstock.sqs.actions.table import ACTIONS
from penstock.sqs.auth.caller import Hop, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.metrics import SqsMetrics
from penstock.sqs.model import RESPONSES, ReceiveMessageRequest, ReceiveMessageResponse, Shape
from penstock.sqs.nodes.hop import Hops
from penstock.sqs.nodes.owners import Owners, ServedQueues, error_of
from penstock.sqs.service import ServiceSettings
from penstock.sqs.watch import WATCH_TARGET, WatchQueuesRequest, WatchQueuesResponse, read_watch, watch_queues

SHARD = "sqs"
"""The one shard of all queues of a database."""

# So short that a receiver notices a change of the owner soon.
_WATCH_S = 5
_RECEIVE = "ReceiveMessage"
# What must not be done twice; a client that gets no answer decides itself whether to repeat it.
_ONCE = frozenset({"SendMessage", "SendMessageBatch", "StartMessageMoveTask", "DeleteQueue", "PurgeQueue"})
_encode = msgspec.json.Encoder().encode


class _ReceivedAtOwner(ReceiveMessageResponse):
    """What an owner answers to a receive of another node: it never waits, but says how long the client would."""

    wait_s: int = 0


_decode_received = msgspec.json.Decoder(_ReceivedAtOwner).decode
_DECODE = {action: msgspec.json.Decoder(shape).decode for action, shape in RESPONSES.items()}
_decode_watch = msgspec.json.Decoder(WatchQueuesResponse).decode


class NodeFront:
    """The requests of a node's clients, and those that other nodes pass on."""

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Clock,
        ids: TsidFactory,
        membership: NodeMembership,
        owners: Owners,
        hops: Hops,
    ) -> None:
        self.settings = settings
        self.home = settings.home
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
        """Answer one of AWS's actions: here if this node owns the queue, else by its owner."""
        served = self._owners.here(SHARD)
        if caller.hop is not None:
            return self._act_for_node(served, action, caller, request)
        if served is not None:
            return ACTIONS[action](served.service, caller, request)
        if isinstance(request, ReceiveMessageRequest):
            return caller.while_connected(self._receive(caller, request))
        return caller.while_connected(self._act_elsewhere(action, caller, request))

    def _act_for_node(self, served: ServedQueues | None, action: str, caller: SqsCaller, request: Shape) -> Answer:
        if served is None:
            raise _not_owner()
        if isinstance(request, ReceiveMessageRequest):
            return _receive_now(served, caller, request)
        return ACTIONS[action](served.service, caller, request)

    async def _act_elsewhere(self, action: str, caller: SqsCaller, request: Shape) -> Shape:
        repeatable = action not in _ONCE
        body = caller.json or _encode(request)
        target = f"AmazonSQS.{action}".encode()

        async def here(served: ServedQueues) -> Shape:
            return await _settled(ACTIONS[action](served.service, caller, request))

        async def ask(owner: Node) -> Shape:
            answer = await self._owners.ask(owner, Hop(SHARD), caller, body=body, target=target, repeatable=repeatable)
            if answer.status != 200:
                raise error_of(answer)
            return _DECODE[action](answer.body or b"{}")

        return await self._owners.call(SHARD, here, ask, repeatable=repeatable)

    # Receives: a call of another node never waits while it may lease, so nothing is leased that no one reads.

    async def _receive(self, caller: SqsCaller, request: ReceiveMessageRequest) -> ReceiveMessageResponse:
        started_s = stopwatch()
        response, wait_s = await self._receive_once(caller, request, woken=False)
        while not response.messages and not self._stopping:
            left_s = wait_s - (stopwatch() - started_s)
            if left_s <= 0:
                break
            if await self._wait_for_messages(caller, [request.queue_url], left_s):
                response, _ = await self._receive_once(caller, request, woken=True)
        return response

    async def _receive_once(
        self, caller: SqsCaller, request: ReceiveMessageRequest, *, woken: bool
    ) -> tuple[ReceiveMessageResponse, int]:
        body = _encode(request)

        async def here(served: ServedQueues) -> tuple[ReceiveMessageResponse, int]:
            return _response_and_wait(await _receive_now(served, caller, request))

        async def ask(owner: Node) -> tuple[ReceiveMessageResponse, int]:
            target = f"AmazonSQS.{_RECEIVE}".encode()
            answer = await self._owners.ask(owner, Hop(SHARD, woken), caller, body=body, target=target)
            if answer.status != 200:
                raise error_of(answer)
            return _response_and_wait(_decode_received(answer.body))

        return await self._owners.call(SHARD, here, ask, repeatable=True)

    async def _wait_for_messages(self, caller: SqsCaller, urls: list[str], left_s: float) -> list[str]:
        """Return those of the queues that may have messages, or none after some seconds."""
        body = _encode(WatchQueuesRequest(urls, min(_WATCH_S, max(1, round(left_s)))))

        async def here(served: ServedQueues) -> list[str]:
            return (await watch_queues(served.service, caller, body)).queue_urls

        async def ask(owner: Node) -> list[str]:
            try:
                answer = await self._owners.ask(owner, Hop(SHARD), caller, body=body, target=WATCH_TARGET)
            except TimeoutError:
                if self._stopping:
                    return []
                raise
            if answer.status != 200:
                raise error_of(answer)
            return _decode_watch(answer.body).queue_urls

        return await self._owners.call(SHARD, here, ask, repeatable=True)

    def watch(self, caller: SqsCaller, body: bytes) -> Awaitable[Shape]:
        """Wait until a queue of several has messages."""
        served = self._owners.here(SHARD)
        if caller.hop is not None and served is None:
            raise _not_owner()
        if served is not None:
            return watch_queues(served.service, caller, body)
        return caller.while_connected(self._watch(caller, read_watch(body)))

    async def _watch(self, caller: SqsCaller, request: WatchQueuesRequest) -> WatchQueuesResponse:
        until_s = stopwatch() + check_wait(request.wait_time_seconds)
        while not self._stopping:
            ready = await self._wait_for_messages(caller, request.queue_urls, until_s - stopwatch())
            if ready or stopwatch() >= until_s:
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

        async def here(served: ServedQueues) -> tuple[int, bytes]:
            return await served.admin.answer(method, path, query, body)

        async def ask(owner: Node) -> tuple[int, bytes]:
            answer = await self._owners.ask(owner, Hop(SHARD), caller, body=body, method=method, path=target)
            return answer.status, answer.body

        if caller.hop is not None:
            served = self._owners.here(SHARD)
            if served is None:
                raise _not_owner()
            return await here(served)
        return await self._owners.call(SHARD, here, ask, repeatable=method == "GET")


async def _receive_now(served: ServedQueues, caller: SqsCaller, request: ReceiveMessageRequest) -> _ReceivedAtOwner:
    """Receive without waiting, and say how long the client wants to wait."""
    queue = served.service.of_url(caller, request.queue_url)
    wait_s = queue.attributes.receive_message_wait_time_seconds
    if request.wait_time_seconds is not None:
        wait_s = check_wait(request.wait_time_seconds)
    at_once = msgspec.structs.replace(request, wait_time_seconds=0)
    response = await _settled(ACTIONS[_RECEIVE](served.service, caller, at_once))
    assert isinstance(response, ReceiveMessageResponse)
    return _ReceivedAtOwner(response.messages, wait_s)


def _response_and_wait(received: _ReceivedAtOwner) -> tuple[ReceiveMessageResponse, int]:
    return ReceiveMessageResponse(received.messages), received.wait_s


async def _settled(answer: Answer) -> Shape:
    if isinstance(answer, AfterCommit):
        return await answer.wait()
    return answer if isinstance(answer, Shape) else await answer


def _not_owner() -> SqsError:
    return SqsError(ErrorKind.NOT_OWNER, "This node does not own the queue.")

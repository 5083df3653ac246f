"""Answers calls from the topics of this node, or passes them on to the node that owns them (PUBSUB-NODE-1).

A call is passed on as bytes, with a signature of the cluster's secret, and once at most: a node that does not own the
topics refuses what another one passed on. Whatever may have been carried out is not repeated here: the call ends with
UNAVAILABLE, after which Google's clients try again, as they do with Google.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from hmac import digest as hmac_digest

import grpc  # type: ignore[import-untyped]

from penstock.cluster.nodes import Node, NodeMembership, ShardKeeper
from penstock.domain.errors import PenstockError
from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock, stopwatch, wall_ms
from penstock.pubsub.handlers import generic_handlers
from penstock.pubsub.services import PubsubServices

SHARD = "pubsub"
"""The one shard of all topics and subscriptions of a database."""
HOLD_S = 5.0
"""How long a call waits for topics without an owner."""

_HOP, _REFUSED = "x-penstock-hop", "x-penstock-not-owner"
_STREAMS = frozenset({"/google.pubsub.v1.Subscriber/StreamingPull"})
_LOOK_S = 0.25
_MOST_APART_MS = 15 * MINUTE_MS
_NO_OWNER = (grpc.StatusCode.UNAVAILABLE, "no node serves the topics now; try again")


class ServedTopics:
    """The topics and subscriptions that this node owns."""

    def __init__(
        self, services: PubsubServices, epoch: int, lost: Callable[[], str | None], require_owned: Callable[[], None]
    ) -> None:
        self.services = services
        self.epoch = epoch
        self.lost = lost
        self._require_owned = require_owned
        self._handlers = generic_handlers(services)

    def is_certain(self) -> bool:
        """Return whether no other node can own the topics, by this node's own clock."""
        try:
            self._require_owned()
        except PenstockError:
            return False
        return True

    def handler(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return what answers a call here."""
        return next(filter(None, (each.service(details) for each in self._handlers)), None)


class CallSignatures:
    """Signs calls to other nodes, and checks those of other nodes."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock

    def sign(self, method: str) -> tuple[str, str]:
        """Return the metadata that makes a call one of this node."""
        now_ms = wall_ms(self._clock)
        return _HOP, f"{now_ms}.{self._signature(now_ms, method)}"

    def is_signed(self, details: grpc.HandlerCallDetails) -> bool:
        """Return whether another node passed a call on, lately."""
        text = dict(details.invocation_metadata or ()).get(_HOP, "")
        when, _, signature = str(text).partition(".")
        if not when.isdecimal() or not compare_digest(signature, self._signature(int(when), details.method)):
            return False
        return abs(wall_ms(self._clock) - int(when)) <= _MOST_APART_MS

    def _signature(self, now_ms: int, method: str) -> str:
        return hmac_digest(self._secret, f"{now_ms} {method}".encode(), "sha256").hex()


class OwnerCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The calls of clients: answered here if this node owns the topics, else by their owner."""

    def __init__(self, membership: NodeMembership, hops: CallSignatures, options: Sequence[tuple[str, int]]) -> None:
        self._membership = membership
        self._hops = hops
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.keeper: ShardKeeper[ServedTopics] | None = None
        self.passed_on = 0
        """Calls that another node answered."""

    def here(self) -> ServedTopics | None:
        """Return the topics if this node owns them for certain."""
        served = None if self.keeper is None else self.keeper.held.get(SHARD)
        return served if served is not None and served.is_certain() else None

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return what answers a call."""
        served = self.here()
        if served is not None:
            return served.handler(details)
        if details.method in _STREAMS:
            return grpc.stream_stream_rpc_method_handler(self._stream(details.method))
        return grpc.unary_unary_rpc_method_handler(self._call(details))

    async def close(self) -> None:
        """Disconnect from the other nodes."""
        for channel in self._channels.values():
            await channel.close()

    def _call(self, details: grpc.HandlerCallDetails) -> Callable[..., Awaitable[bytes]]:
        async def call(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            until_s = stopwatch() + HOLD_S
            while (left_s := until_s - stopwatch()) > 0:
                if (served := self.here()) is not None:
                    return await _answer_here(served, details, request, context)
                owner = self._membership.view.owner_of(SHARD)
                if owner is not None and (answer := await self._ask(owner, details.method, request, context)):
                    return answer[0]
                await self._membership.changes(min(left_s, _LOOK_S))
            return await context.abort(*_NO_OWNER)  # type: ignore[no-any-return]

        return call

    async def _ask(
        self, owner: Node, method: str, request: bytes, context: grpc.aio.ServicerContext
    ) -> tuple[bytes] | None:
        """Return the owner's answer; None if it owns the topics no longer."""
        self.passed_on += 1
        call = self._channel(owner).unary_unary(method)(
            request, metadata=(self._hops.sign(method),), timeout=context.time_remaining()
        )
        try:
            async with self._while_owner(owner, call):
                return (await call,)
        except grpc.aio.AioRpcError as error:
            if _is_refusal(error):
                return None
            await _abort_as(error, context)
        except asyncio.CancelledError:
            if not call.cancelled() or context.cancelled():
                raise
            await context.abort(*_NO_OWNER)
        raise AssertionError

    def _stream(self, method: str) -> Callable[..., AsyncIterator[bytes]]:
        async def stream(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            owner = await self._next_owner()
            if owner is None:
                # Also if it is this node since: the client's next stream is answered here.
                await context.abort(*_NO_OWNER)
                return
            self.passed_on += 1
            call = self._channel(owner).stream_stream(method)(requests, metadata=(self._hops.sign(method),))
            try:
                async with self._while_owner(owner, call):
                    async for answer in call:
                        yield answer
            except grpc.aio.AioRpcError as error:
                await (context.abort(*_NO_OWNER) if _is_refusal(error) else _abort_as(error, context))
            except asyncio.CancelledError:
                if not call.cancelled() or context.cancelled():
                    raise
                await context.abort(*_NO_OWNER)
            finally:
                call.cancel()

        return stream

    async def _next_owner(self) -> Node | None:
        until_s = stopwatch() + HOLD_S
        while (left_s := until_s - stopwatch()) > 0 and self.here() is None:
            owner = self._membership.view.owner_of(SHARD)
            if owner is not None and not owner.draining:
                return owner
            await self._membership.changes(min(left_s, _LOOK_S))
        return None

    @asynccontextmanager
    async def _while_owner(self, owner: Node, call: grpc.aio.Call) -> AsyncIterator[None]:
        """End a call once another node owns the topics: this one may be paused, or cut off."""

        async def watch() -> None:
            while (now := self._membership.view.owner_of(SHARD)) is not None and now.instance == owner.instance:
                await self._membership.changes(HOLD_S)
            call.cancel()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()

    def _channel(self, owner: Node) -> grpc.aio.Channel:
        channel = self._channels.get(owner.address)
        if channel is None:
            channel = self._channels[owner.address] = grpc.aio.insecure_channel(owner.address, options=self._options)
        return channel


class HopCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The calls that other nodes pass on: answered here, or refused."""

    def __init__(self, calls: OwnerCalls, hops: CallSignatures) -> None:
        self._calls = calls
        self._hops = hops

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return what answers a call of another node."""
        if not self._hops.is_signed(details):
            return _refusing(details, grpc.StatusCode.PERMISSION_DENIED, "only nodes of this cluster may call", ())
        served = self._calls.here()
        if served is not None:
            return served.handler(details)
        return _refusing(details, *_NO_OWNER, ((_REFUSED, "1"),))


async def _answer_here(
    served: ServedTopics, details: grpc.HandlerCallDetails, request: bytes, context: grpc.aio.ServicerContext
) -> bytes:
    handler = served.handler(details)
    if handler is None:
        return await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")  # type: ignore[no-any-return]
    answer = await handler.unary_unary(handler.request_deserializer(request), context)
    return handler.response_serializer(answer)  # type: ignore[no-any-return]


def _refusing(
    details: grpc.HandlerCallDetails, code: grpc.StatusCode, message: str, trailers: tuple[tuple[str, str], ...]
) -> grpc.RpcMethodHandler:
    async def refuse(_: object, context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, message, trailers)

    if details.method in _STREAMS:
        return grpc.stream_stream_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)


def _is_refusal(error: grpc.aio.AioRpcError) -> bool:
    return _REFUSED in dict(error.trailing_metadata() or ())


async def _abort_as(error: grpc.aio.AioRpcError, context: grpc.aio.ServicerContext) -> None:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))

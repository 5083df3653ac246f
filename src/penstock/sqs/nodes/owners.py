"""Finds the owner of a shard and calls it, or waits until there is one (SQS-NODE-5)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TypeVar

from penstock.cluster import NotOwner
from penstock.cluster.nodes import Node, NodeMembership, ShardKeeper
from penstock.delivery import Answer, ConnectFailed, DeliveryFailed, HttpClient, RequestHead, head_with
from penstock.domain.errors import PenstockError
from penstock.sqs.admin.routes import AdminSurface
from penstock.sqs.auth.caller import Hop, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, refusal_of
from penstock.sqs.nodes.hop import Hops
from penstock.sqs.service import SqsService
from penstock.sqs.wire.json_protocol import CONTENT_TYPE

HOLD_S = 5.0
"""How long a request waits for a shard without an owner; then the client is asked to try again."""
HOP_S = 30.0
"""How long another node may take to answer."""
_LOOK_S = 0.25
_RETRY_AFTER_S = 1

R = TypeVar("R")


class ServedQueues:
    """The queues of a shard that this node owns."""

    def __init__(self, service: SqsService) -> None:
        self.service = service
        self.admin = AdminSurface(service)

    @property
    def epoch(self) -> int:
        """The number of this ownership."""
        return self.service.epoch

    def lost(self) -> str | None:
        """Return why the queues cannot be served any more."""
        return self.service.lost()


class Owners:
    """Calls whoever owns a shard: this node directly, another one by one signed hop."""

    def __init__(self, membership: NodeMembership, client: HttpClient, hops: Hops) -> None:
        self._membership = membership
        self._client = client
        self._hops = hops
        self._limits: dict[asyncio.Timeout, str] = {}
        self.keeper: ShardKeeper[ServedQueues] | None = None
        self.instance = ""
        self.hops_sent = 0

    def here(self, shard: str) -> ServedQueues | None:
        """Return the queues of a shard if this node owns it for certain, by its own clock."""
        served = None if self.keeper is None else self.keeper.held.get(shard)
        if served is None:
            return None
        try:
            served.service.require_owned()
        except PenstockError:
            return None
        return served

    async def call(
        self,
        shard: str,
        act_here: Callable[[ServedQueues], Awaitable[R]],
        ask: Callable[[Node], Awaitable[R]],
        *,
        repeatable: bool,
    ) -> R:
        """Act here or ask the owner; ServiceUnavailable if there is none for some seconds.

        A request that may have been carried out is only repeated if that does no harm; else its client decides.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + HOLD_S
        while True:
            served = self.here(shard)
            if served is not None:
                return await act_here(served)
            owner = self._membership.view.owner_of(shard)
            if owner is not None and owner.instance != self.instance:
                try:
                    return await ask(owner)
                except (NotOwner, ConnectFailed):
                    pass
                except (DeliveryFailed, TimeoutError):
                    if not repeatable:
                        raise _no_owner() from None
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise _no_owner()
            await self._membership.changes(min(left_s, _LOOK_S))

    async def ask(
        self,
        owner: Node,
        hop: Hop,
        caller: SqsCaller,
        *,
        body: bytes,
        target: bytes = b"",
        method: str = "POST",
        path: bytes = b"/",
        repeatable: bool = True,
    ) -> Answer:
        """Send a request to another node, until it answers or owns the shard no longer."""
        self.hops_sent += 1
        signed = self._hops.headers(hop, caller, method, path, target, body)
        head = _head(owner.address, method, path, target).with_values(signed)
        # Without a timer of its own: the client's settings limit every request, with one timer for all.
        limit = asyncio.timeout(None)
        self._limits[limit] = owner.instance
        try:
            async with limit:
                answer = await self._client.send(head, body, repeatable=repeatable)
        finally:
            del self._limits[limit]
        if answer.status == ErrorKind.NOT_OWNER.status:
            raise NotOwner(owner.name, hop.shard)
        return answer

    async def follow(self) -> None:
        """End calls of nodes that own nothing any more, such as one that is paused; never returns."""
        loop = asyncio.get_running_loop()
        while True:
            await self._membership.changes(HOP_S)
            owners = {shard.owner for shard in self._membership.view.shards}
            live = {node.instance for node in self._membership.view.nodes}
            for limit, instance in list(self._limits.items()):
                if instance not in owners or instance not in live:
                    limit.reschedule(loop.time())

    def end_calls(self) -> None:
        """End all calls of other nodes."""
        now_s = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now_s)


def error_of(answer: Answer) -> SqsError:
    """Return the error that another node answered."""
    known = refusal_of(answer.body)
    return known or SqsError(ErrorKind.INTERNAL_FAILURE, f"Another node answered with the status {answer.status}.")


def _no_owner() -> SqsError:
    return SqsError(
        ErrorKind.SERVICE_UNAVAILABLE, "No node serves this queue now; try again.", retry_after_s=_RETRY_AFTER_S
    )


@lru_cache(256)
def _head(address: str, method: str, path: bytes, target: bytes) -> RequestHead:
    headers = (("content-type", CONTENT_TYPE.decode()), ("x-amz-target", target.decode("latin-1")))
    return head_with(f"{address.rstrip('/')}{path.decode('latin-1')}", headers if target else (), method)

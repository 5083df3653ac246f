"""A served part as a node: it joins the cluster, serves its share of the shards, and hands it over when it stops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec
import psycopg

# At the start: when a shard is first taken over, an upgrade may have replaced the files.
import penstock.engine.store.postgres  # noqa: F401
from penstock.cluster.nodes.keeper import S, ShardKeeper
from penstock.cluster.nodes.membership import NodeMembership
from penstock.cluster.nodes.registry import Registry
from penstock.cluster.nodes.spread import Node
from penstock.engine import StoreFailed
from penstock.http.api import CheckResult

_LOOK_S = 0.5
_NUMBERED_NODES = 128
_JOBS = "jobs"


class NodeIdentity(msgspec.Struct, frozen=True):
    """What a node knows from the database before its parts start."""

    secret: str
    """Signs the tokens of jobs; all nodes have the same one."""
    number: int
    """Below 128, and of no other node."""


def identify(url: str, name: str) -> NodeIdentity:
    """Return the identity of a node; the first one creates what they share."""
    registry = Registry(url, _JOBS)
    try:
        return NodeIdentity(registry.create(()).hex(), registry.number(name, _NUMBERED_NODES))
    except psycopg.Error as error:
        raise StoreFailed(f"the cluster's tables cannot be used: {error}") from error
    finally:
        registry.close()


@asynccontextmanager
async def taking_part(
    membership: NodeMembership, me: Node, open_shard: Callable[[str], AbstractAsyncContextManager[S]]
) -> AsyncIterator[ShardKeeper[S]]:
    """Be a live node and serve this node's share; at the end, hand everything over and leave."""
    await membership.join(me)
    keeper = ShardKeeper(membership, me, open_shard)
    keeping = asyncio.create_task(keeper.run(), name="shard-keeper")
    try:
        yield keeper
        await membership.drain()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await membership.leave()


async def until_stop(stop: asyncio.Event, membership: NodeMembership) -> None:
    """Wait until the part is to stop, or another process has this node's name (`NodeMembership.refused`)."""
    while not stop.is_set() and membership.refused is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await stop.wait()


def renewed(membership: NodeMembership) -> CheckResult:
    """Return whether this node is ready to serve as one: cut off from the database it owns nothing for certain."""
    is_renewed = membership.is_renewed
    return CheckResult(is_renewed, "renewed" if is_renewed else "the database of the cluster does not answer")

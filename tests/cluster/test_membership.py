"""Nodes of a cluster on real PostgreSQL: shards spread over those that live, and each has one owner."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from penstock.cluster.errors import NodeNameTaken
from penstock.cluster.nodes import identify
from penstock.cluster.nodes.keeper import ShardKeeper
from penstock.cluster.nodes.membership import NodeMembership
from penstock.cluster.nodes.registry import Registry
from penstock.cluster.nodes.spread import Node
from penstock.engine.store.postgres import PostgresStore
from tests.rigs.penstock_process import wait_until

SHARDS = ("s0", "s1", "s2", "s3")
TTL_S = 2.0


class Served:
    """A shard's store, as its owner has it."""

    def __init__(self, store: PostgresStore) -> None:
        self.epoch = store.epoch
        self.lost = lambda: store.lost


class Member:
    """A node whose shards are empty schemas."""

    def __init__(self, url: str, name: str, ttl_s: float = TTL_S) -> None:
        self._url = url
        self._ttl_s = ttl_s
        self.me = Node(name, f"instance of {name}", f"http://{name}")
        self.membership = NodeMembership(url, "test", ttl_s)
        self.keeper = ShardKeeper(self.membership, self.me, self._open)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Member":
        await self.membership.create(SHARDS)
        await self.membership.join(self.me)
        self._task = asyncio.create_task(self.keeper.run())
        return self

    async def stop(self) -> None:
        await self.membership.drain()
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.membership.leave()

    @asynccontextmanager
    async def _open(self, shard: str) -> AsyncIterator[Served]:
        store = PostgresStore(self._url, schema=f"shard_{shard}", lease_s=self._ttl_s)
        try:
            await asyncio.to_thread(store.open)
            yield Served(store)
        finally:
            await asyncio.to_thread(store.close)


async def until_shares(*wanted: tuple[Member, int]) -> None:
    async with asyncio.timeout(60):
        while any(len(member.keeper.held) != share for member, share in wanted):
            held = [name for member, _ in wanted for name in member.keeper.held]
            assert len(held) == len(set(held))
            await wanted[0][0].membership.changes(0.02)


async def until_counted(url: str, owned: dict[str, int]) -> dict[str, int]:
    """Wait until the nodes are recorded as the owners of this many shards each; return the epochs of all."""
    registry = Registry(url, "test")
    async with asyncio.timeout(60):
        while True:
            view = await asyncio.to_thread(registry.view)
            owners = [owner.name for shard in SHARDS if (owner := view.owner_of(shard)) is not None]
            if Counter(owners) == owned:
                break
    registry.close()
    return {shard.name: shard.epoch for shard in view.shards}


async def test_shards_move_to_newcomers_and_away_from_those_that_stop(postgres_database: str) -> None:
    # So long that a busy machine does not make a lease expire, which would move a shard once more.
    first = await Member(postgres_database, "a", ttl_s=60).start()
    await until_shares((first, 4))
    second = await Member(postgres_database, "b", ttl_s=60).start()
    await until_shares((first, 2), (second, 2))
    epochs = await until_counted(postgres_database, {"a": 2, "b": 2})
    await first.stop()
    await until_shares((second, 4))
    moved = await until_counted(postgres_database, {"b": 4})
    assert all(moved[name] >= epoch for name, epoch in epochs.items())
    assert sum(moved[name] > epoch for name, epoch in epochs.items()) == 2
    await second.stop()


async def test_a_node_that_vanished_loses_its_shards_when_its_lease_ends(postgres_database: str) -> None:
    registry = Registry(postgres_database, "test")
    registry.create(SHARDS)
    registry.renew(Node("gone", "x", "http://gone"), TTL_S)
    for shard in SHARDS:
        registry.take(shard, "x", 0)
    member = await Member(postgres_database, "a", ttl_s=60).start()
    await until_shares((member, 4))
    assert [node.name for node in registry.view().nodes] == ["a"]
    await member.stop()
    registry.close()


async def test_an_owner_that_is_not_recorded_is_recorded_later(postgres_database: str) -> None:
    registry = Registry(postgres_database, "test")
    registry.create(SHARDS)
    # Of a life in which the database could not be told that the shard was given up.
    registry.take("s0", "instance of a", 0)
    member = await Member(postgres_database, "a", ttl_s=60).start()
    await until_shares((member, 4))
    epochs = await until_counted(postgres_database, {"a": 4})
    # As if the database had not heard of it, while another live node had owned it before.
    registry.renew(Node("b", "x", "http://b", draining=True), 600)
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute("UPDATE penstock_cluster.shards SET owner = 'x', epoch = 0 WHERE name = 's1'")
    registry.announce()
    assert await until_counted(postgres_database, {"a": 4}) == epochs
    await member.stop()
    registry.close()


def test_a_name_belongs_to_one_address_at_a_time(postgres_database: str) -> None:
    registry = Registry(postgres_database, "test")
    registry.create(())
    registry.renew(Node("a", "1", "http://one"), 60)
    with pytest.raises(NodeNameTaken, match="give each its own --node NAME"):
        registry.renew(Node("a", "2", "http://two"), TTL_S)
    registry.renew(Node("a", "3", "http://one"), 0.2)
    wait_until(lambda: not registry.view().nodes)
    registry.renew(Node("a", "2", "http://two"), 60)
    assert [node.address for node in registry.view().nodes] == ["http://two"]
    registry.close()


def test_nodes_of_other_parts_are_not_seen_and_have_another_secret(postgres_database: str) -> None:
    one, other = Registry(postgres_database, "one"), Registry(postgres_database, "other")
    assert one.create(("s",)) == one.create(("s",))
    assert one.create(()) != other.create(())
    one.renew(Node("a", "1", "http://one"), 60)
    assert (other.view().nodes, other.view().shards) == ((), ())
    one.close()
    other.close()


def test_every_node_has_a_number_of_its_own(postgres_database: str) -> None:
    first = identify(postgres_database, "a")
    second = identify(postgres_database, "b")
    assert first.secret == second.secret
    assert (first.number, second.number) == (0, 1)
    assert identify(postgres_database, "a") == first
    registry = Registry(postgres_database, "test")
    # All are taken: the one whose node started longest ago.
    assert registry.number("c", 2) == 1
    registry.close()

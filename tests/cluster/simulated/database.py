"""PostgreSQL as nodes see it: the tables of the cluster, a leased store per shard, and a way to it that may be cut."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from penstock.client.types import ClusterShard
from penstock.cluster.errors import NodeNameTaken
from penstock.cluster.nodes import Node, NodeMembership, Registry
from penstock.cluster.nodes.spread import Shard, View
from penstock.edge.clock import Clock
from penstock.engine import StoreFailed
from penstock.engine.errors import LeaseUncertain, StoreLocked
from penstock.engine.store.port import QueueRecord, Shares, Store, StreamRecord, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.simulation.chance import Chance
from penstock.testing.virtual_loop import LoopClock, VirtualLoop

TTL_S = 3.0
_RETRY_S = 0.5
_MARGIN_S = 0.05
_LOST_COMMIT = 0.002

T = TypeVar("T")


class DatabaseLink:
    """One process's connections to the database."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._arrives = asyncio.Event()
        self._arrives.set()
        self.refusing = False
        self.dead = False
        """Whether the process has crashed: nothing that it still does has an effect."""

    @property
    def stalled(self) -> bool:
        """Whether what is sent arrives only later."""
        return not self._arrives.is_set()

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        (self._arrives.clear if stalled else self._arrives.set)()

    def crash(self) -> None:
        """Have no effect from now on."""
        self.dead = True
        self._arrives.set()

    async def call(self, work: Callable[[], T]) -> T:
        """Do something in the database; StoreFailed if it or its answer does not arrive."""
        await self._travel()
        result = work()
        await self._travel()
        return result

    @property
    def is_open(self) -> bool:
        """Whether a request would arrive now."""
        return not (self.refusing or self.stalled or self.dead)

    def loses_answer(self) -> bool:
        """Whether the connection is lost at this very moment."""
        return self._chance.happens(_LOST_COMMIT)

    async def _travel(self) -> None:
        await asyncio.sleep(self._chance.between(0.0002, 0.01))
        await self._arrives.wait()
        if not self.is_open:
            raise StoreFailed("the simulated database cannot be reached")


process_link: ContextVar[DatabaseLink | None] = ContextVar("process_link", default=None)


class ClusterLoop(VirtualLoop):
    """A virtual loop on which threads are calls of the database."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: set[asyncio.Task[None]] = set()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run a function as a thread does: it goes on when its caller is cancelled."""
        answer = self.create_future()
        link = process_link.get()
        assert link is not None
        thread = self.create_task(_run(link, answer, lambda: func(*args)))
        self._threads.add(thread)
        thread.add_done_callback(self._threads.discard)
        return answer


async def _run(link: DatabaseLink, answer: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
    try:
        result = await link.call(work)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


class _Row(msgspec.Struct):
    node: Node
    expires_s: float


class _Lease(msgspec.Struct):
    epoch: int = 0
    expires_s: float = float("-inf")


class SimulatedDatabase:
    """What outlives the nodes."""

    def __init__(self, directory: Path, shards: tuple[str, ...]) -> None:
        self._directory = directory
        self.rows: dict[str, _Row] = {}
        self.shards = {name: Shard(name) for name in shards}
        self.leases = {name: _Lease() for name in shards}
        self._files: dict[str, SqliteStore] = {}
        self._changed = asyncio.Event()

    def now_s(self) -> float:
        """Return the time of the database."""
        return asyncio.get_running_loop().time()

    def notify(self) -> None:
        """Let all nodes look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self, within_s: float) -> None:
        """Wait for a notification."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def view(self) -> View:
        """Return the live nodes and the shards."""
        now_s = self.now_s()
        live = [row for _, row in sorted(self.rows.items()) if row.expires_s > now_s]
        nodes = [msgspec.structs.replace(row.node, left_s=row.expires_s - now_s) for row in live]
        return View(tuple(nodes), tuple(self.shards[name] for name in sorted(self.shards)))

    def claim(self, shard: str) -> tuple[int, SqliteStore]:
        """Take a shard whose lease has ended, and read it again as a new process does."""
        lease = self.leases[shard]
        if lease.expires_s > self.now_s():
            raise StoreLocked(f"the simulated shard {shard} has an owner")
        if shard in self._files:
            self._files[shard].close()
        place = self._directory / shard
        place.mkdir(exist_ok=True)
        self._files[shard] = SqliteStore(place / "db", durability="survives-process-crash-only")
        lease.epoch += 1
        lease.expires_s = self.now_s() + TTL_S
        return lease.epoch, self._files[shard]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class SimulatedRegistry:
    """The statements of `Registry`, in memory."""

    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database

    def renew(self, me: Node, ttl_s: float) -> View:
        """Count as live for a time."""
        database = self._database
        row, now_s = database.rows.get(me.name), database.now_s()
        is_mine = row is None or row.node.instance == me.instance or row.node.address == me.address
        if not is_mine and row is not None and row.expires_s > now_s:
            raise NodeNameTaken(me.name)
        database.rows[me.name] = _Row(me, now_s + ttl_s)
        return database.view()

    def take(self, shard: str, instance: str, epoch: int) -> None:
        """Record an owner."""
        known = self._database.shards[shard]
        if known.epoch < epoch:
            self._put(msgspec.structs.replace(known, owner=instance, epoch=epoch, moves=known.moves + 1))

    def hand_over(self, shard: str, instance: str) -> None:
        """Record that a node gave a shard up."""
        known = self._database.shards[shard]
        if known.owner == instance:
            self._put(msgspec.structs.replace(known, owner=None))

    def need(self, shard: str, capability: str) -> None:
        """Record a capability."""
        known = self._database.shards[shard]
        self._put(msgspec.structs.replace(known, needs=tuple(sorted({*known.needs, capability}))))

    def leave(self, instance: str) -> None:
        """Forget a node."""
        rows = self._database.rows
        for name in [name for name, row in rows.items() if row.node.instance == instance]:
            del rows[name]
        self._database.notify()

    def announce(self) -> None:
        """Let the others look."""
        self._database.notify()

    def all_shards(self) -> list[ClusterShard]:
        """Return nothing: no test asks a simulated node for the cluster."""
        return []

    def _put(self, shard: Shard) -> None:
        self._database.shards[shard.name] = shard
        self._database.notify()


class SimulatedMembership(NodeMembership):
    """A membership whose thread is a task and whose connections are a link."""

    def __init__(self, database: SimulatedDatabase, link: DatabaseLink) -> None:
        super().__init__("postgresql://nowhere", "sqs", TTL_S)
        self._database = database
        self._link = link
        self._registry = cast(Registry, SimulatedRegistry(database))
        self._keeping: asyncio.Task[None] | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the database."""
        return LoopClock(asyncio.get_running_loop())

    async def join(self, me: Node) -> None:
        """Become a live node."""
        self._me = me
        while True:
            try:
                self._see(await self._link.call(lambda: self._registry.renew(me, TTL_S)))
                break
            except StoreFailed:
                await asyncio.sleep(_RETRY_S)
        await self.tell(Registry.announce)
        self._keeping = asyncio.create_task(self._renew())

    async def leave(self) -> None:
        """Stop being one."""
        assert self._me is not None
        instance = self._me.instance
        if self._keeping is not None:
            self._keeping.cancel()
        with suppress(StoreFailed):
            await self.tell(lambda registry: registry.leave(instance))

    async def tell(self, change: Callable[[Registry], object]) -> None:
        """Change the tables."""
        if change is Registry.announce:
            change = cast(Callable[[Registry], object], lambda registry: registry.announce())
        async with self._telling:
            await self._link.call(lambda: change(self._registry))

    async def _renew(self) -> None:
        while self._me is not None:
            me = self._me
            try:
                view = await self._link.call(lambda: self._registry.renew(me, TTL_S))  # noqa: B023 called at once
                self._see(view)
                await self._database.changes(self._until_next_look_s(view, me))
            except StoreFailed:
                await asyncio.sleep(_RETRY_S)


class SimulatedStore:
    """A shard's store as its owner has it: refused once another has taken it, silent once its lease may be over."""

    durable = True
    local = False
    flush = None
    disk_space = None

    def __init__(self, database: SimulatedDatabase, shard: str, link: DatabaseLink) -> None:
        self._database = database
        self._shard = shard
        self._link = link
        self._file: Store | None = None
        self._until_s = float("-inf")
        self._renewing: asyncio.Task[None] | None = None
        self.epoch = 0
        self.lost: str | None = None

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Take the shard."""
        asked_s = self._database.now_s()
        self.epoch, self._file = self._database.claim(self._shard)
        self._until_s = asked_s + TTL_S
        self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return self._file.open()

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch; sometimes the answer is lost, and nobody knows whether it was saved."""
        shares = self._owned().apply(batch)
        if self._link.loses_answer():
            self.lost = "a commit that was reported as failed was saved"
            raise StoreFailed(self.lost)
        return shares

    def require_owned(self) -> None:
        """Raise if another process may be the owner by now."""
        if self.lost is not None:
            raise StoreLocked(self.lost)
        if self._database.now_s() >= self._until_s:
            raise LeaseUncertain("the lease could not be renewed")

    def __getattr__(self, name: str) -> Any:
        """Read what the owner may read."""

        def read(*arguments: Any) -> Any:
            self.require_owned()
            return getattr(self._owned(), name)(*arguments)

        return read

    def close(self) -> None:
        """Let the next owner follow at once, if the database can be told."""
        if self._renewing is not None:
            self._renewing.cancel()
        lease = self._database.leases[self._shard]
        if self._link.is_open and self._file is not None and lease.epoch == self.epoch:
            lease.expires_s = float("-inf")
        self._file = None

    def _owned(self) -> Store:
        if self._file is None:
            raise StoreFailed("the simulated store is not open")
        if self.lost is None and self._database.leases[self._shard].epoch != self.epoch:
            self.lost = "another process took the shard"
        if self.lost is not None:
            raise StoreLocked(self.lost)
        return self._file

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(TTL_S / 3)
            try:
                asked_s = self._database.now_s()
                if not await self._link.call(self._extend):
                    self.lost = self.lost or "another process took the shard"
                    return
                self._until_s = asked_s + TTL_S
            except StoreFailed:
                continue

    def _extend(self) -> bool:
        lease = self._database.leases[self._shard]
        if lease.epoch != self.epoch:
            return False
        lease.expires_s = self._database.now_s() + TTL_S
        return True

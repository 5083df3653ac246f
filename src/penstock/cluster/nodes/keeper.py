"""Serves the shards of this node: claims its share, hands the surplus over, drops what it has lost."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from penstock.cluster.nodes.membership import UNREACHABLE, NodeMembership
from penstock.cluster.nodes.registry import Registry
from penstock.cluster.nodes.spread import Node, can_serve, to_claim, to_give
from penstock.domain.errors import PenstockError
from penstock.edge.pause import pause

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_RETRY_S = 0.5


class ServedShard(Protocol):
    """What serves a shard while this node owns it."""

    @property
    def epoch(self) -> int:
        """The number of this ownership, larger than all before."""
        ...

    def lost(self) -> str | None:
        """Return why it can serve no longer: another node has taken the shard."""
        ...


S = TypeVar("S", bound=ServedShard)


class ShardKeeper(Generic[S]):
    """Opens and closes shards as the plan for the cluster says."""

    def __init__(
        self, membership: NodeMembership, me: Node, open_shard: Callable[[str], AbstractAsyncContextManager[S]]
    ) -> None:
        self._membership = membership
        self._me = me
        self._open_shard = open_shard
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._give: dict[str, asyncio.Event] = {}
        self._unable: set[str] = set()
        self.held: dict[str, S] = {}
        """The shards that this node serves."""
        self.refusals = 0
        """Shards that this node could not claim for lack of a capability."""

    async def run(self) -> None:
        """Keep this node's share until cancelled; then hand everything over."""
        try:
            while True:
                self._apply()
                await self._membership.changes(_LOOK_S)
        finally:
            for event in self._give.values():
                event.set()
            for name, task in self._tasks.items():
                if name not in self.held:
                    task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks.values()))

    def _apply(self) -> None:
        view, instance = self._membership.view, self._me.instance
        self._note_unable()
        for shard in to_claim(view, instance):
            self._start(shard, self._serve)
        for shard in to_give(view, instance):
            if shard in self._give:
                self._give[shard].set()
            else:
                # It was given up, and the database could not be told.
                self._start(shard, self._hand_over)

    def _start(self, shard: str, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        if shard not in self._tasks:
            task = self._tasks[shard] = asyncio.create_task(work(shard), name=f"shard-{shard}")
            task.add_done_callback(lambda _: self._tasks.pop(shard, None))

    def _note_unable(self) -> None:
        unable = {shard.name for shard in self._membership.view.shards if not can_serve(self._me, shard)}
        for name in sorted(unable - self._unable):
            self.refusals += 1
            log.warning("this node lacks a capability that shard %s needs: it never serves it", name)
        self._unable = unable

    async def _serve(self, shard: str) -> None:
        try:
            async with self._open_shard(shard) as served:
                await self._serve_until_given(shard, served)
        except PenstockError as error:
            log.warning("shard %s is not served here: %s", shard, error)
            await pause(_RETRY_S)
        except Exception:
            log.exception("shard %s failed unexpectedly", shard)
            await pause(_RETRY_S)
        await self._hand_over(shard)

    async def _hand_over(self, shard: str) -> None:
        await self._tell(shard, lambda registry: registry.hand_over(shard, self._me.instance))

    async def _serve_until_given(self, shard: str, served: S) -> None:
        give = self._give[shard] = asyncio.Event()
        epoch = served.epoch
        await self._record(shard, epoch)
        self.held[shard] = served
        self._membership.wake()
        log.info("this node owns shard %s", shard, extra={"epoch": epoch})
        try:
            while not give.is_set() and served.lost() is None:
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await give.wait()
                except TimeoutError:
                    await self._record(shard, epoch)
        finally:
            del self.held[shard], self._give[shard]
        log.info("this node gives shard %s up: %s", shard, served.lost() or "another one takes its share")

    async def _record(self, shard: str, epoch: int) -> None:
        """Let the other nodes know that this one owns a shard, unless they do."""
        if not any(each.name == shard and each.epoch >= epoch for each in self._membership.view.shards):
            await self._tell(shard, lambda registry: registry.take(shard, self._me.instance, epoch))

    async def _tell(self, shard: str, change: Callable[[Registry], None]) -> None:
        try:
            await self._membership.tell(change)
        except UNREACHABLE as error:
            log.warning("the owner of shard %s is not recorded: %s", shard, error)

"""A node's membership: a thread keeps its row alive and learns of every change of the cluster within milliseconds."""

import asyncio
import logging
from collections.abc import Callable
from threading import Event, Thread

import msgspec
import psycopg

from penstock.client.types import ClusterNode, ClusterView
from penstock.cluster.errors import NodeNameTaken
from penstock.cluster.nodes.registry import Before, Registry
from penstock.cluster.nodes.spread import Node, View
from penstock.edge.clock import Clock, FollowedClock, steady_seconds
from penstock.engine import StoreFailed

log = logging.getLogger(__name__)

_RETRY_S = 0.5
# After the moment at which a row expires, so that the next look finds it expired.
_MARGIN_S = 0.05
UNREACHABLE = (psycopg.Error, StoreFailed)
"""What a call of the registry raises while the database does not answer."""


class NodeMembership:
    """Counts as live from `join` to `leave`; `view` is the cluster as this node last saw it."""

    def __init__(self, url: str, part: str, ttl_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = Registry(url, part)
        self._told = Registry(url, part)
        self._telling = asyncio.Lock()
        self._ttl_s = ttl_s
        self._ended = Event()
        self._me: Node | None = None
        self._thread: Thread | None = None
        self._changed = asyncio.Event()
        self._clock: FollowedClock | None = None
        self._renewed_s = steady_seconds()
        self.view = View()
        self.refused: str | None = None
        """Why this node must end: another process has its name."""

    async def create(self, shards: tuple[str, ...], before: Before | None = None) -> bytes:
        """Create the tables, and return the secret that the nodes share."""
        secret = await asyncio.to_thread(self._told.create, shards, before)
        self._clock = await asyncio.to_thread(FollowedClock, self._watched.now_us)
        return secret

    @property
    def clock(self) -> Clock:
        """The clock of the database, which all nodes go by: leases and delays end as they should after a take-over."""
        assert self._clock is not None
        return self._clock

    @property
    def is_renewed(self) -> bool:
        """Whether the other nodes count this one as live, for certain: the database has answered within the lease."""
        return steady_seconds() - self._renewed_s < self._ttl_s

    async def shards(self) -> list[str]:
        """Return the names of the part's shards."""
        return await asyncio.to_thread(self._told.shards)

    async def join(self, me: Node) -> None:
        """Become a live node."""
        self._me = me
        self._see(await asyncio.to_thread(self._renew_row, me))
        await self.tell(Registry.announce)
        self._thread = Thread(target=self._keep, name="penstock-membership", daemon=True)
        self._thread.start()

    async def drain(self) -> None:
        """Let the other nodes claim what this one owns as soon as it gives it up."""
        if self._me is None:
            return
        self._me = me = msgspec.structs.replace(self._me, draining=True)
        try:
            await self.tell(lambda registry: registry.renew(me, self._ttl_s))
            await self.tell(Registry.announce)
        except UNREACHABLE as error:
            log.warning("this node's stop is not announced: %s", error)

    async def leave(self) -> None:
        """Stop being a live node."""
        self._ended.set()
        if self._thread is None or self._me is None:
            return
        instance = self._me.instance
        try:
            await self.tell(lambda registry: registry.leave(instance))
        except UNREACHABLE as error:
            log.warning("the node's row is not removed, it expires by itself: %s", error)
        await asyncio.to_thread(self._thread.join, self._ttl_s)
        self._told.close()

    async def tell(self, change: Callable[[Registry], object]) -> None:
        """Change the tables, and let the other nodes know."""
        async with self._telling:
            await asyncio.to_thread(change, self._told)

    async def describe(self) -> ClusterView:
        """Return the cluster: the nodes of this part, and the shards of all parts as the database has them now."""
        async with self._telling:
            shards = await asyncio.to_thread(self._told.all_shards)
        nodes = [
            ClusterNode(node.name, node.address, node.capabilities, node.draining, round(node.left_s, 3))
            for node in self.view.nodes
        ]
        return ClusterView("" if self._me is None else self._me.name, nodes, shards)

    async def changes(self, within_s: float) -> None:
        """Wait until the view has changed, or the time has passed."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _see(self, view: View) -> None:
        self.view = view
        self.wake()

    def wake(self) -> None:
        """Wake whoever waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # In the thread

    def _renew_row(self, me: Node) -> View:
        asked_s = steady_seconds()
        view = self._watched.renew(me, self._ttl_s)
        self._renewed_s = asked_s
        return view

    def _keep(self) -> None:
        listening = False
        while not self._ended.is_set() and self._me is not None:
            me = self._me
            try:
                if not listening:
                    self._watched.listen()
                    listening = True
                view = self._renew_row(me)
                if self._clock is not None:
                    self._clock.ask()
                self._loop.call_soon_threadsafe(self._see, view)
                self._watched.wait(self._until_next_look_s(view, me))
            except NodeNameTaken as error:
                self.refused = error.message
                break
            except UNREACHABLE as error:
                log.warning("this node's row is not renewed: %s", error)
                self._watched.close()
                listening = False
                self._ended.wait(_RETRY_S)
            except RuntimeError:
                break  # The event loop is closed: the process ends.
        self._watched.close()

    def _until_next_look_s(self, view: View, me: Node) -> float:
        others = [node.left_s + _MARGIN_S for node in view.nodes if node.instance != me.instance]
        return max(_MARGIN_S, min([self._ttl_s / 3, *others]))

"""Publishes to a queue for each pool, so that a full pool stops only its own queue (docs/decisions/0029)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.domain.errors import NotFound, PenstockError
from penstock.queues.open import PublisherFactory
from penstock.queues.port import Publication, Publisher

HasQueue = Callable[[str], Awaitable[bool]]


class PoolPublisher:
    """A publisher to the queues of all pools, made on demand.

    Publications without a pool, and those of pools without a queue (`has_queue`), go to the queue of `uri`.
    """

    def __init__(self, uri: str, has_queue: HasQueue) -> None:
        self._has_queue = has_queue
        self._factory = PublisherFactory(uri)
        self._shared = self._factory.shared()
        self._open: OrderedDict[str, Publisher] = OrderedDict()
        self._busy: dict[str, int] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def open(self) -> None:
        """Connect to the queue that publications without a pool go to."""
        await self._shared.open()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages, those of a pool in order; return per message None, or the error."""
        queue_of = {pool: await self._queue_of(pool) for pool in {publication.pool for publication in publications}}
        by_pool: dict[str | None, list[int]] = {}
        for index, publication in enumerate(publications):
            by_pool.setdefault(queue_of[publication.pool], []).append(index)
        sent = await asyncio.gather(
            *(self._publish(pool, [publications[index] for index in places]) for pool, places in by_pool.items())
        )
        outcomes: list[Exception | None] = [None] * len(publications)
        for places, results in zip(by_pool.values(), sent, strict=True):
            for index, result in zip(places, results, strict=True):
                outcomes[index] = result
        return outcomes

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment before which nothing of a pool was published that a queue still has.

        What was published before the pool had a queue of its own is in the shared one.
        """
        moment_ms = await self._shared.settled_before_ms()
        own = await self._queue_of(pool)
        if own is None:
            return moment_ms
        with self._using(own):
            try:
                return min(moment_ms, await (await self._opened(own)).settled_before_ms())
            except NotFound:
                # It was removed, so nothing is in it.
                await self._drop(own)
                return moment_ms
            finally:
                await self._close_idle()

    async def close(self) -> None:
        """Close all queues."""
        for publisher in (*self._open.values(), self._shared):
            await publisher.close()
        self._open.clear()
        self._factory.close()

    async def remove(self, pool: str) -> bool:
        """Remove the queue of a pool if it is empty; return whether it is gone. A publication makes it again."""
        await self._drop(pool)
        return await self._factory.remove(pool)

    async def _queue_of(self, pool: str | None) -> str | None:
        return pool if pool is not None and await self._has_queue(pool) else None

    async def _publish(self, pool: str | None, publications: Sequence[Publication]) -> "list[Exception | None]":
        if pool is None:
            return await self._shared.publish(publications)
        with self._using(pool):
            try:
                results = await (await self._opened(pool)).publish(publications)
                if results and all(isinstance(result, NotFound) for result in results):
                    # It was removed; nothing of this was stored.
                    await self._drop(pool)
                    results = await (await self._opened(pool)).publish(publications)
                return results
            except PenstockError as error:
                return [error] * len(publications)
            finally:
                await self._close_idle()

    @contextmanager
    def _using(self, pool: str) -> Iterator[None]:
        """Keep the queue of a pool open."""
        self._busy[pool] = self._busy.get(pool, 0) + 1
        try:
            yield
        finally:
            self._busy[pool] -= 1

    async def _opened(self, pool: str) -> Publisher:
        async with self._opening.setdefault(pool, asyncio.Lock()):
            publisher = self._open.get(pool)
            if publisher is None:
                publisher = self._factory.of_pool(pool)
                await publisher.open()
                self._open[pool] = publisher
            self._open.move_to_end(pool)
            return publisher

    async def _drop(self, pool: str) -> None:
        publisher = self._open.pop(pool, None)
        if publisher is not None:
            await publisher.close()

    async def _close_idle(self) -> None:
        while len(self._open) > self._factory.most_open:
            idle = next((pool for pool in self._open if not self._busy.get(pool)), None)
            if idle is None:
                return
            await self._open.pop(idle).close()

"""The pushers of all subscriptions with a push endpoint, started and stopped as subscriptions change."""

import asyncio
import logging
from typing import NamedTuple

from google.pubsub_v1 import types

from penstock.broker import AsyncBroker
from penstock.delivery import Client, Undeliverable
from penstock.edge.clock import Clock
from penstock.pubsub.push.pusher import PushCounts, Pusher
from penstock.pubsub.push.request import PushFormat
from penstock.pubsub.subscribe.subscriptions import push_config_of
from penstock.pubsub.wire import encode

log = logging.getLogger(__name__)


class _Running(NamedTuple):
    config: bytes
    pusher: Pusher


class Pushers:
    """The pusher of each subscription."""

    def __init__(self, broker: AsyncBroker, client: Client, clock: Clock) -> None:
        self._broker = broker
        self._client = client
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.counts: dict[str, PushCounts] = {}
        """The counters of each subscription that has been pushed."""

    def start(self) -> None:
        """Start all pushers, after the server has started."""
        for metadata in self._broker.rules.subscriptions():
            self.update(metadata.name)

    def update(self, name: str) -> bool:
        """Start, replace or stop the pusher of a subscription that may have changed; return whether it changed."""
        if self._broker.rules.find_subscription(name) is None:
            self.counts.pop(name, None)
        push = push_config_of(self._broker, name)
        config = b"" if push is None else encode(push)
        running = self._running.get(name)
        if config == (b"" if running is None else running.config):
            return False
        if running is not None:
            del self._running[name]
            running.pusher.stop()
        if push is not None and not self._closed:
            self._start(name, push, config)
        return True

    def stop(self) -> None:
        """Send no more; pushes in progress continue."""
        self._closed = True
        for name, running in self._running.items():
            running.pusher.stop()
            self._broker.answer_waiters_of(name)
        self._running.clear()

    async def close(self, grace_s: float) -> None:
        """Stop, give pushes in progress some time to end, and cancel the rest: their messages are delivered again."""
        self.stop()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _start(self, name: str, push: types.PushConfig, config: bytes) -> None:
        try:
            form = PushFormat(name, push)
        except Undeliverable as error:
            log.error("a subscription cannot be pushed: %s", error, extra={"queue": name})
            return
        counts = self.counts.setdefault(name, PushCounts())
        pusher = Pusher(self._broker, self._client, self._clock, name, form, counts)
        self._running[name] = _Running(config, pusher)
        task = asyncio.create_task(pusher.run(), name=f"push {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended unexpectedly", task.get_name(), exc_info=error)

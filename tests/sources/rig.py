"""What the conformance suite needs of a kind of source: one empty queue, and ends to it.

To add a kind: write `rig_<name>.py` with a subclass, and put it into `rigs.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar, Self

import pytest

from penstock.domain.limits import MIB
from penstock.queues.port import Publication, Publisher, Source
from tests.sources.tcp_link import TcpLink


class SourceRig(ABC):
    """A new, empty queue of one kind, as long as one test lasts."""

    name: ClassVar[str]
    # As the port says: a message that is given back keeps its place in its group.
    ordered: ClassVar[bool] = True
    # Whether one receive may hold several messages of a group.
    hands_out_followers: ClassVar[bool] = True
    # Whether a message comes again although its consumer is still connected.
    leases_expire: ClassVar[bool] = True
    # False for a broker that breaks the port's promise by a fault of its own: several leases of a group that end at
    # once, and several receives at once.
    keeps_order_when_leases_expire: ClassVar[bool] = True
    keeps_order_with_receives_at_once: ClassVar[bool] = True
    # Whether messages without a group are ordered, all in one group.
    orders_without_group: ClassVar[bool] = False
    # Whether several consumers may share the queue; else one consumes it, and a standby waits.
    shared: ClassVar[bool] = True
    # False for a broker that confirms an ack whose lease has ended although it does nothing.
    remembers_late_acks: ClassVar[bool] = True
    deduplicates: ClassVar[bool] = True
    # Whether `Received.group` is what the publisher said.
    carries_groups: ClassVar[bool] = True
    # Whether sources and publishers reach the queue through `link`, which a test may cut.
    networked: ClassVar[bool] = True
    # A visibility timeout so short that a test can wait for its end; SQS counts in whole seconds.
    brief_s: ClassVar[float] = 1.0
    # Whether a publisher knows when the oldest message was published; AWS tells only how long messages are kept.
    knows_the_oldest: ClassVar[bool] = True
    # The largest body that a publisher takes.
    largest_body_bytes: ClassVar[int] = MIB

    # Tests that take a second or more run once for each client, and for each server: False where another rig has the
    # same client, and where another has the same server.
    tests_the_client: ClassVar[bool] = True
    tests_the_server: ClassVar[bool] = True

    link: TcpLink | None = None

    @classmethod
    @abstractmethod
    def on_new_queue(cls, request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Self]:
        """A rig with a queue of its own; `request` gives the services of the session."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The queue's URI, through the link if there is one."""

    @abstractmethod
    def source(self, visibility_s: float = 30.0) -> Source:
        """A consumer's end, not opened yet; every one is new."""

    @abstractmethod
    def publisher(self) -> Publisher:
        """A publisher's end, not opened yet; every one is new."""

    def source_of_missing_queue(self) -> Source:
        """An end of a queue that is not there; not overridden if a queue is made by asking for it."""
        raise NotImplementedError

    def refused_publication(self, group: str) -> Publication:
        """A publication that the queue never takes; not overridden if it takes everything."""
        raise NotImplementedError

    @asynccontextmanager
    async def consuming(self, visibility_s: float = 30.0) -> AsyncIterator[Source]:
        """An opened source, closed on the way out."""
        source = self.source(visibility_s)
        await source.open()
        try:
            yield source
        finally:
            await source.close()

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[Publisher]:
        """An opened publisher, closed on the way out."""
        publisher = self.publisher()
        await publisher.open()
        try:
            yield publisher
        finally:
            await publisher.close()

    async def publish(self, *publications: Publication) -> None:
        """Put messages in by a publisher of their own; all must get in."""
        async with self.publishing() as publisher:
            results = await publisher.publish(publications)
        assert results == [None] * len(publications)

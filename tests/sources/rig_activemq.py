"""ActiveMQ, a queue of the test behind a link."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from penstock.queues.activemq.publisher import ActiveMqPublisher
from penstock.queues.activemq.source import ActiveMqSource
from penstock.queues.port import Publication
from penstock.queues.uri import StompUri
from tests.services.activemq import ActiveMQ
from tests.sources.rig import SourceRig
from tests.sources.tcp_link import TcpLink


class ActiveMqRig(SourceRig):
    """A queue over STOMP."""

    name = "activemq"
    leases_expire = False
    deduplicates = False
    shared = False

    def __init__(self, link: TcpLink) -> None:
        self.link = link
        self._uri = StompUri("127.0.0.1", link.port, f"orders-{uuid4().hex}")

    @classmethod
    @asynccontextmanager
    async def on_new_queue(cls, request: pytest.FixtureRequest) -> "AsyncIterator[ActiveMqRig]":
        """A queue of its own on the session's broker."""
        broker: ActiveMQ = request.getfixturevalue("activemq")
        async with TcpLink("127.0.0.1", broker.port) as link:
            yield cls(link)

    @property
    def uri(self) -> str:
        """The queue's URI."""
        return self._uri.shown

    def source(self, visibility_s: float = 30.0) -> ActiveMqSource:
        """A consumer's end; it has no leases."""
        return ActiveMqSource("orders", self._uri)

    def publisher(self) -> ActiveMqPublisher:
        """A publisher's end."""
        return ActiveMqPublisher(self._uri)

    def refused_publication(self, group: str) -> Publication:
        """One that STOMP cannot carry."""
        return Publication(b"x", group, "nul \0")

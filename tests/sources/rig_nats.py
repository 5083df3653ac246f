"""NATS JetStream, a stream of the test behind a link."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import nats
import pytest

from penstock.domain.limits import MIB
from penstock.queues.nats.publisher import NatsPublisher
from penstock.queues.nats.source import NatsSource
from penstock.queues.port import Publication
from penstock.queues.uri import NatsUri
from tests.services.nats import NatsServer
from tests.sources.rig import SourceRig
from tests.sources.tcp_link import TcpLink

DEDUPLICATION_S = 300.0


class NatsRig(SourceRig):
    """A durable consumer of a stream."""

    name = "nats"
    shared = False

    def __init__(self, link: TcpLink, stream: str) -> None:
        self.link = link
        self._uri = NatsUri("127.0.0.1", link.port, stream, "router")

    @classmethod
    @asynccontextmanager
    async def on_new_queue(cls, request: pytest.FixtureRequest) -> "AsyncIterator[NatsRig]":
        """A stream of its own on the session's server."""
        server: NatsServer = request.getfixturevalue("nats_server")
        stream = f"s-{uuid4().hex}"
        async with new_stream(server, stream), TcpLink("127.0.0.1", server.port) as link:
            yield cls(link, stream)

    @property
    def uri(self) -> str:
        """The queue's URI."""
        return self._uri.shown

    def source(self, visibility_s: float = 30.0) -> NatsSource:
        """A consumer's end."""
        return NatsSource("orders", self._uri, visibility_s=visibility_s)

    def publisher(self) -> NatsPublisher:
        """A publisher's end."""
        return NatsPublisher(self._uri)

    def source_of_missing_queue(self) -> NatsSource:
        """Of a stream that no one made."""
        missing = NatsUri(self._uri.host, self._uri.port, "nobody-made-it", "router")
        return NatsSource("orders", missing, visibility_s=30)

    def refused_publication(self, group: str) -> Publication:
        """One longer than the server takes."""
        return Publication(b"x" * (MIB + 1), group, "too long")


@asynccontextmanager
async def new_stream(server: NatsServer, stream: str) -> AsyncIterator[None]:
    """A stream that deduplicates within five minutes, removed on the way out."""
    client = await nats.connect(server.url)
    try:
        await client.jetstream().add_stream(name=stream, subjects=[f"{stream}.>"], duplicate_window=DEDUPLICATION_S)
        yield
        await client.jsm().delete_stream(stream)
    finally:
        await client.close()

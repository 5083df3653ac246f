"""SQS queues: of Penstock's own server, FIFO and standard, and of moto's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from penstock.domain.limits import MIB
from penstock.queues.port import Publication
from penstock.queues.sqs.publisher import SqsPublisher
from penstock.queues.sqs.source import SqsSource
from penstock.queues.sqs.watch import SharedServers
from penstock.queues.uri import SqsUri, parse_uri
from tests.services.moto_server import moto_client
from tests.services.sqs_server import SqsServer
from tests.sources.rig import SourceRig
from tests.sources.tcp_link import TcpLink


class SqsRig(SourceRig):
    """A queue of a server that speaks SQS."""

    orders_without_group = True
    fifo: ClassVar[bool] = True

    def __init__(self, name: str, link: TcpLink) -> None:
        self.link = link
        self._uri = f"http://127.0.0.1:{link.port}/{self._account}/{name}"

    _account: ClassVar[str] = "000000000000"

    @classmethod
    def server(cls, request: pytest.FixtureRequest) -> tuple[str, Any]:
        """Where the server is, and a boto3 client of it."""
        sqs: SqsServer = request.getfixturevalue("source_sqs")
        return sqs.url, sqs.anyone

    @classmethod
    @asynccontextmanager
    async def on_new_queue(cls, request: pytest.FixtureRequest) -> AsyncIterator[Self]:
        """A queue of its own."""
        url, client = cls.server(request)
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        name = f"q-{uuid4().hex}{'.fifo' if cls.fifo else ''}"
        attributes = {"FifoQueue": "true"} if cls.fifo else {}
        made = await asyncio.to_thread(client.create_queue, QueueName=name, Attributes=attributes)
        try:
            async with TcpLink(address.hostname, address.port) as link:
                yield cls(name, link)
        finally:
            await asyncio.to_thread(client.delete_queue, QueueUrl=made["QueueUrl"])

    @property
    def uri(self) -> str:
        """The queue's URL, through the link."""
        return self._uri

    def source(self, visibility_s: float = 30.0) -> SqsSource:
        """A consumer's end."""
        return SqsSource("orders", self._parsed(self._uri), visibility_s=visibility_s, servers=SharedServers())

    def publisher(self) -> SqsPublisher:
        """A publisher's end."""
        return SqsPublisher(self._parsed(self._uri))

    def source_of_missing_queue(self) -> SqsSource:
        """An end of a queue that no one made."""
        return SqsSource("missing", self._parsed(self._uri.replace("/q-", "/missing-")))

    def refused_publication(self, group: str) -> Publication:
        """One that is too large."""
        return Publication(b"x" * (MIB + 1), group, "too large")

    def _parsed(self, uri: str) -> SqsUri:
        parsed = parse_uri(uri)
        assert isinstance(parsed, SqsUri)
        return parsed


class SqsFifoRig(SqsRig):
    """A FIFO queue of ours."""

    name = "sqs"


class SqsStandardRig(SqsRig):
    """A standard queue of ours."""

    name = "sqs-standard"
    fifo = False
    ordered = False
    remembers_late_acks = False
    tests_the_client = False
    tests_the_server = False
    deduplicates = False


class MotoFifoRig(SqsRig):
    """A FIFO queue of moto's."""

    name = "moto"
    # moto frees a group when it looks at the last of its expired messages, and hands that one out.
    keeps_order_when_leases_expire = False
    # Which groups are blocked it looks up once, when a long poll begins.
    keeps_order_with_receives_at_once = False
    tests_the_client = False
    knows_the_oldest = False
    _account = "123456789012"

    @classmethod
    def server(cls, request: pytest.FixtureRequest) -> tuple[str, Any]:
        """moto's server."""
        url: str = request.getfixturevalue("moto_url")
        # It tells by the signature which of AWS's services is meant.
        environment: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        environment.setenv("AWS_ACCESS_KEY_ID", "anyone")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "no secret is checked")
        return url, moto_client(url)

"""The embedded queue, in a file of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.queues.embedded.source import EmbeddedPublisher, EmbeddedSource
from penstock.queues.uri import EmbeddedUri
from tests.sources.rig import SourceRig


class EmbeddedRig(SourceRig):
    """A queue in an SQLite file."""

    name = "embedded"
    networked = False
    brief_s = 0.5

    def __init__(self, directory: Path) -> None:
        self._uri = EmbeddedUri(str(directory / "queue.db"), "orders")

    @classmethod
    @asynccontextmanager
    async def on_new_queue(cls, request: pytest.FixtureRequest) -> "AsyncIterator[EmbeddedRig]":
        """A file of its own."""
        yield cls(request.getfixturevalue("tmp_path"))

    @property
    def uri(self) -> str:
        """The queue's URI."""
        return self._uri.shown

    def source(self, visibility_s: float = 30.0) -> EmbeddedSource:
        """A consumer's end."""
        return EmbeddedSource("orders", self._uri, visibility_s=visibility_s)

    def publisher(self) -> EmbeddedPublisher:
        """A publisher's end."""
        return EmbeddedPublisher(self._uri)

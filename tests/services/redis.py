"""A real Redis server."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import unavailable
from tests.services.nats import free_port, wait_until_listening

START_S = 60
STOP_S = 60


class RedisServer:
    """One server process that keeps nothing; `start` after `stop` brings an empty one back on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> "RedisServer":
        """Start and wait until it listens."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (self._directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", *options, "--dir", str(self._directory)], stdout=log, stderr=log
            )
        wait_until_listening(self.process, self.port, START_S)
        return self

    def stop(self) -> None:
        """Stop it."""
        if self.process is not None:
            process, self.process = self.process, None
            process.terminate()
            process.wait(STOP_S)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The server of a module's tests; each uses a lease of its own."""
    if shutil.which("redis-server") is None:
        unavailable("Redis", "redis-server is missing; apt-get install redis-server")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server.start()
    finally:
        server.stop()

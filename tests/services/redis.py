"""A real Redis server."""

import shutil
from collections.abc import Iterator

import pytest

from tests.services import unavailable
from tests.services.server_process import ServerProcess


class RedisServer(ServerProcess):
    """A server that keeps nothing over a start."""

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        return ["redis-server", *options, "--dir", str(self._directory)]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The server of a module's tests; each uses a lease of its own."""
    if shutil.which("redis-server") is None:
        unavailable("Redis", "redis-server is missing; apt-get install redis-server")
    with RedisServer(tmp_path_factory.mktemp("redis")).running() as server:
        yield server

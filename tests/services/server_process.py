"""Servers of others in processes of their own, which tests start, stop, kill, and start again where they were."""

import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Self

START_S = 60
STOP_S = 60


class ServerProcess(ABC):
    """One server process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return what starts it; files that it reads are written before."""

    def start(self) -> Self:
        """Start and wait until it listens."""
        self._directory.mkdir(exist_ok=True)
        command = self.command()
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

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start it, and stop it on the way out."""
        try:
            yield self.start()
        finally:
            self.stop()

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
        assert monotonic() < deadline_s, f"no one listens on port {port} after {within_s} s"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            sleep(0.02)
        else:
            return

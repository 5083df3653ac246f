"""A part of Penstock in its own process."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from tests.services.sqs_server import PENSTOCK

STOP_S = 120


class ServedPart:
    """`penstock serve …` on a free port, which it keeps when it is started again; can be killed."""

    def __init__(
        self, directory: Path, name: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        self._log = directory / f"{name}.log"
        self._directory = directory
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(settings or {})}
        self._port = "0"
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start and wait until it listens."""
        command = [str(PENSTOCK), "serve", *self._arguments, "--port", self._port]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment, cwd=self._directory
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), f"{line!r}\n{self.log()}"
        self.url = line.split()[-1]
        self._port = self.url.rpartition(":")[2]

    def get(self, path: str) -> str:
        """What it answers."""
        with urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        self.process.kill()
        assert self._ended() == -9

    def stop(self) -> int:
        """Stop it gracefully; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._ended()

    def _ended(self) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        assert process.stdout is not None
        with process.stdout:
            return process.wait(STOP_S)

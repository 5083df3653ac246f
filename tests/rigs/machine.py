"""A running `penstock up`."""

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path

import pytest

from tests.rigs.penstock_process import PENSTOCK

READY_LINE = re.compile(r"^(\w+) +(\S+)  ")
PARTS = ("sqs", "pubsub", "api", "router")
STOP_S = 120


class Machine:
    """A running `penstock up` on free ports."""

    def __init__(
        self,
        directory: Path,
        engine: str = "inline",
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.log = directory / "up.log"
        parts = (*PARTS, "pipeline") if engine == "spark" else PARTS
        command = [str(PENSTOCK), *options, "up", "--data", str(directory / "data"), "--engine", engine]
        for port in ("--http", "--sqs", "--pubsub", "--router", "--pipeline"):
            command += [port, "0"]
        with self.log.open("w") as log:
            environment = {**environ, **(settings or {})}
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        header = self.process.stdout.readline()
        if not header.startswith("PART"):
            self.process.stdout.close()
            self.process.wait(STOP_S)
            pytest.fail(self.log.read_text())
        found = [READY_LINE.match(self.process.stdout.readline()) for _ in parts]
        self.addresses = {match[1]: match[2] for match in found if match is not None}
        assert tuple(self.addresses) == parts

    def stop(self) -> int:
        """Press Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        with self.process.stdout:
            return self.process.wait(STOP_S)

    def penstock(self, *arguments: str) -> str:
        """What a command says that asks this API."""
        command = [str(PENSTOCK), *arguments, "--endpoint", self.addresses["api"]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

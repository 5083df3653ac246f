"""A part of Penstock in its own process, which tests start, stop, kill, and start again where it was."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

PENSTOCK = Path(sys.executable).with_name("penstock")
SECRET = "a secret that all nodes share"
STOP_S = 120


class PenstockProcess:
    """`penstock …`, which says where it listens; `{port}` in its arguments is a free one, and the same one later."""

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
        self.process = self.launch()
        self.url = self.announced("listening on ")
        self._port = self.url.rpartition(":")[2]

    def launch(self) -> "subprocess.Popen[str]":
        """Only start the process, for one that is expected to refuse."""
        command = [str(PENSTOCK), *(argument.replace("{port}", self._port) for argument in self._arguments)]
        with self._log.open("a") as log:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._directory, env=self._environment
            )

    def announced(self, start: str) -> str:
        """The end of the next line that it prints, which starts like this."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(start), f"{line!r}\n{self.log()[-3000:]}"
        return line.split()[-1]

    def get(self, path: str) -> str:
        """What it answers."""
        with urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def terminate(self) -> None:
        """Ask it to stop; `wait` tells how it ended."""
        assert self.process is not None
        self.process.terminate()

    def wait(self) -> int:
        """The exit code, once it has ended."""
        assert self.process is not None
        process, self.process = self.process, None
        assert process.stdout is not None
        with process.stdout:
            return process.wait(STOP_S)

    def stop(self) -> int:
        """Stop it gracefully; the exit code."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it and all that it started as a power cut would."""
        assert self.process is not None
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.wait() == -9


class ServedPart(PenstockProcess):
    """`penstock serve …`."""

    def __init__(
        self, directory: Path, name: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, name, ("serve", *arguments, "--port", "{port}"), settings)


class RouterProcess(ServedPart):
    """A router with a configuration file, allowed to deliver to loopback."""

    def __init__(self, directory: Path, configuration: object, *options: str) -> None:
        file = directory / "router.json"
        file.write_text(json.dumps(configuration))
        arguments = ("router", "--config", str(file), *options)
        super().__init__(directory, "router", arguments, {"PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8"})


class SchedulerProcess(ServedPart):
    """A scheduler that knows the secret of all nodes."""

    def __init__(self, directory: Path, name: str, *options: str, settings: Mapping[str, str] | None = None) -> None:
        secret = {"PENSTOCK_JOBS__AUTH_SECRET": SECRET}
        super().__init__(directory, name, ("scheduler", *options), {**secret, **(settings or {})})


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [(int(child), int(parent)) for child, parent in (line.split() for line in table.splitlines())]
    found = [pid]
    for parent in found:
        found.extend(child for child, its_parent in parents if its_parent == parent)
    return found[1:]


def wait_until(holds: Any, within_s: float = 60.0, otherwise: Callable[[], str] = lambda: "") -> None:
    """Ask again and again until a condition holds; `otherwise` tells what is to be seen when it does not."""
    deadline_s = monotonic() + within_s
    while not holds():
        assert monotonic() < deadline_s, f"it does not come true {otherwise()}"
        sleep(0.01)

"""Penstock in processes of its own, which tests start, ask, stop, kill, and start again where they were."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self
from urllib.request import urlopen

from tests.services.nats import free_port

PENSTOCK = Path(sys.executable).with_name("penstock")
LOOPBACK = {"PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8"}
SECRET = "a secret that all nodes share"
STOP_S = 120
PARTS = ("sqs", "pubsub", "api", "router")


def run_penstock(
    *arguments: str | Path, settings: Mapping[str, str] | None = None, cwd: Path | None = None, within_s: float = STOP_S
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    command = [str(PENSTOCK), *map(str, arguments)]
    environment = {**os.environ, **(settings or {})}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=within_s, check=False
    )


def output_of(*arguments: str | Path) -> str:
    """Return what a command prints that succeeds."""
    ran = run_penstock(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


class PenstockProcess:
    """`penstock …`, which says where it listens; `{port}` in its arguments is a free one, and the same one later.

    As a context it is started, and stopped on the way out, however the test left it; after an error it is killed.
    """

    program: Sequence[str] = (str(PENSTOCK),)
    ends_by = signal.SIGTERM

    def __init__(
        self, directory: Path, name: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._log = directory / f"{name}.log"
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(settings or {})}
        self._port = "0"
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is None:
            return
        if kind is not None:
            self.kill()
            return
        ended = self.process.poll()
        code = self.stop()
        assert ended is None, f"it ended by itself with {ended}\n{self.log()}"
        assert code == 0, self.log()

    def start(self) -> None:
        """Start and wait until it listens."""
        self.launch()
        try:
            self.read_addresses()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Only start the process, for one that does not listen or is expected to refuse."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [*self.program, *(argument.replace("{port}", self._port) for argument in self._arguments)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.directory,
                env=self._environment,
            )

    def read_addresses(self) -> None:
        """Read where it listens from what it prints first."""
        self.url = self.announced("listening on ")
        self._port = self.url.rpartition(":")[2]

    def announced(self, start: str) -> str:
        """The last word of the next line that it prints, which starts like this."""
        line = self.line()
        assert line.startswith(start), f"{line!r}\n{self.log()[-3000:]}"
        return line.split()[-1]

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def get(self, path: str) -> str:
        """What it answers."""
        with urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def terminate(self) -> None:
        """Ask it to stop; `wait` tells how it ended."""
        self.send(self.ends_by)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        assert self.process is not None
        process, self.process = self.process, None
        assert process.stdout is not None
        with process.stdout:
            return process.wait(STOP_S)

    def finish(self, within_s: float = STOP_S) -> tuple[int, str]:
        """The exit code and what it still prints, once it and all that shares its output have ended."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=within_s)
        code, self.process = self.process.returncode, None
        return code, out

    def stop(self) -> int:
        """Stop it gracefully; the exit code."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it and all that it started as a power cut would."""
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()


class Machine(PenstockProcess):
    """A running `penstock up` on free ports; ended by Ctrl-C."""

    ends_by = signal.SIGINT

    def __init__(
        self,
        directory: Path,
        engine: str = "inline",
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        *,
        up_options: Sequence[str] = (),
    ) -> None:
        self.data = directory / "data"
        self.addresses: dict[str, str] = {}
        self._parts = (*PARTS, "pipeline") if engine == "spark" else PARTS
        up = ("up", "--data", str(self.data), "--engine", engine, *up_options)
        arguments = (*options, *up, *free_ports("--pipeline"))
        super().__init__(directory, "up", arguments, settings)

    def read_addresses(self) -> None:
        """Read the table that it prints when every part is ready."""
        self.announced("PART ")
        rows = [self.line().split() for _ in self._parts]
        self.addresses = {part: address for part, address, *_ in rows}
        assert tuple(self.addresses) == self._parts
        self.url = self.addresses["api"]

    def keep_ports(self) -> None:
        """Choose the free ports now, so that it has the same ones after a restart."""
        self._arguments = [str(free_port()) if word == "0" else word for word in self._arguments]

    def penstock(self, *arguments: str) -> str:
        """What a command says that asks this API."""
        return output_of(*arguments, "--endpoint", self.url)


def free_ports(*more: str, **chosen: str) -> list[str]:
    """Return the options of `penstock up` for ports: those chosen, else free ones."""
    options = {**dict.fromkeys(("--http", "--sqs", "--pubsub", "--router", *more), "0"), **chosen}
    return [word for option in options.items() for word in option]


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
        super().__init__(directory, "router", arguments, LOOPBACK)


class ApiProcess(ServedPart):
    """An API that may deliver to loopback, with its data in the directory."""

    def __init__(self, directory: Path, *options: str, settings: Mapping[str, str] | None = None) -> None:
        arguments = ("api", "--data", str(directory / "data"), *options)
        super().__init__(directory, "api", arguments, {**LOOPBACK, **(settings or {})})


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

"""A real `penstock up` in a directory of its own, with its database, as the benchmark's subject."""

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from penstock.domain.errors import Unavailable
from penstock.ops.parts import LOOPBACK, Engine
from penstock.tools.bench.end_to_end.postgres import PostgresCounts, new_database
from penstock.tools.bench.end_to_end.processor_time import Usage, usage

_STOP_S = 90.0
_KEPT_LINES = 20
_SETTINGS = {
    "PENSTOCK_HTTP__HOST": "127.0.0.1",
    "PENSTOCK_EGRESS__ALLOW": LOOPBACK,
    "PENSTOCK_LOG__LEVEL": "error",
}
_PORTS = ("http", "sqs", "pubsub", "router", "pipeline")


class Installation:
    """A running `penstock up`."""

    def __init__(self, pid: int, url: str, postgres: PostgresCounts | None) -> None:
        self.url = url
        self.postgres = postgres
        self._roots = {pid: "up"}
        if postgres is not None and (postmaster := postgres.postmaster()) is not None:
            self._roots[postmaster] = "postgres"

    def usage(self) -> Usage:
        """Return what all its processes have used, PostgreSQL's included if it runs on this machine."""
        return usage(self._roots)


@contextmanager
def installation(engine: Engine, server_url: str | None) -> Iterator[Installation]:
    """Run `penstock up` on SQLite, or on a new database of a PostgreSQL server, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        if server_url is None:
            with _running_up(engine, Path(directory), ()) as (pid, url):
                yield Installation(pid, url, None)
            return
        with (
            new_database(server_url) as database_url,
            _running_up(engine, Path(directory), ("--database", database_url)) as (pid, url),
            PostgresCounts.connected(database_url) as counts,
        ):
            yield Installation(pid, url, counts)


@contextmanager
def _running_up(engine: Engine, directory: Path, options: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    ports = [text for name in _PORTS for text in (f"--{name}", "0")]
    # As a child of this process it also ends when this process is killed.
    command = [sys.executable, "-m", "penstock.ops.child", "up", "--engine", str(engine), *ports, *options]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(directory),
        cwd=directory,
        # Ctrl-C reaches only the benchmark, which stops everything in order.
        start_new_session=True,
    )
    last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    assert process.stderr is not None
    reader = Thread(target=last_lines.extend, args=(iter(process.stderr),), daemon=True)
    reader.start()
    try:
        yield process.pid, _api_address(iter(process.stdout), last_lines, reader)
    finally:
        _stop(process)


def _environment(directory: Path) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**inherited, **_SETTINGS, "PENSTOCK_DATA__DIR": str(directory)}


def _api_address(lines: Iterator[str], last_lines: deque[str], reader: Thread) -> str:
    """Return the API's address from the table that `penstock up` prints when everything is ready."""
    for line in lines:
        if line.startswith("api "):
            return line.split()[1]
    reader.join()
    raise Unavailable(f"penstock up did not start: {''.join(last_lines).strip() or 'it printed nothing'}")


def _stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()

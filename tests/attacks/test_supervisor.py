"""Parts that print what they like, hang, or cannot be started again: the supervisor goes on, or says that it cannot."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.domain.errors import Unavailable
from penstock.ops import part_process, supervisor
from penstock.ops.part_process import MAX_LINE_BYTES, SupervisedPart
from penstock.ops.supervisor import Supervisor

# Runs instead of `penstock` in the child, before anything of it is imported.
AT_START = "import os; exec(open(os.environ['PART_PROGRAM']).read())"

SERVE = """
import http.server, os, signal, sys
class Probes(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Probes)
def is_first(name="started"):
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
def ready():
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
os.chdir(os.environ["PART_DIRECTORY"])
"""


class Reports:
    """What the supervisor says, and a way to wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._added = asyncio.Condition()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._added:
            self._added.notify_all()

    async def until(self, words: str, count: int = 1) -> None:
        """Wait until this many lines have these words."""
        async with asyncio.timeout(60), self._added:
            await self._added.wait_for(lambda: sum(words in line for line in self.lines) >= count)


def part(directory: Path, program: str, start_s: float = 30.0) -> SupervisedPart:
    """A part whose process runs a program of the test."""
    (directory / "sitecustomize.py").write_text(AT_START)
    (directory / "program.py").write_text(SERVE + program)
    environment = {
        "PYTHONPATH": str(directory),
        "PART_PROGRAM": str(directory / "program.py"),
        "PART_DIRECTORY": str(directory),
    }
    return SupervisedPart("part", "a test", lambda _: (), environment, start_s)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_part_may_print_anything_before_it_is_ready(tmp_path: Path, stream: str) -> None:
    program = f"""
out = sys.{stream}.buffer
out.write(b"\\n\\n" + b"x" * 300_000 + b"\\n\\xff\\xfe\\0\\n" + b"line\\n" * 30_000)
out.flush()
ready()
server.serve_forever()
"""
    reports = Reports()
    async with Supervisor([part(tmp_path, program)], reports):
        await reports.until("part is ready at http://127.0.0.1:")
        await reports.until("part: line", 30_000)
    assert max(map(len, reports.lines)) < MAX_LINE_BYTES + 100


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_part_may_print_anything_later(tmp_path: Path, stream: str) -> None:
    program = f"""
ready()
out = sys.{stream}.buffer
out.write(b"\\n" + b"x" * 1_000_000 + b"\\n" * 1_000_000 + b"written")
out.flush()
os._exit(0)
"""
    reports = Reports()
    async with Supervisor([part(tmp_path, program)], reports):
        await reports.until("part: written")


async def test_a_part_that_dies_after_a_long_line_is_started_again(tmp_path: Path) -> None:
    program = """
ready()
if is_first():
    sys.stderr.write("x" * 200_000)
    sys.stderr.flush()
    os._exit(3)
server.serve_forever()
"""
    reports = Reports()
    async with Supervisor([part(tmp_path, program)], reports):
        await reports.until("part ended with code 3; starting it again")
        await reports.until("part is ready", 2)


async def test_a_part_that_hangs_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(part_process, "PROBE_S", 1.0)
    program = """
ready()
if is_first():
    os.kill(os.getpid(), signal.SIGSTOP)
server.serve_forever()
"""
    reports = Reports()
    async with Supervisor([part(tmp_path, program)], reports):
        await reports.until("part does not answer; killing it")
        await reports.until("part ended with code -9; starting it again")
        await reports.until("part is ready", 2)


async def test_probes_are_asked_where_the_part_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(part_process, "PROBE_S", 1.0)
    program = """
import socket
if is_first():
    silent = socket.create_server(("127.0.0.1", 0))
    print(f"listening on 127.0.0.1:{silent.getsockname()[1]}")
    print(f"probes on http://127.0.0.1:{server.server_port}", flush=True)
    for answered in range(20):
        server.handle_request()
    os._exit(5)
ready()
server.serve_forever()
"""
    reports = Reports()
    async with Supervisor([part(tmp_path, program)], reports):
        await reports.until("part ended with code 5")
    assert not [line for line in reports.lines if "does not answer" in line]


async def test_a_part_that_cannot_be_watched_ends_everything(tmp_path: Path) -> None:
    starts = 0

    def arguments(_: Mapping[str, str]) -> Sequence[str]:
        nonlocal starts
        starts += 1
        if starts > 1:
            raise KeyError("a mistake in Penstock")
        return ()

    given = part(tmp_path, "ready()\nos._exit(7)\n")
    broken = SupervisedPart(given.name, given.purpose, arguments, given.environment)
    async with asyncio.timeout(60), Supervisor([broken], Reports()) as running:
        with pytest.raises(Unavailable, match=r"part can no longer be supervised: KeyError.*a mistake in Penstock"):
            await running.failure()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    program = """
print(f"pid {os.getpid()}")
print("starting", flush=True)
signal.pause()
"""
    reports = Reports()
    starting = asyncio.create_task(Supervisor([part(tmp_path, program)], reports).__aenter__())
    await reports.until("part: starting")
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    (pid,) = [int(line.rpartition(" ")[2]) for line in reports.lines if "pid" in line]
    assert not is_running(pid)

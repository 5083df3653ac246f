"""The tutorials, block by block, as a reader types them; only the ports are others."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.examples.test_examples import accepts
from tests.rigs.penstock_process import wait_until
from tests.services.server_process import free_port

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UP = "penstock up --data ./tutorial-data\n"
# What the reader may do again until the answer is there.
LOOKS_ONLY = re.compile(r"(penstock (jobs (list|show)|status|groups (list|show))|JOB=\$\(penstock jobs list)[^\n]*")
WAIT_S = 180

# It starts Spark, as the reader does: the long one for real, the other with `--engine inline`.
pytestmark = pytest.mark.xdist_group("spark")


class Terminal:
    """A shell that is given one block after the other."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._log = directory / "terminal.log"
        self._directory = directory
        with self._log.open("w") as log:
            self._shell = subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        self._blocks = 0
        self._begin = 0

    def run(self, block: str) -> None:
        """Type a block and wait until the shell is done with it; it must succeed."""
        self._blocks += 1
        self._begin = len(self._log.read_text())
        ended = re.compile(rf"^end of {self._blocks}: (\d+)$", re.MULTILINE)
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"set -e\n{block}set +e\necho end of {self._blocks}: $?\n")
        self._shell.stdin.flush()
        wait_until(lambda: ended.search(self.output) or self._shell.poll() is not None, WAIT_S)
        assert ended.search(self.output), f"{block}\n{self.output}"

    @property
    def output(self) -> str:
        """What was printed since the last block began."""
        return self._log.read_text()[self._begin :]

    def all_logs(self) -> str:
        """What this terminal and the other one have shown."""
        return "\n".join(path.read_text() for path in sorted(self._directory.glob("*.log")))

    def close(self) -> None:
        """End the shell and what it has started."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(WAIT_S)


@contextmanager
def second_terminal(directory: Path, command: str, environment: dict[str, str]) -> Iterator[None]:
    """Runs `penstock up` until Ctrl-C."""
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], stdout=log, stderr=subprocess.STDOUT, cwd=directory, env=environment
        )
    try:
        wait_until(lambda: "ready;" in (directory / "up.log").read_text() or process.poll() is not None, WAIT_S)
        assert process.poll() is None, (directory / "up.log").read_text()
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0, (directory / "up.log").read_text()


def in_order(lines: list[str], output: str) -> bool:
    """Whether the lines, or parts of lines, are in the output one after the other."""
    place = 0
    for line in lines:
        place = output.find(line, place) + len(line)
        if place < len(line):
            return False
    return True


def play(terminal: Terminal, blocks: list[tuple[str, str]]) -> None:
    """Run every block; what the tutorial shows after it must come."""
    for (kind, block), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind != "sh":
            continue
        terminal.run(block)
        if next_kind == "text":
            wait_until(partial(appeared, terminal, block, shown.splitlines()), WAIT_S, terminal.all_logs)


def appeared(terminal: Terminal, block: str, lines: list[str]) -> bool:
    if in_order(lines, terminal.output):
        return True
    if all(LOOKS_ONLY.fullmatch(line) for line in block.splitlines()):
        terminal.run(block)
    return False


@pytest.mark.parametrize("engine", ["inline", pytest.param("auto", marks=pytest.mark.long)])
@pytest.mark.parametrize("tutorial", ["ten-minutes", "the-night-a-subscriber-failed"])
def test_the_tutorial_works_as_it_is_written(tmp_path: Path, tutorial: str, engine: str) -> None:
    api, receiver, pager = free_port(), free_port(), free_port()
    text = (TUTORIALS / f"{tutorial}.md").read_text()
    for written, used in (("9000", receiver), ("9001", pager), ("8080", api)):
        text = re.sub(rf"(:|listen ){written}\b", rf"\g<1>{used}", text)
    (_, install), (_, up), *blocks = [(match[1], match[2]) for match in BLOCK.finditer(text)]
    # The set-up has been done, or this test would not run.
    assert install == "make setup\n. .venv/bin/activate\n"
    assert up == UP
    for name in (".venv", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    # As activation would have it, for both terminals.
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    settings = {"PENSTOCK_API__ENDPOINT": f"http://127.0.0.1:{api}", "PORT": str(receiver)}
    environment = {**os.environ, "PATH": path, **settings}
    options = f"--engine {engine} --http {api} --sqs 0 --pubsub 0 --router 0 --pipeline 0"
    with second_terminal(tmp_path, f"{up.strip()} {options}", environment):
        terminal = Terminal(tmp_path, environment)
        try:
            terminal.run(". .venv/bin/activate\n")
            play(terminal, blocks)
        finally:
            terminal.close()
    assert not accepts(receiver)
    assert not accepts(pager)


@pytest.mark.parametrize(("lines", "found"), [(["a", "c"], True), (["c", "a"], False), (["a", "a"], False)])
def test_what_is_shown_must_come_in_order(lines: list[str], found: bool) -> None:
    assert in_order(lines, "a\nb\nc\n") is found

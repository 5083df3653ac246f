"""Node numbers: claimed by locks, so that processes of one machine never share one."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from penstock.domain.errors import ResourceExhausted
from penstock.domain.ids import MAX_NODE
from penstock.edge import node
from penstock.edge.node import claim_node, process_ids

# Each prints what it claimed and holds it until its input ends or it is killed.
CLAIM = """
import sys
import tempfile
from pathlib import Path
from penstock.edge.node import claim_node
print(claim_node(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""

CLAIM_AND_START_A_CHILD = """
import subprocess, sys
from pathlib import Path
from penstock.edge.node import claim_node
print(claim_node(Path(sys.argv[1])), flush=True)
subprocess.run([sys.executable, "-c", "print('started', flush=True); import sys; sys.stdin.read()"], close_fds=False)
"""

FORK = """
import os, sys
from penstock.edge.node import process_ids

def node() -> int:
    return process_ids().next_value(1_700_000_000_000) >> 12 & 1023

print(node(), flush=True)
if os.fork() == 0:
    print(node(), node(), flush=True)
    os._exit(0)
os.wait()
print(node(), flush=True)
"""


@contextmanager
def started(script: str, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The locks that this process takes in a test, given back after it."""
    held: list[int] = []
    monkeypatch.setattr(node, "_held_locks", held)
    yield held
    for handle in held:
        os.close(handle)


def test_processes_that_claim_at_once_get_different_numbers(tmp_path: Path) -> None:
    with (
        started(CLAIM, str(tmp_path)) as one,
        started(CLAIM, str(tmp_path)) as two,
        started(CLAIM, str(tmp_path)) as three,
        started(CLAIM, str(tmp_path)) as four,
    ):
        claimed = [int(line_of(process)) for process in (one, two, three, four)]

    assert len(set(claimed)) == 4
    assert all(0 <= number <= MAX_NODE for number in claimed)


def test_the_number_of_a_killed_process_is_free_again(tmp_path: Path, locks: list[int]) -> None:
    with started(CLAIM, str(tmp_path)) as process:
        claimed = int(line_of(process))
        assert claim_node(tmp_path) != claimed

        process.send_signal(signal.SIGKILL)
        process.wait()

        assert claim_node(tmp_path) == claimed
    assert len(locks) == 2


def test_a_child_that_outlives_its_parent_does_not_hold_the_parents_number(tmp_path: Path, locks: list[int]) -> None:
    with started(CLAIM_AND_START_A_CHILD, str(tmp_path)) as process:
        claimed = int(line_of(process))
        assert line_of(process) == "started"

        process.send_signal(signal.SIGKILL)
        process.wait()

        assert claim_node(tmp_path) == claimed
    assert len(locks) == 1


def test_a_forked_child_claims_a_number_of_its_own(tmp_path: Path) -> None:
    with started(FORK, TMPDIR=str(tmp_path)) as process:
        parent_before, child, parent_after = line_of(process), line_of(process).split(), line_of(process)

    assert parent_before == parent_after
    assert child[0] == child[1]
    assert child[0] != parent_before


def test_a_process_has_one_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: list[int]) -> None:
    monkeypatch.setattr(node, "_factories", {})
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    assert process_ids() is process_ids()
    assert len(locks) == 1
    assert (tmp_path / "penstock-nodes").stat().st_mode & 0o7777 == 0o1777


def test_a_configured_number_is_taken_as_it_is(locks: list[int]) -> None:
    for number in (0, 5, MAX_NODE):
        assert process_ids(number).next_value(1_700_000_000_000) >> 12 & MAX_NODE == number
    assert locks == []


def test_two_parts_of_a_process_with_a_configured_number_never_make_the_same_id() -> None:
    assert process_ids(5).next_id(1_700_000_000_000) != process_ids(5).next_id(1_700_000_000_000)


def test_threads_that_share_the_factory_never_make_the_same_id() -> None:
    factory = process_ids(6)
    threads, each = 8, 100_000
    start = Barrier(threads)

    def make(_: int) -> list[str]:
        start.wait(timeout=30)
        # A millisecond per id: the start of a millisecond is where a factory changes most.
        return [factory.next_id(1_700_000_000_000 + number) for number in range(each)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            ids = [made for run in pool.map(make, range(threads)) for made in run]
    finally:
        sys.setswitchinterval(before)

    assert len(set(ids)) == threads * each


def test_when_all_numbers_are_taken_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: list[int]
) -> None:
    monkeypatch.setattr(node, "MAX_NODE", 2)

    assert sorted(claim_node(tmp_path) for _ in range(3)) == [0, 1, 2]
    with pytest.raises(ResourceExhausted, match=r"all 3 node numbers .* set node.id"):
        claim_node(tmp_path)
    assert len(locks) == 3


def test_what_is_not_a_plain_file_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: list[int]
) -> None:
    monkeypatch.setattr(node, "MAX_NODE", 2)
    (tmp_path / "0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "1").symlink_to(tmp_path)

    assert claim_node(tmp_path) == 2
    assert not (tmp_path / "elsewhere").exists()
    assert len(locks) == 1


def test_names_of_other_hosts_start_the_search_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: list[int]
) -> None:
    claimed = set()
    for host in ("alpha", "beta", "gamma"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        (tmp_path / host).mkdir()
        claimed.add(claim_node(tmp_path / host))

    assert len(claimed) == 3
    assert len(locks) == 3

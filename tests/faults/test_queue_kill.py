"""A process killed at any moment loses nothing it confirmed, and brings back nothing it confirmed as deleted."""

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from penstock.domain.ids import TsidFactory
from penstock.engine.blocking_shell import BlockingShell
from penstock.engine.ledger import Ledger
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.policy import QueuePolicy, Window
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock

CHILD = Path(__file__).with_name("queue_child.py")
ROUNDS = 8
PLAIN = QueuePolicy()


class Story:
    """What the killed processes said, over all rounds."""

    def __init__(self) -> None:
        self.said: defaultdict[str, set[str]] = defaultdict(set)

    def run(self, directory: Path, number: int, lines: int) -> None:
        """Start a child, listen to some lines, kill it, and hear what it had still said."""
        command = [sys.executable, str(CHILD), str(directory), f"run{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(lines):
                self.note(child.stdout.readline())
            child.kill()
            for line in child.stdout:
                self.note(line)
        assert child.returncode == -9

    def note(self, line: str) -> None:
        assert line.endswith("\n"), f"the child ended by itself: {line!r}"
        word, name = line.split()
        self.said[word].add(name)

    def check(self, present: list[Entry]) -> None:
        names = [entry.message.id for entry in present]
        assert len(names) == len(set(names)), "a message is there twice"
        found = set(names)
        assert self.said["sent"] - self.said["delete"] <= found, "a confirmed message is lost"
        assert not found & self.said["deleted"], "a deleted message is back"
        assert found <= self.said["want"], "a message nobody sent"
        last: dict[tuple[str, str], int] = {}
        for entry in present:
            run, group, number = entry.message.id.split(":")
            assert int(number) > last.get((run, group), -1), "a group is out of order"
            last[run, group] = int(number)


def contents(directory: Path, *, delete: bool = False) -> list[Entry]:
    """Everything the queue holds, in order."""
    clock = VirtualClock()
    store = SqliteStore(directory / "queue.db")
    ledger = Ledger(store, TsidFactory(1), Window(messages=100, lookahead=1_000_000))
    ledger.catalog.open(clock.now_ms(), lambda _: PLAIN)
    shell = BlockingShell(ledger, clock)
    queue = ledger.catalog.queue("q")
    expected = queue.counters().total
    present: list[Entry] = []
    while entries := shell.receive(queue, 500):
        present += entries
        if delete:
            shell.commit(ledger.ack(queue, [entry.lease_id for entry in entries], clock.now_ms()))
    assert len(present) == expected
    assert [entry.seq for entry in present] == sorted(entry.seq for entry in present)
    store.close()
    return present


def test_killed_at_any_moment(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown when the test fails
    chance = random.Random(seed)
    story = Story()
    for number in range(ROUNDS):
        story.run(tmp_path, number, 1 + chance.randrange(1_500))
        story.check(contents(tmp_path))
    assert story.said["deleted"], "the rounds were too short to delete anything"
    contents(tmp_path, delete=True)
    assert contents(tmp_path) == []

"""The states of an entry: the diagram in the docs is the table in the code, and the engine keeps to both."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.message import Message
from penstock.domain.retry import RetryPolicy
from penstock.engine.queue.entry import TRANSITIONS, Entry, EntryState
from penstock.engine.queue.leased_queue import LeasedQueue
from penstock.engine.queue.policy import Grouping, QueuePolicy
from tests.rigs.search import examples

DIAGRAM = Path(__file__).parents[3] / "docs" / "explanation" / "queue.md"


def test_the_diagram_shows_exactly_the_transitions_of_the_code() -> None:
    arrows = re.findall(r"^\s+(\w+) --> (\w+):", DIAGRAM.read_text(encoding="utf-8"), re.MULTILINE)
    drawn = {(EntryState[source], EntryState[target]) for source, target in arrows}
    assert drawn == TRANSITIONS
    assert len(arrows) == len(drawn)


OPERATIONS = st.lists(
    st.sampled_from(["receive", "settle", "finish", "unsettle", "release", "delay", "advance", "move", "purge"]),
    max_size=60,
)


@settings(max_examples=examples(500))
@given(grouping=st.sampled_from(Grouping), late_ack=st.booleans(), operations=OPERATIONS)
def test_the_engine_makes_no_other_transition(grouping: Grouping, late_ack: bool, operations: list[str]) -> None:
    policy = QueuePolicy(
        grouping=grouping, late_ack=late_ack, lease_ms=1000, retry=RetryPolicy(0.5, 0.5), max_deliveries=3
    )
    queue = LeasedQueue(policy)
    entries = [Entry(n, Message(f"m{n}", b"", 0, 1, group=f"g{n % 3}")) for n in range(8)]
    queue.add(entries, 0)
    settling: list[Entry] = []
    now_ms = 0
    for operation in operations:
        before = [entry.state for entry in entries]
        leased = [entry for entry in entries if entry.state is EntryState.LEASED]
        match operation:
            case "receive":
                queue.receive(now_ms, 3)
            case "settle" if leased:
                settling.append(queue.settle(leased[0].lease_id, now_ms))
            case "finish" if settling:
                queue.finish(settling.pop())
            case "unsettle" if settling:
                queue.unsettle(settling.pop(), now_ms)
            case "release" | "delay" if leased:
                queue.release(leased[0].lease_id, now_ms, 0 if operation == "release" else None)
            case "move":
                settling += queue.take_for_move(now_ms, 1)
            case "purge":
                queue.purge()
                settling.clear()
            case "advance":
                now_ms += 600
                queue.advance(now_ms)
        after = [entry.state for entry in entries]
        moves = {(old, new) for old, new in zip(before, after, strict=True) if old is not new}
        assert moves <= TRANSITIONS

"""A lane keeps the messages of one group in order, however they leave and come back."""

import random

from penstock.domain.message import Message
from penstock.engine.queue.entry import DELAYED, GONE, Entry
from penstock.engine.queue.line import MessageLane


def entry(seq: int) -> Entry:
    return Entry(seq, Message(f"m{seq}", b"", 0, 1, "g"))


def lane_of(*seqs: int) -> MessageLane:
    return MessageLane("g", [entry(seq) for seq in seqs])


def waiting(lane: MessageLane) -> list[int]:
    return [found.seq for found in lane.waiting()]


def take(lane: MessageLane) -> Entry:
    first = lane.first()
    assert first is not None
    lane.pop()
    return first


def test_messages_leave_in_order() -> None:
    lane = lane_of(1, 2, 3)
    assert [take(lane).seq for _ in range(3)] == [1, 2, 3]
    assert lane.first() is None
    assert lane.waiting() == []


def test_a_message_comes_back_to_its_place() -> None:
    lane = lane_of(1, 2, 3, 4)
    one, two, three = take(lane), take(lane), take(lane)
    lane.put_back(two)
    assert waiting(lane) == [2, 4]
    lane.put_back(three)
    assert waiting(lane) == [2, 3, 4]
    lane.put_back(one)
    assert waiting(lane) == [1, 2, 3, 4]


def test_a_message_comes_back_to_an_empty_lane() -> None:
    lane = lane_of(1)
    only = take(lane)
    lane.put_back(only)
    lane.entries.append(entry(2))
    assert waiting(lane) == [1, 2]


def test_a_delayed_message_keeps_its_turn() -> None:
    lane = lane_of(1, 2)
    first = lane.first()
    assert first is not None
    first.state = DELAYED
    assert lane.first() is first
    assert waiting(lane) == [1, 2]


def test_a_message_settled_while_in_line_is_passed_over() -> None:
    lane = lane_of(1, 2, 3)
    for ghost in lane.waiting()[:2]:
        ghost.state = GONE
    assert waiting(lane) == [3]
    assert take(lane).seq == 3
    assert lane.first() is None


def test_a_copy_takes_the_place_of_the_ghost_it_stands_for() -> None:
    lane = lane_of(1, 2)
    lane.waiting()[0].state = GONE
    lane.put_back(entry(1))
    assert [take(lane).seq for _ in range(2)] == [1, 2]


def test_a_lane_forgets_what_has_left() -> None:
    lane = lane_of()
    for seq in range(10_000):
        lane.entries.append(entry(seq))
        lane.entries.append(entry(seq))
        assert take(lane).seq <= seq
        take(lane)
        assert len(lane.entries) <= 2
    lane.entries.append(entry(0))
    for seq in range(1, 10_000):  # never empty, so only the spent slots can go
        lane.entries.append(entry(seq))
        take(lane)
        assert len(lane.entries) < 100


def test_any_interleaving_keeps_the_order() -> None:
    chance = random.Random(4)
    for _ in range(200):
        lane, out, expected, seq = lane_of(), [], [], 0
        for _ in range(80):
            move = chance.randrange(3)
            if move == 0:
                seq += 1
                lane.entries.append(entry(seq))
                expected.append(seq)
            elif move == 1 and expected:
                taken = take(lane)
                assert taken.seq == expected.pop(0)
                out.append(taken)
            elif move == 2 and out:
                back = out.pop(chance.randrange(len(out)))
                lane.put_back(back)
                expected = sorted([*expected, back.seq])
            assert waiting(lane) == expected

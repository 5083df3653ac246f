"""The rules of order by example; tests/property/test_order.py has them for jobs at random."""

import pytest

from penstock.domain.job import NewJob
from penstock.domain.order import Position, chosen_sequence, first_of_lane, is_high_priority, tiered_sequence
from penstock.domain.pointer import DispatchMode
from penstock.events.store import LaneJob

BLOCK, NEXT, IMMEDIATE = DispatchMode.BLOCK_ON_ERROR, DispatchMode.NEXT_ON_ERROR, DispatchMode.IMMEDIATE
FAILED = Position(99, 20, "b")


def lane_of(mode: DispatchMode) -> list[LaneJob]:
    """A job before the one that failed, and one after it."""
    return [LaneJob(name, mode, 99, at_ms, 0, "P", 0, 0, 0) for name, at_ms in (("c", 30), ("a", 10))]


@pytest.mark.parametrize(
    ("mode", "blocker", "published"),
    [
        (BLOCK, FAILED, ["a"]),
        (BLOCK, None, ["a", "c"]),
        (NEXT, FAILED, ["a", "c"]),
        (IMMEDIATE, FAILED, ["a", "c"]),
    ],
)
def test_block_on_error_jobs_stop_at_a_failed_job_and_others_pass_it(
    mode: DispatchMode, blocker: Position | None, published: list[str]
) -> None:
    assert [job.id for job in first_of_lane(lane_of(mode), blocker, 10)] == published
    assert [job.id for job in first_of_lane(lane_of(mode), blocker, 1)] == ["a"]


@pytest.mark.parametrize("sequence", [-(2**31), -1, 0, 99, 2**31 - 1])
def test_priority_goes_before_every_sequence_and_does_not_change_the_one_that_was_chosen(sequence: int) -> None:
    first = tiered_sequence(sequence, high_priority=True)
    assert first < -(2**31)
    assert is_high_priority(first)
    assert not is_high_priority(sequence)
    assert chosen_sequence(first) == chosen_sequence(tiered_sequence(sequence, high_priority=False)) == sequence


@pytest.mark.parametrize(
    ("changes", "numbered"),
    [
        ({}, True),
        ({"group": ""}, True),
        ({"group": "", "mode": IMMEDIATE}, False),
        ({"event_id": None}, False),
        ({"subscription_id": None}, False),
        ({"id": "0A~R"}, False),
    ],
)
def test_jobs_of_events_with_a_key_or_in_order_are_numbered_and_copies_are_not(
    changes: dict[str, object], numbered: bool
) -> None:
    usual = {
        "id": "0A",
        "target": "http://h/",
        "created_at_ms": 1,
        "event_id": "e",
        "subscription_id": "s",
        "group": "k",
    }
    assert NewJob(**{**usual, **changes}).is_numbered is numbered  # type: ignore[arg-type]

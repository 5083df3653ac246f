"""A batch waits for more only while much arrives."""

from penstock.domain.pace.gather import GATHER_S, WORTHWHILE, GatherPace


def test_the_first_batch_is_followed_by_the_next_at_once() -> None:
    assert GatherPace().pause_s(500, 0.0) == 0


def test_nothing_waits_at_a_hundred_per_second() -> None:
    pace = GatherPace()
    assert {pace.pause_s(1, number / 100) for number in range(100)} == {0.0}


def test_a_lane_that_goes_one_by_one_does_not_wait() -> None:
    pace = GatherPace()
    assert {pace.pause_s(1, number / 500) for number in range(100)} == {0.0}


def test_batches_wait_while_enough_arrives_to_share_them() -> None:
    pace = GatherPace()
    pauses = [pace.pause_s(2 * WORTHWHILE, number * GATHER_S) for number in range(10)]
    assert pauses[0] == 0
    assert set(pauses[2:]) == {GATHER_S}


def test_the_wait_ends_with_the_load() -> None:
    pace = GatherPace()
    for number in range(10):
        pace.pause_s(2 * WORTHWHILE, number * GATHER_S)
    pauses = [pace.pause_s(1, 1 + number / 100) for number in range(10)]
    assert pauses[-1] == 0

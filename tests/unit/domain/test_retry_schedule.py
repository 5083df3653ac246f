"""When a failed job is tried again."""

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE, RetrySchedule


def test_the_default_schedule_is_six_delays_and_then_none() -> None:
    delays = [DEFAULT_RETRY_SCHEDULE.delay_ms(spent, 0) for spent in range(1, 8)]

    assert delays == [5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000, None]


def test_jitter_adds_up_to_a_fifth_and_never_takes_away() -> None:
    schedule = RetrySchedule((100,))

    assert [schedule.delay_ms(1, jitter) for jitter in (0.0, 0.5, 1.0)] == [100_000, 110_000, 120_000]


def test_a_longer_retry_after_is_waited_out_and_a_shorter_one_is_not() -> None:
    assert DEFAULT_RETRY_SCHEDULE.delay_ms(1, 0, retry_after_s=60) == 60_000
    assert DEFAULT_RETRY_SCHEDULE.delay_ms(1, 0, retry_after_s=1) == 5_000


def test_an_attempt_that_spent_nothing_waits_the_first_delay() -> None:
    assert DEFAULT_RETRY_SCHEDULE.delay_ms(0, 0) == 5_000


def test_a_schedule_without_delays_gives_up_at_once() -> None:
    assert RetrySchedule(()).delay_ms(1, 0) is None


@pytest.mark.parametrize("delay_s", [-1, 8 * 24 * 3600])
def test_a_delay_out_of_bounds_is_refused(delay_s: float) -> None:
    with pytest.raises(InvalidArgument, match=str(delay_s)):
        RetrySchedule((delay_s,))

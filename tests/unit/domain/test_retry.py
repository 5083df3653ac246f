"""Back-off: the formula of BR-015 as a table."""

import pytest

from penstock.domain.retry import RetryPolicy


@pytest.mark.parametrize(
    ("minimum_s", "maximum_s", "delays_ms"),
    [
        (10, 600, [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]),
        (1, 5, [1_000, 2_000, 4_000, 5_000, 5_000]),
        (7, 7, [7_000, 7_000, 7_000]),
        (0, 600, [0, 0, 0]),
        (0, 0, [0, 0]),
        (0.001, 0.003, [1, 2, 3, 3]),
        (1.001, 10, [1_001, 2_002, 4_004, 8_008, 10_000]),
    ],
)
def test_delay_doubles_with_each_attempt_up_to_the_maximum(
    minimum_s: float, maximum_s: float, delays_ms: list[int]
) -> None:
    policy = RetryPolicy(minimum_backoff_s=minimum_s, maximum_backoff_s=maximum_s)

    assert [policy.delay_ms(attempt) for attempt in range(1, len(delays_ms) + 1)] == delays_ms


def test_defaults_are_10_and_600_seconds() -> None:
    assert RetryPolicy() == RetryPolicy(minimum_backoff_s=10, maximum_backoff_s=600)


@pytest.mark.parametrize("attempt", [41, 42, 1_000, 10**9])
def test_late_attempts_wait_the_maximum_and_no_more(attempt: int) -> None:
    assert RetryPolicy().delay_ms(attempt) == 600_000


def test_before_the_first_attempt_the_delay_is_the_minimum() -> None:
    assert RetryPolicy().delay_ms(0) == 10_000

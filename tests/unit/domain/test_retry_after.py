"""The Retry-After header in both of its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.outcome import MAX_DELAY_S, retry_after_s

NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("header", "delay_s"),
    [
        ("1", 1),
        ("30", 30),
        ("  30\t", 30),
        ("0", 1),
        ("007", 7),
        ("43201", MAX_DELAY_S),
        ("9" * 10_000, MAX_DELAY_S),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10),
        ("Sun Nov  6 08:49:47 1994", 10),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 1),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_DELAY_S),
    ],
)
def test_a_number_or_a_date(header: str, delay_s: int) -> None:
    assert retry_after_s(header, NOW_MS) == delay_s


def test_a_part_of_a_second_is_rounded_up() -> None:
    assert retry_after_s("Sun, 06 Nov 1994 08:49:47 GMT", NOW_MS + 1) == 10
    assert retry_after_s("Sun, 06 Nov 1994 08:49:47 GMT", NOW_MS + 999) == 10
    assert retry_after_s("Sun, 06 Nov 1994 08:49:47 GMT", NOW_MS + 1000) == 9


@pytest.mark.parametrize(
    "header", ["", " ", "soon", "-1", "+5", "1.5", "1,2", "٣", "0x10", "Sun, 99 Nov 1994 08:49:37 GMT"]
)
def test_anything_else_says_nothing(header: str) -> None:
    assert retry_after_s(header, NOW_MS) is None


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,9} [0-9:]{1,20} ?[A-Z+0-9-]*"))
def test_never_raises_and_stays_within_the_limits(header: str) -> None:
    delay_s = retry_after_s(header, NOW_MS)
    assert delay_s is None or 1 <= delay_s <= MAX_DELAY_S

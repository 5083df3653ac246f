"""The rate limit against its definition: never more than N permits in any 60 seconds, and never less than it could."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.pace.rate import WINDOW_MS, SlidingWindow

LIMITS = st.integers(1, 6)
# Steps around the window's edges, where an error by one would be.
STEPS_MS = st.one_of(
    st.sampled_from([0, 1, WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + 1]), st.integers(0, 2 * WINDOW_MS), st.integers(0, 50)
)
# A number of milliseconds to wait and then take a permit, or another limit.
ACTIONS = st.lists(st.one_of(STEPS_MS, st.builds(str, LIMITS)), max_size=60)


def in_window(granted_ms: list[int], now_ms: int) -> int:
    """How many permits were granted in the 60 seconds up to now, both ends included."""
    return sum(now_ms - WINDOW_MS <= each <= now_ms for each in granted_ms)


@given(LIMITS, ACTIONS)
def test_a_permit_is_granted_exactly_if_the_last_minute_has_room_for_it(limit: int, actions: list[int | str]) -> None:
    window, now_ms, granted_ms = SlidingWindow(limit), 0, list[int]()
    for action in actions:
        if isinstance(action, str):
            limit = int(action)
            window.change_limit(limit)
            continue
        now_ms += action
        has_room = in_window(granted_ms, now_ms) < limit
        assert window.take(now_ms) is has_room
        if has_room:
            granted_ms.append(now_ms)


@given(LIMITS, ACTIONS)
def test_a_permit_is_ready_when_it_says_and_not_a_millisecond_before(limit: int, actions: list[int | str]) -> None:
    window, now_ms = SlidingWindow(limit), 0
    for action in actions:
        if isinstance(action, str):
            window.change_limit(int(action))
            continue
        now_ms += action
        ready_ms = window.ready_at_ms(now_ms)
        assert ready_ms >= now_ms
        if ready_ms > now_ms:
            assert not window.take(ready_ms - 1)
        assert window.take(ready_ms)
        now_ms = ready_ms


@given(LIMITS, st.lists(STEPS_MS, max_size=20))
def test_looking_takes_nothing(limit: int, steps_ms: list[int]) -> None:
    watched, other, now_ms = SlidingWindow(limit), SlidingWindow(limit), 0
    for step_ms in steps_ms:
        now_ms += step_ms
        for _ in range(3):
            watched.ready_at_ms(now_ms)
            watched.is_unused(now_ms)
        assert watched.take(now_ms) is other.take(now_ms)


@given(LIMITS)
def test_a_burst_of_the_whole_limit_is_allowed(limit: int) -> None:
    window = SlidingWindow(limit)
    assert [window.take(5) for _ in range(limit + 1)] == [True] * limit + [False]
    assert window.ready_at_ms(5) == 5 + WINDOW_MS + 1
    assert [window.take(5 + WINDOW_MS + 1) for _ in range(limit + 1)] == [True] * limit + [False]


@given(LIMITS, STEPS_MS)
def test_it_is_unused_when_a_new_one_would_allow_the_same(limit: int, passed_ms: int) -> None:
    window = SlidingWindow(limit)
    assert window.is_unused(0)
    window.take(0)
    assert window.is_unused(passed_ms) is (passed_ms > WINDOW_MS)

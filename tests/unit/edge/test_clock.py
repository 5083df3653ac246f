"""The clocks: the system's, which a step of the machine's clock neither stops nor moves, and the virtual one."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.clock import SlewedTime, SystemClock, wall_ms
from penstock.testing.clock import VirtualClock

SECOND_NS = 1_000_000_000
MINUTE_S = 60


class Machine:
    """A wall clock that can be set, and a steady one that cannot."""

    def __init__(self) -> None:
        self.steady_ns = 77 * SECOND_NS
        self.set_ns = 1_000_000 * SECOND_NS
        self.time = SlewedTime(lambda: self.steady_ns + self.set_ns, lambda: self.steady_ns)

    def passed_s(self, seconds: float, step_s: float = 1.0) -> float:
        """How far the time moves while so much time passes and it is read at every step."""
        before_ms = self.time.now_ms()
        for _ in range(round(seconds / step_s)):
            self.steady_ns += round(step_s * SECOND_NS)
            self.time.now_ms()
        return (self.time.now_ms() - before_ms) / 1000

    @property
    def behind_s(self) -> float:
        """How far the wall clock is ahead."""
        return (self.steady_ns + self.set_ns) / SECOND_NS - self.time.now_ms() / 1000


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000 * SECOND_NS), st.integers(-(10**16), 10**16)),
        min_size=1,
        max_size=30,
    )
)
def test_time_passes_nearly_as_it_does_whatever_the_wall_clock_is_set_to(moves: list[tuple[int, int]]) -> None:
    machine = Machine()
    shown_ms = [machine.time.now_ms()]
    for passed_ns, set_by_ns in moves:
        machine.set_ns += set_by_ns
        machine.steady_ns += passed_ns
        shown_ms.append(machine.time.now_ms())
    for (earlier, later), (passed_ns, _) in zip(pairwise(shown_ms), moves, strict=True):
        assert 0.95 * passed_ns / 1_000_000 - 2 <= later - earlier <= 1.05 * passed_ns / 1_000_000 + 2


@pytest.mark.parametrize("step_s", [-600, 3600])
def test_a_step_is_made_up_for_gently(step_s: int) -> None:
    machine = Machine()
    machine.passed_s(10)
    machine.set_ns += step_s * SECOND_NS
    assert machine.passed_s(MINUTE_S) == pytest.approx(MINUTE_S, abs=4)
    assert abs(machine.behind_s) < abs(step_s)
    machine.passed_s(20 * abs(step_s))
    assert machine.behind_s == pytest.approx(0, abs=0.01)
    assert machine.passed_s(MINUTE_S) == pytest.approx(MINUTE_S, abs=0.01)


def test_a_process_that_does_not_ask_for_long_does_not_overshoot() -> None:
    machine = Machine()
    machine.passed_s(10)
    machine.set_ns += 2 * SECOND_NS
    machine.passed_s(10)
    machine.passed_s(100_000, step_s=100_000)
    assert machine.behind_s == pytest.approx(0, abs=0.01)


def test_system_clock_shows_the_machines_time() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert SystemClock().now_ms() == pytest.approx(now_ms, abs=1_000)
    assert wall_ms(SystemClock()) == pytest.approx(now_ms, abs=1_000)
    assert wall_ms(VirtualClock(start_ms=5)) == 5


def test_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(start_ms=1_000)

    assert clock.now_ms() == clock.now_ms() == 1_000
    clock.advance(0.0015)
    clock.advance(10.1)
    clock.advance(0)
    assert clock.now_ms() == 11_102


def test_virtual_clock_does_not_run_backwards() -> None:
    clock = VirtualClock(start_ms=1_000)

    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-0.001)
    assert clock.now_ms() == 1_000

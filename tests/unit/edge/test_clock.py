"""The clocks: the machine's, which never goes backwards here, and the virtual one."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.clock import SystemClock
from penstock.testing.clock import VirtualClock


@given(st.lists(st.integers(0, 10**20), min_size=1, max_size=30))
def test_system_clock_never_goes_backwards(machine_ns: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        readings = iter(machine_ns)
        patch.setattr(time, "time_ns", lambda: next(readings))
        clock = SystemClock()
        shown_ms = [clock.now_ms() for _ in machine_ns]

    assert all(earlier <= later for earlier, later in pairwise(shown_ms))
    latest_ns = 0
    for reading_ns, reading_ms in zip(machine_ns, shown_ms, strict=True):
        latest_ns = max(latest_ns, reading_ns)
        assert reading_ms == latest_ns // 1_000_000


def test_system_clock_stands_still_until_the_machine_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([5_000_000_000, 2_000_000_000, 4_999_999_999, 5_000_000_000, 5_001_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(readings))
    clock = SystemClock()

    assert [clock.now_ms() for _ in range(5)] == [5_000, 5_000, 5_000, 5_000, 5_001]


def test_system_clock_shows_the_machines_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    shown_ms = SystemClock().now_ms()

    assert before_ms <= shown_ms <= time.time_ns() // 1_000_000


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

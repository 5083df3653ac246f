"""The clocks: the system's, which a step of the machine's clock neither stops nor moves, and the virtual one."""

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge import clock as system
from penstock.edge.clock import CLOCK_FILE, FollowedClock, KeptTime, SlewedTime, SystemClock, wall_ms
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


HOUR_MS = 3_600_000


@pytest.fixture
def process_time(monkeypatch: pytest.MonkeyPatch) -> SlewedTime:
    """The time of this process, for a test that changes it."""
    made = SlewedTime(time.time_ns, system._steady_ns)
    monkeypatch.setattr(system, "_of_process", made)
    return made


def now_ms_of_a_new_process(clock_file: Path) -> int:
    program = "from penstock.edge.clock import SystemClock; print(SystemClock().now_ms())"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, CLOCK_FILE: str(clock_file)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(ran.stdout)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_part_has_the_time_of_those_that_run(tmp_path: Path, process_time: SlewedTime, ahead_ms: int) -> None:
    process_time.start_at(time.time_ns() + ahead_ms * 1_000_000)
    KeptTime(tmp_path / "clock").keep()
    before_ms = SystemClock().now_ms()
    shown_ms = now_ms_of_a_new_process(tmp_path / "clock")
    assert before_ms <= shown_ms <= SystemClock().now_ms() + 100
    assert now_ms_of_a_new_process(tmp_path / "missing") == pytest.approx(time.time() * 1000, abs=30_000)


def test_time_goes_on_where_the_last_run_ended_although_the_clock_was_set_back(
    tmp_path: Path, process_time: SlewedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptTime(tmp_path / "clock")
    process_time.start_at(time.time_ns() + HOUR_MS * 1_000_000)
    kept.keep()
    last_ms = SystemClock().now_ms()
    monkeypatch.setattr(system, "_of_process", SlewedTime(time.time_ns, system._steady_ns))
    assert SystemClock().now_ms() < last_ms - HOUR_MS / 2
    assert kept.resume()
    assert SystemClock().now_ms() >= last_ms


def test_a_kept_time_of_more_than_a_day_ahead_is_not_believed(
    tmp_path: Path, process_time: SlewedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptTime(tmp_path / "clock")
    process_time.start_at(time.time_ns() + 25 * HOUR_MS * 1_000_000)
    kept.keep()
    monkeypatch.setattr(system, "_of_process", SlewedTime(time.time_ns, system._steady_ns))
    assert not kept.resume()
    assert SystemClock().now_ms() == pytest.approx(time.time() * 1000, abs=30_000)


@pytest.mark.parametrize("content", [b"", b"short", b"much longer than it should be"])
def test_a_file_that_is_damaged_changes_nothing(tmp_path: Path, process_time: SlewedTime, content: bytes) -> None:
    (tmp_path / "clock").write_bytes(content)
    kept = KeptTime(tmp_path / "clock")
    assert kept.resume()
    kept.follow()
    assert SystemClock().now_ms() == pytest.approx(time.time() * 1000, abs=30_000)


class OtherMachine(Machine):
    """A machine that is asked for its time over a network."""

    def __init__(self) -> None:
        super().__init__()
        self.there_ns = self.back_ns = 1_000_000

    def ask_us(self) -> int:
        self.steady_ns += self.there_ns
        now_ns = self.steady_ns + self.set_ns
        self.steady_ns += self.back_ns
        return now_ns // 1000

    def pass_minute(self, clock: FollowedClock, *, asking: bool) -> None:
        for _ in range(MINUTE_S):
            self.steady_ns += SECOND_NS
            clock.now_ms()
            if asking:
                clock.ask()

    def error_ms(self, clock: FollowedClock) -> float:
        return clock.now_ms() - (self.steady_ns + self.set_ns) / 1_000_000


def test_the_clock_of_another_machine_is_followed() -> None:
    other = OtherMachine()
    clock = FollowedClock(other.ask_us, lambda: other.steady_ns)
    assert abs(other.error_ms(clock)) <= 2
    # The process sleeps before it looks at an answer: that says nothing about the time.
    other.back_ns = 9 * SECOND_NS
    clock.ask()
    other.pass_minute(clock, asking=False)
    assert abs(other.error_ms(clock)) <= 2
    # The other clock is set: this one comes closer, and never jumps.
    other.back_ns = 1_000_000
    other.set_ns += SECOND_NS
    clock.ask()
    assert -1002 <= other.error_ms(clock) <= -900
    other.pass_minute(clock, asking=False)
    assert abs(other.error_ms(clock)) <= 2


def test_a_way_that_has_become_longer_is_taken() -> None:
    other = OtherMachine()
    clock = FollowedClock(other.ask_us, lambda: other.steady_ns)
    other.there_ns = other.back_ns = 50_000_000
    other.set_ns += SECOND_NS
    for _ in range(2):
        other.pass_minute(clock, asking=True)
    assert abs(other.error_ms(clock)) <= 51

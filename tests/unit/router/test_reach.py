"""The time in which a process runs: a stop of the process is not a silence of its queues (ROUTER-HEALTH-6)."""

import pytest

from penstock.router.intake.reach import RunningTime


class Wall:
    """Milliseconds that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def ticked(time: RunningTime, wall: Wall, times: int) -> None:
    """Let a running process tick."""
    for _ in range(times):
        wall.ms += 5000
        time.tick()


def test_while_the_process_runs_it_passes_as_usual() -> None:
    wall = Wall()
    time = RunningTime(wall.now_ms)
    time.tick()
    start_ms = time.now_ms()
    ticked(time, wall, 12)
    wall.ms += 700
    assert time.now_ms() - start_ms == 60_700


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_stop_counts_as_two_ticks_whoever_notices_it_first(reads_first: bool) -> None:
    wall = Wall()
    time = RunningTime(wall.now_ms)
    time.tick()
    start_ms = time.now_ms()
    wall.ms += 90_000
    if reads_first:
        assert time.now_ms() - start_ms == 10_000
    time.tick()
    assert time.now_ms() - start_ms == 10_000
    ticked(time, wall, 2)
    assert time.now_ms() - start_ms == 20_000


def test_ticks_that_come_a_little_late_take_nothing_away() -> None:
    wall = Wall()
    time = RunningTime(wall.now_ms)
    time.tick()
    start_ms = time.now_ms()
    for _ in range(6):
        wall.ms += 10_000
        time.tick()
    assert time.now_ms() - start_ms == 60_000


def test_without_ticks_all_time_counts() -> None:
    wall = Wall()
    time = RunningTime(wall.now_ms)
    start_ms = time.now_ms()
    wall.ms += 90_000
    assert time.now_ms() - start_ms == 90_000

"""A rate shared by tasks that know nothing of each other."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.history.replay.timetable import Timetable, places, timetable

COUNTS = st.lists(st.integers(0, 5000), min_size=1, max_size=12)
START_MS = 1_700_000_000_000


def most_in_a_second(times_ms: list[int]) -> int:
    times_ms = sorted(times_ms)
    most = first = 0
    for last, time_ms in enumerate(times_ms):
        while times_ms[first] <= time_ms - 1000:
            first += 1
        most = max(most, last - first + 1)
    return most


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_every_place_of_a_round_belongs_to_one_part(shares: list[int]) -> None:
    owned = [place for part in range(len(shares)) for place in places(shares, part)]
    assert sorted(owned) == list(range(sum(shares)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_places_are_spread_evenly(shares: list[int]) -> None:
    size = sum(shares)
    for part, share in enumerate(shares):
        for number, place in enumerate(places(shares, part)):
            # Where it would be on its own, give or take one place for each other part.
            assert abs(place - (2 * number + 1) * size / (2 * share)) <= len(shares)


@given(
    per_s=st.integers(1, 700),
    counts=COUNTS,
    delays=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2500)), min_size=1, max_size=300),
    starts=st.lists(st.integers(-500, 4000), min_size=12, max_size=12),
)
def test_never_more_than_the_rate_whatever_the_tasks_do(
    per_s: int, counts: list[int], delays: list[tuple[int, int]], starts: list[int]
) -> None:
    shared = timetable(START_MS, per_s, counts)
    slots = [shared.slots_of(part) for part in range(len(counts))]
    now_ms = [START_MS + starts[part] for part in range(len(counts))]
    taken: list[int] = []
    for number, delay_ms in delays:
        part = number % len(counts)
        # A task that asks again at once, in time, or late.
        now_ms[part] = max(now_ms[part], slots[part].take(now_ms[part])) + delay_ms
        taken.append(now_ms[part] - delay_ms)
        assert taken[-1] >= START_MS
    assert most_in_a_second(taken) <= per_s
    assert max(Counter(taken).values()) <= -(-per_s // 1000)


@given(per_s=st.integers(1, 50), counts=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_all_together_use_the_whole_rate(per_s: int, counts: list[int]) -> None:
    shared = timetable(START_MS, per_s, counts)
    due = [
        slots.take(0) for part, count in enumerate(counts) for slots in [shared.slots_of(part)] for _ in range(count)
    ]
    # Few enough jobs for each to have a place in the round: they take exactly as long as the rate says.
    assert sorted(due) == [shared.time_ms(slot) for slot in range(sum(counts))]


def test_a_part_with_most_of_the_jobs_has_most_of_the_rate() -> None:
    shared = timetable(START_MS, 100, [1_000_000, 10, 0, 0])
    slots = shared.slots_of(0)
    times_ms = [slots.take(0) for _ in range(1000)]
    assert times_ms[-1] - START_MS < 1.05 * 10_000


def test_a_late_task_takes_no_slot_that_is_past() -> None:
    slots = Timetable(START_MS, 10, (1, 1)).slots_of(1)
    assert slots.take(START_MS) == START_MS + 100
    assert slots.take(START_MS + 901) == START_MS + 1100
    assert slots.take(START_MS + 901) == START_MS + 1300

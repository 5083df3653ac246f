"""Statistics of deliveries: rows merge exactly, percentiles stay in their bucket, leaders keep their bounds."""

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.outcome import AttemptOutcome
from penstock.events.statistics.facts import Fact
from penstock.events.statistics.minutes import (
    BUCKETS,
    COARSE_BOUNDS_MS,
    LATENCY_BOUNDS_MS,
    Leader,
    Leaders,
    count,
    count_leaders,
    joined,
    leading,
    percentile_ms,
    refined,
    summed,
)

NOON_MS = 1_700_000_000_000

names = st.sampled_from(["a", "b", "ü", ""]) | st.none()
facts = st.lists(
    st.builds(
        Fact,
        at_ms=st.integers(NOON_MS, NOON_MS + 180_000),
        outcome=st.sampled_from(AttemptOutcome),
        duration_ms=st.integers(0, 100_000),
        was_sent=st.booleans(),
        waited_ms=st.none() | st.integers(0, 10**9),
        pool=names,
        endpoint=names,
        subscription_id=names,
        group_key=names,
        repaired=st.booleans(),
    ),
    max_size=40,
)
groups = st.lists(st.sampled_from("abcdefghij"), max_size=60)


@given(facts, facts)
def test_counting_in_two_batches_is_counting_at_once(some: list[Fact], more: list[Fact]) -> None:
    assert sorted(summed([*count(some), *count(more)]), key=repr) == sorted(count(some + more), key=repr)


@given(facts)
def test_every_fact_is_counted_once_in_each_dimension(given_facts: list[Fact]) -> None:
    rows = count(given_facts)

    for by in {row.by for row in rows}:
        of_dimension = [row for row in rows if row.by is by]
        assert sum(row.attempts for row in of_dimension) == len(given_facts)
        assert sum(sum(row.latency) for row in of_dimension) == sum(fact.was_sent for fact in given_facts)
        assert sum(row.waits for row in of_dimension) == sum(fact.waited_ms is not None for fact in given_facts)


@given(st.lists(st.integers(0, 59_999), min_size=1), st.floats(0.01, 1))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(durations_ms: list[int], share: float) -> None:
    latency = [0] * BUCKETS
    for duration_ms in durations_ms:
        latency[bisect_left(LATENCY_BOUNDS_MS, duration_ms)] += 1
    true_ms = sorted(durations_ms)[ceil(share * len(durations_ms)) - 1]
    place = bisect_left(LATENCY_BOUNDS_MS, true_ms)

    told_ms = percentile_ms(latency, share)

    assert told_ms is not None
    assert (0, *LATENCY_BOUNDS_MS)[place] <= told_ms <= LATENCY_BOUNDS_MS[place]


def test_percentiles_are_within_a_third_of_the_truth_from_5_ms_on() -> None:
    assert list(LATENCY_BOUNDS_MS) == sorted(set(LATENCY_BOUNDS_MS))
    assert all(upper <= lower * 4 / 3 for lower, upper in pairwise(LATENCY_BOUNDS_MS) if lower >= 5)
    assert LATENCY_BOUNDS_MS[-1] == COARSE_BOUNDS_MS[-1] == 60_000
    latency = [0] * BUCKETS
    latency[bisect_left(LATENCY_BOUNDS_MS, 650)] = 100
    assert 600 < (percentile_ms(latency, 0.95) or 0) <= 800


def test_minutes_of_coarse_buckets_are_read_with_all_their_counts() -> None:
    old = tuple(range(1, len(COARSE_BOUNDS_MS) + 2))
    new = refined(old)
    assert (len(new), sum(new), refined(new)) == (BUCKETS, sum(old), new)
    for bound, counted in zip(COARSE_BOUNDS_MS, old, strict=False):
        assert new[bisect_left(LATENCY_BOUNDS_MS, bound)] == counted
    assert new[-1] == old[-1]


def test_an_empty_histogram_has_no_percentile() -> None:
    assert percentile_ms([0] * BUCKETS, 0.5) is None


@given(st.lists(groups, max_size=8), st.integers(1, 5))
def test_leaders_keep_their_bounds_over_any_merges(batches: list[list[str]], most: int) -> None:
    true = Counter(group for batch in batches for group in batch)
    together = Leaders()
    for batch in batches:
        counted = (Leader(group, attempts) for group, attempts in Counter(batch).items())
        together = joined(together, leading(counted, most), most)

    held = {leader.group_key: leader for leader in together.held}
    assert len(held) <= most
    for group, attempts in true.items():
        if group in held:
            assert attempts <= held[group].attempts <= attempts + held[group].error
        else:
            assert attempts <= together.floor


@given(facts)
def test_few_groups_are_counted_exactly(given_facts: list[Fact]) -> None:
    for minute_ms, leaders in count_leaders(given_facts).items():
        of_minute = [fact for fact in given_facts if fact.minute_ms == minute_ms and fact.group_key is not None]
        assert leaders.floor == 0
        assert {leader.group_key: leader.attempts for leader in leaders.held} == Counter(
            fact.group_key for fact in of_minute
        )
        assert sum(leader.busy_ms for leader in leaders.held) == sum(fact.duration_ms for fact in of_minute)

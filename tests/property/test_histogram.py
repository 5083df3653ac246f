from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.sketch import Histogram

BOUNDS = (0.1, 1.0, 10.0)
VALUES = st.lists(st.floats(0, 100), max_size=50)


def histogram(values: list[float]) -> Histogram:
    made = Histogram(BOUNDS)
    for value in values:
        made.observe(value)
    return made


@given(VALUES)
def test_each_bound_has_the_values_at_or_below_it(values: list[float]) -> None:
    made = histogram(values)

    at_or_below = [sum(value <= bound for value in values) for bound in BOUNDS]
    assert made.cumulative() == [*at_or_below, len(values)]
    assert made.count == len(values)
    assert made.total == pytest.approx(sum(values))
    assert made.mean == pytest.approx(sum(values) / len(values) if values else 0)


@given(VALUES, VALUES)
def test_merging_is_as_counting_everything_in_one(left: list[float], right: list[float]) -> None:
    merged = histogram(left)
    merged.merge(histogram(right))

    assert merged.cumulative() == histogram(left + right).cumulative()
    assert merged.total == pytest.approx(sum(left) + sum(right))


@given(st.floats(0, 100))
def test_one_value_falls_into_one_bucket(value: float) -> None:
    assert histogram([value]).cumulative().count(0) == bisect_left(BOUNDS, value)


def test_histograms_of_other_bounds_do_not_merge() -> None:
    with pytest.raises(ValueError, match="different bounds"):
        Histogram(BOUNDS).merge(Histogram((0.5,)))

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.sketch import TopK

STREAM = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 100)), max_size=200)


def sketch(stream: list[tuple[str, int]], capacity: int) -> TopK:
    made = TopK(capacity)
    for key, weight in stream:
        made.add(key, weight)
    return made


def true_weights(stream: list[tuple[str, int]]) -> Counter[str]:
    weights: Counter[str] = Counter()
    for key, weight in stream:
        weights[key] += weight
    return weights


@given(STREAM, st.integers(1, 8))
def test_a_weight_is_never_too_small_and_too_large_by_its_error_at_most(
    stream: list[tuple[str, int]], capacity: int
) -> None:
    weights = true_weights(stream)
    total = sum(weights.values())

    for heavy in sketch(stream, capacity).heaviest(capacity):
        assert weights[heavy.key] <= heavy.weight <= weights[heavy.key] + heavy.error
        assert heavy.error * capacity <= total


@given(STREAM, st.integers(1, 8))
def test_every_key_heavier_than_its_share_is_held(stream: list[tuple[str, int]], capacity: int) -> None:
    weights = true_weights(stream)
    total = sum(weights.values())
    held = {heavy.key for heavy in sketch(stream, capacity).heaviest(capacity)}

    assert {key for key, weight in weights.items() if weight * capacity > total} <= held
    assert len(held) == min(capacity, len(weights))


@given(STREAM)
def test_with_room_for_all_it_is_exact(stream: list[tuple[str, int]]) -> None:
    found = sketch(stream, 10).heaviest(10)

    assert {heavy.key: heavy.weight for heavy in found} == dict(true_weights(stream))
    assert all(heavy.error == 0 for heavy in found)


@given(STREAM, st.integers(1, 8), st.integers(0, 10))
def test_the_heaviest_stand_first(stream: list[tuple[str, int]], capacity: int, most: int) -> None:
    found = sketch(stream, capacity).heaviest(most)

    assert found == sorted(found, key=lambda heavy: (-heavy.weight, heavy.key))
    assert len(found) <= min(most, capacity)


def test_memory_does_not_grow_with_the_keys() -> None:
    made = TopK(10)
    for number in range(10_000):
        made.add(f"group-{number}", 1)
        made.add("heavy", 2)

    assert made.heaviest(1)[0].key == "heavy"
    assert len(made._weights) == len(made._errors) == len(made._lightest) == 10


def test_a_sketch_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one place"):
        TopK(0)

"""Which partition a group goes to: the vectors of the specification, and what every caller relies on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.message import fnv1a_32, partition_of
from tests.rigs.search import examples

VECTORS = {"a": 0xE40C292C, "alpha": 0x5D8B6DAB, "beta": 0xAF81E4C7, "gamma": 0xD029140A, "delta": 0x6B017C21}


@pytest.mark.parametrize(("text", "digest"), VECTORS.items())
def test_the_hash_is_fnv1a_with_32_bits(text: str, digest: int) -> None:
    assert fnv1a_32(text) == digest


def test_the_hash_is_over_utf8_bytes() -> None:
    assert fnv1a_32("") == 2166136261
    assert fnv1a_32("é") == ((((2166136261 ^ 0xC3) * 16777619 & 0xFFFFFFFF) ^ 0xA9) * 16777619) & 0xFFFFFFFF


def test_the_vectors_at_four_partitions() -> None:
    assert [partition_of(group, 4) for group in VECTORS] == [0, 3, 3, 2, 1]
    assert [partition_of(f"g{index}", 4) for index in range(8)] == [2, 1, 0, 3, 2, 1, 0, 3]


@pytest.mark.parametrize("count", [0, 1])
def test_one_partition_takes_everything(count: int) -> None:
    assert {partition_of(group, count) for group in VECTORS} == {0}


def test_a_message_without_a_group_goes_to_the_first_partition() -> None:
    assert partition_of("", 32) == 0


@settings(max_examples=examples(500))
@given(st.text(max_size=128), st.sampled_from([2, 4, 8, 16, 32]))
def test_a_group_stays_in_one_partition(group: str, count: int) -> None:
    partition = partition_of(group, count)

    assert 0 <= partition < count
    assert partition == partition_of(group, count)
    if group:
        assert partition == fnv1a_32.__wrapped__(group) % count

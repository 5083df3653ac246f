"""TSIDs: their text, their order, and that no two are the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.ids import CROCKFORD, EPOCH_MS, MAX_NODE, TsidFactory, decode_tsid, encode_tsid, tsid_time_ms

NOW_MS = 1_700_000_000_000
PER_MILLISECOND = 4096

values = st.integers(0, 2**64 - 1)
nodes = st.integers(0, MAX_NODE)
# Small steps back and forth: the clock stands still, jumps ahead, and is set back.
clocks = st.lists(st.integers(NOW_MS - 3, NOW_MS + 3), min_size=1, max_size=50)


def test_alphabet_is_crockfords() -> None:
    assert CROCKFORD == "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    assert list(CROCKFORD) == sorted(CROCKFORD)


@given(values)
def test_text_has_13_characters_of_the_alphabet_and_reads_back(value: int) -> None:
    text = encode_tsid(value)

    assert len(text) == 13
    assert set(text) <= set(CROCKFORD)
    assert decode_tsid(text) == value
    assert decode_tsid(text.lower()) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0000000000000"),
        (31, "000000000000Z"),
        (32, "0000000000010"),
        (1 << 60, "1000000000000"),
        (2**64 - 1, "FZZZZZZZZZZZZ"),
    ],
)
def test_text_of_known_values(value: int, text: str) -> None:
    assert encode_tsid(value) == text
    assert decode_tsid(text) == value


@given(values, values)
def test_texts_sort_as_the_numbers_do(one: int, other: int) -> None:
    assert (encode_tsid(one) < encode_tsid(other)) == (one < other)


def test_letters_that_look_like_digits_are_read_as_digits() -> None:
    assert decode_tsid("0OoIiLl100000") == decode_tsid("0001111100000")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "13 characters, got 0"),
        ("000000000000", "13 characters, got 12"),
        ("00000000000000", "13 characters, got 14"),
        ("000000000000U", "'U' is not a Crockford"),
        ("00000-0000000", "'-' is not a Crockford"),
        ("00000000000 0", "' ' is not a Crockford"),
        ("000000000000٣", "is not a Crockford"),
        ("G000000000000", "larger than 64 bits"),
        ("ZZZZZZZZZZZZZ", "larger than 64 bits"),
    ],
)
def test_text_that_is_no_id_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode_tsid(text)


@given(nodes, clocks)
def test_ids_of_one_factory_increase_whatever_the_clock_does(node: int, clock: list[int]) -> None:
    factory = TsidFactory(node)

    ids = [factory.next_id(now_ms) for now_ms in clock for _ in range(3)]

    assert all(earlier < later for earlier, later in pairwise(ids))


@given(nodes, clocks)
def test_text_and_number_are_the_same_id(node: int, clock: list[int]) -> None:
    numbers, texts = TsidFactory(node), TsidFactory(node)

    for now_ms in clock:
        assert texts.next_id(now_ms) == encode_tsid(numbers.next_value(now_ms))


@given(nodes, st.lists(st.tuples(st.integers(NOW_MS - 3, NOW_MS + 3), st.integers(0, 3000)), max_size=10))
def test_ids_made_at_once_are_those_made_one_by_one(node: int, calls: list[tuple[int, int]]) -> None:
    many, single = TsidFactory(node), TsidFactory(node)
    for now_ms, count in calls:
        assert many.next_ids(now_ms, count) == [single.next_id(now_ms) for _ in range(count)]


def test_ids_increase_past_the_counter_of_a_millisecond_while_the_clock_stands_still() -> None:
    factory = TsidFactory(7)

    made = [factory.next_value(NOW_MS) for _ in range(3 * PER_MILLISECOND + 1)]

    assert all(earlier < later for earlier, later in pairwise(made))
    assert [tsid_time_ms(made[index]) - NOW_MS for index in (0, 4095, 4096, 8191, 8192, 12_288)] == [0, 0, 1, 1, 2, 3]
    texts = [encode_tsid(value) for value in made]
    assert texts == sorted(set(texts))


def test_a_factory_that_ran_ahead_goes_on_from_there_until_the_clock_has_passed_it() -> None:
    factory = TsidFactory(7)
    for _ in range(2 * PER_MILLISECOND + 1):
        last = factory.next_value(NOW_MS)

    ahead = factory.next_value(NOW_MS + 1)
    assert ahead > last
    assert tsid_time_ms(ahead) == NOW_MS + 2
    assert tsid_time_ms(factory.next_value(NOW_MS + 3)) == NOW_MS + 3


def test_ids_of_a_clock_set_far_back_go_on_from_the_last_one() -> None:
    factory = TsidFactory(7)
    last = factory.next_value(NOW_MS)

    assert factory.next_value(NOW_MS - 3_600_000) == last + 1
    assert factory.next_value(0) == last + 2


@given(nodes, clocks)
def test_an_id_to_count_on_from_has_a_millisecond_of_its_own(node: int, clock: list[int]) -> None:
    factory = TsidFactory(node)
    for now_ms in clock:
        before = factory.next_value(now_ms)
        start = factory.next_start(now_ms)
        assert tsid_time_ms(start) > tsid_time_ms(before)
        assert factory.next_start(now_ms) - start > PER_MILLISECOND


def test_ids_increase_with_a_clock_before_the_epoch() -> None:
    factory = TsidFactory(0)

    made = [factory.next_id(now_ms) for now_ms in (0, 5, EPOCH_MS - 1, EPOCH_MS, EPOCH_MS + 1)]

    assert made == sorted(set(made))


@given(st.lists(nodes, min_size=2, max_size=4, unique=True), st.lists(clocks, min_size=4, max_size=4))
def test_nodes_never_make_the_same_id(numbers: list[int], their_clocks: list[list[int]]) -> None:
    ids = [
        factory.next_id(now_ms)
        for factory, clock in zip(map(TsidFactory, numbers), their_clocks, strict=False)
        for now_ms in clock
    ]

    assert len(set(ids)) == len(ids)


def test_nodes_that_run_ahead_of_the_clock_never_make_the_same_id() -> None:
    ids: set[int] = set()
    for node in (0, 1, MAX_NODE):
        factory = TsidFactory(node)
        ids.update(factory.next_value(NOW_MS) for _ in range(2 * PER_MILLISECOND))

    assert len(ids) == 3 * 2 * PER_MILLISECOND


@given(nodes, st.integers(EPOCH_MS, EPOCH_MS + 2**42 - 1))
def test_an_id_tells_when_it_was_made(node: int, now_ms: int) -> None:
    factory = TsidFactory(node)

    assert tsid_time_ms(factory.next_value(now_ms)) == now_ms
    assert tsid_time_ms(decode_tsid(factory.next_id(now_ms))) == now_ms


@pytest.mark.parametrize("node", [-1, MAX_NODE + 1])
def test_a_node_number_out_of_range_is_refused(node: int) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1023, got {node}"):
        TsidFactory(node)

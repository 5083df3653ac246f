"""What the numbers of a key say about deliveries that are missing."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.receiver import KeyArrival, KeyPlace, arrived


def heard(*numbers: int) -> list[tuple[KeyArrival, list[int]]]:
    place, said = None, []
    for number in numbers:
        step = arrived(place, number)
        place = step.place
        said.append((step.arrival, list(step.missing)))
    return said


NEXT: tuple[KeyArrival, list[int]] = (KeyArrival.NEXT, [])
LATE: tuple[KeyArrival, list[int]] = (KeyArrival.LATE, [])
REPEATED: tuple[KeyArrival, list[int]] = (KeyArrival.REPEATED, [])


def test_numbers_in_order_show_no_gap_wherever_they_begin() -> None:
    assert heard(1, 2, 3) == heard(7, 8, 9) == [NEXT] * 3


def test_what_was_left_out_is_named_once_and_may_come_late() -> None:
    assert heard(1, 4, 5, 3, 3, 2) == [NEXT, (KeyArrival.AFTER_GAP, [2, 3]), NEXT, LATE, REPEATED, LATE]


def test_another_attempt_is_a_repetition() -> None:
    assert heard(1, 1, 2, 2, 1) == [NEXT, REPEATED, NEXT, REPEATED, REPEATED]


def test_a_key_that_begins_again_after_a_long_silence_shows_no_gap() -> None:
    assert heard(500, 1, 2, 4) == [NEXT, NEXT, NEXT, (KeyArrival.AFTER_GAP, [3])]
    # A short one may be a late number of a receiver that joined in the middle.
    assert heard(2, 1, 3) == [NEXT, REPEATED, NEXT]


def test_a_long_gap_is_named_whole_and_its_last_hundred_are_remembered() -> None:
    step = arrived(KeyPlace(1), 1_000_000_000)
    assert step.missing == range(2, 1_000_000_000)
    assert step.place.missing == tuple(range(999_999_900, 1_000_000_000))


@given(st.lists(st.integers(1, 60), min_size=1))
def test_each_number_is_missing_until_it_comes(numbers: list[int]) -> None:
    place, first = None, numbers[0]
    for at, number in enumerate(numbers):
        step = arrived(place, number)
        place = step.place
        came = set(numbers[: at + 1])
        assert place.last == max(each for each in came if each >= first)
        assert set(place.missing) == set(range(first, place.last + 1)) - came

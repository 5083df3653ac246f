"""Which deliveries of a key are missing, by `penstock-sequence`. Pure: a place and a number give the next place."""

from enum import StrEnum

import msgspec

MOST_MISSING = 100
"""Missing numbers that are remembered for a key; a number further back counts as late without being one of them."""


class KeyArrival(StrEnum):
    """What a number says about its delivery."""

    NEXT = "next"
    """The one that was expected, or the first of its key that this receiver sees."""
    AFTER_GAP = "after a gap"
    """Numbers before it have not arrived."""
    LATE = "late"
    """A number that was missing."""
    REPEATED = "repeated"
    """A number that has arrived before, or is older than what is remembered."""


class KeyPlace(msgspec.Struct, frozen=True):
    """What a receiver knows about a key: the highest number that arrived, and missing ones before it."""

    last: int
    missing: tuple[int, ...] = ()


class KeyStep(msgspec.Struct, frozen=True):
    """The next place of a key, what the number says, and the numbers that turned out to be missing with it."""

    place: KeyPlace
    arrival: KeyArrival
    missing: range = range(0)


def arrived(place: KeyPlace | None, number: int) -> KeyStep:
    """Return where a key stands after a number arrived.

    A receiver may begin in the middle of a key, so its first number shows no gap. A key that was silent for very long
    begins at 1 again (EVENT-FANOUT-8), which looks like a repetition until its numbers are past `MOST_MISSING`.
    """
    if place is None:
        return KeyStep(KeyPlace(number), KeyArrival.NEXT)
    if number in place.missing:
        left = tuple(each for each in place.missing if each != number)
        return KeyStep(KeyPlace(place.last, left), KeyArrival.LATE)
    if number == 1 and place.last > MOST_MISSING:
        return KeyStep(KeyPlace(1), KeyArrival.NEXT)
    if number <= place.last:
        return KeyStep(place, KeyArrival.REPEATED)
    skipped = range(place.last + 1, number)
    remembered = (*place.missing, *skipped[-MOST_MISSING:])[-MOST_MISSING:]
    return KeyStep(KeyPlace(number, remembered), KeyArrival.AFTER_GAP if skipped else KeyArrival.NEXT, skipped)

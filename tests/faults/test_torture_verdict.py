"""The verdict of `scripts/torture`: each kind of breach is counted, and a lawful history is clean."""

from scripts.fault_injection.witness import Verdict, Visit, judged


def visit(number: int, began: int, *, ended: int | None = None, succeeded: bool = True) -> Visit:
    return Visit("s", "k", number, began, began + 1 if ended is None else ended, succeeded)


def verdict(*visits: Visit, accepted: int = 3) -> Verdict:
    return judged({"k": accepted}, ["s"], visits)


def test_failures_and_repetitions_in_place_are_clean() -> None:
    found = verdict(visit(0, 1, succeeded=False), visit(0, 3), visit(1, 5), visit(1, 7), visit(2, 9))
    assert found == Verdict(events=3, deliveries=5, lost=0, doubled=1, reordered=0, overlapping=0)
    assert found.is_clean


def test_what_never_succeeded_is_lost() -> None:
    found = verdict(visit(0, 1), visit(1, 3), visit(2, 5, succeeded=False))
    assert (found.lost, found.is_clean) == (1, False)


def test_an_older_event_after_a_newer_one_is_reordered() -> None:
    found = verdict(visit(0, 1), visit(1, 3), visit(0, 5), visit(2, 7))
    assert (found.reordered, found.doubled, found.is_clean) == (2, 1, False)


def test_two_of_a_key_at_once_overlap() -> None:
    found = verdict(visit(0, 1, ended=4), visit(1, 3, ended=5), visit(2, 6))
    assert (found.overlapping, found.is_clean) == (1, False)


def test_what_one_subscriber_got_another_may_lack() -> None:
    assert judged({"k": 1}, ["s", "other"], [visit(0, 1)]).lost == 1

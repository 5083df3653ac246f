"""The verdict of `scripts/torture`: each kind of breach is counted, claims are true or not, lawful histories clean."""

from typing import Any

import pytest

from scripts.fault_injection.claims import Claim, Fault, Warned, raised, untrue
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


READY = {"sqs": True, "api": True, "router": True}
RESTART = Warned("1", "CONSUMER_RESTART", 1, "restarting the consumer of queue q")


def looks(until_s: int, *, silent: tuple[str, int, int] = ("", 0, 0), **last: Any) -> list[Claim]:
    """A claim each second: one part may be silent from one second to another, and the last claim says more."""
    part, from_s, to_s = silent
    said = [
        Claim(at_s, {name: True for name in READY if name != part or not from_s < at_s < to_s}, "HEALTHY")
        for at_s in range(until_s)
    ]
    return [*said, Claim(until_s, READY)._replace(**last)]


def test_nothing_said_without_a_fault_is_true() -> None:
    assert untrue(looks(300), []) == []


@pytest.mark.parametrize(
    "last",
    [
        {"warnings": [RESTART]},
        {"warnings": [Warned("1", "PIPELINE_MAP_LEAK", 1, "a leak")]},
        {"warnings": [Warned("1", "CONFIG_SYNC_FAILED", 1, "no answer")]},
        {"status": "DEGRADED", "reasons": ["the consumer of queue q does not poll"]},
        {"status": "WARNING", "reasons": ["the breaker of http://h:1/ is OPEN"]},
        {"status": "WARNING", "reasons": ["pool steady delivers 40%"]},
        {"ready": {**READY, "router": False}},
        {"ready": {**READY, "sqs": False}},
    ],
)
def test_what_no_fault_explains_is_untrue(last: dict[str, Any]) -> None:
    assert len(untrue(looks(300, **last), [])) == 1


@pytest.mark.parametrize(("silent_s", "lies"), [(30, 2), (58, 0)])
def test_a_queue_that_does_not_poll_must_have_been_silent_for_a_minute(silent_s: int, lies: int) -> None:
    said = looks(
        200, silent=("sqs", 200 - silent_s, 200), warnings=[RESTART], reasons=["the consumer of q does not poll"]
    )
    assert len(untrue(said, [])) == lies


def test_health_that_does_not_see_a_silent_queue_is_untrue() -> None:
    assert untrue(looks(300, silent=("sqs", 100, 150)), []) == []
    assert untrue(looks(300, silent=("sqs", 100, 250)), []) == [
        "HEALTHY though its queues have been silent for more than a minute"
    ]


def test_a_full_disk_explains_that_a_part_is_not_ready() -> None:
    said = looks(300, ready={**READY, "api": False})
    assert untrue(said, [Fault("fill the disk", 290.0, 299.0)]) == []
    assert untrue(said, [Fault("set the clock", 290.0, 299.0)]) == ["api is not ready"]


def test_a_warning_is_counted_each_time_it_is_raised() -> None:
    again = looks(10)[-1]._replace(warnings=[RESTART._replace(times=3)])
    assert raised([looks(10, warnings=[RESTART])[-1], again, again]) == {"CONSUMER_RESTART": 2}

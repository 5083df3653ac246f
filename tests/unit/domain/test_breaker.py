"""The circuit breaker: its numbers, its verdicts (DELIVERY-BREAKER-1 and 2), and the diagram in the docs."""

import re
from pathlib import Path
from random import Random

import pytest

from penstock.delivery.breakers import Breakers
from penstock.domain.breaker import (
    ALIVE,
    FAILED,
    HALF_MS,
    MIN_CALLS,
    NEUTRAL,
    OPEN_MS,
    PROBES,
    TRANSITIONS,
    Breaker,
    BreakerState,
    Verdict,
    verdict_of,
)
from penstock.domain.outcome import (
    CircuitOpen,
    Deferred,
    EgressDenied,
    HttpError,
    MediationError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    RateLimited,
    Timeout,
)
from penstock.testing.clock import VirtualClock

DIAGRAM = Path(__file__).parents[3] / "docs" / "reference" / "delivery.md"


def call(breaker: Breaker, verdict: Verdict, now_ms: int = 0) -> None:
    ticket = breaker.admit(now_ms)
    assert ticket is not None
    breaker.settle(ticket, verdict, now_ms)


def opened(now_ms: int = 0) -> Breaker:
    breaker = Breaker(now_ms)
    for _ in range(10):
        call(breaker, FAILED, now_ms)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_the_diagram_shows_exactly_the_transitions_of_the_code() -> None:
    arrows = re.findall(r"^\s+(\w+) --> (\w+):", DIAGRAM.read_text(encoding="utf-8"), re.MULTILINE)
    drawn = {(BreakerState[source], BreakerState[target]) for source, target in arrows}
    assert drawn == TRANSITIONS
    assert len(arrows) == len(drawn)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, ALIVE),
        (HttpError(301), ALIVE),
        (HttpError(400), ALIVE),
        (HttpError(404), ALIVE),
        (HttpError(408), ALIVE),
        (HttpError(501), ALIVE),
        (HttpError(500), FAILED),
        (HttpError(503), FAILED),
        (Timeout(900), FAILED),
        (NetworkError("reset"), FAILED),
        (RateLimited(30), NEUTRAL),
        (Deferred(), NEUTRAL),
        (CircuitOpen("http://a/"), NEUTRAL),
        (EgressDenied("private"), NEUTRAL),
    ],
)
def test_what_an_outcome_says_about_the_endpoint(error: MediationError | None, verdict: Verdict) -> None:
    result = MediationResult.SUCCESS if error is None else MediationResult.ERROR_PROCESS
    assert verdict_of(MediationOutcome(result, error=error)) is verdict


def test_nine_failures_are_too_few_to_open() -> None:
    breaker = Breaker(0)
    states = []
    for _ in range(10):
        call(breaker, FAILED)
        states.append(breaker.state)
    assert states == [BreakerState.CLOSED] * 9 + [BreakerState.OPEN]


def test_opens_when_half_of_ten_calls_failed_and_not_below() -> None:
    breaker = Breaker(0)
    for verdict in [ALIVE] * 6 + [FAILED] * 5:
        call(breaker, verdict)
    assert (breaker.state, breaker.calls, breaker.failures) == (BreakerState.CLOSED, 11, 5)
    call(breaker, FAILED)
    assert (breaker.state, breaker.calls, breaker.failures) == (BreakerState.OPEN, 12, 6)


def test_failures_of_long_ago_leave_the_window() -> None:
    breaker = Breaker(0)
    for verdict in [FAILED] * 9:
        call(breaker, verdict)
    call(breaker, FAILED, 2 * HALF_MS)
    assert (breaker.state, breaker.calls) == (BreakerState.CLOSED, 1)


def test_an_endpoint_with_much_traffic_that_dies_is_noticed_within_a_hundred_calls() -> None:
    breaker = Breaker(0)
    for number in range(10_000):
        call(breaker, ALIVE, number)
    calls = 0
    while breaker.state is BreakerState.CLOSED:
        call(breaker, FAILED, 10_000 + calls)
        calls += 1
    assert 25 <= calls <= 100


@pytest.mark.parametrize("calls_per_s", [1, 10, 1000])
def test_one_failure_in_ten_does_not_open_it(calls_per_s: int) -> None:
    # After ten good calls: with ten alone, five failures by chance would be one case in six hundred.
    random = Random(4711)
    breaker = Breaker(0)
    for number in range(200_000):
        alive = number < MIN_CALLS or random.random() >= 0.1
        call(breaker, ALIVE if alive else FAILED, number * 1000 // calls_per_s)
    assert breaker.state is BreakerState.CLOSED


def test_neutral_calls_do_not_fill_the_window() -> None:
    breaker = Breaker(0)
    for verdict in [NEUTRAL] * 20 + [FAILED] * 9:
        call(breaker, verdict)
    assert (breaker.state, breaker.calls) == (BreakerState.CLOSED, 9)


def test_refuses_for_five_seconds_and_counts_what_it_refused() -> None:
    breaker = opened()
    assert [breaker.admit(now_ms) for now_ms in (0, OPEN_MS - 1)] == [None, None]
    assert breaker.rejected == 2
    assert breaker.admit(OPEN_MS) is not None
    assert breaker.state is BreakerState.HALF_OPEN


def test_three_probes_go_out_and_no_fourth() -> None:
    breaker = opened()
    tickets = [breaker.admit(OPEN_MS) for _ in range(PROBES)]
    assert None not in tickets
    assert breaker.admit(OPEN_MS) is None


def test_three_successes_close_it() -> None:
    breaker = opened()
    for _ in range(PROBES):
        call(breaker, ALIVE, OPEN_MS)
    assert (breaker.state, breaker.calls, breaker.opened_ms) == (BreakerState.CLOSED, 0, None)


def test_a_failed_probe_opens_it_for_another_five_seconds() -> None:
    breaker = opened()
    call(breaker, ALIVE, OPEN_MS)
    call(breaker, FAILED, OPEN_MS + 10)
    assert breaker.admit(OPEN_MS + 10 + OPEN_MS - 1) is None
    assert breaker.admit(OPEN_MS + 10 + OPEN_MS) is not None


def test_a_neutral_probe_gives_its_place_back() -> None:
    breaker = opened()
    for _ in range(20):
        call(breaker, NEUTRAL, OPEN_MS)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.admit(OPEN_MS) is not None


def test_calls_of_before_a_change_of_state_say_nothing_about_after_it() -> None:
    breaker = Breaker(0)
    early = breaker.admit(0)
    assert early is not None
    for _ in range(10):
        call(breaker, FAILED)
    assert breaker.admit(OPEN_MS) is not None
    breaker.settle(early, FAILED, OPEN_MS)
    assert breaker.state is BreakerState.HALF_OPEN
    assert [breaker.admit(OPEN_MS) is not None for _ in range(3)] == [True, True, False]


def test_a_reset_closes_it_and_forgets() -> None:
    breaker = opened()
    breaker.admit(0)
    breaker.reset()
    assert (breaker.state, breaker.calls, breaker.rejected) == (BreakerState.CLOSED, 0, 0)
    call(breaker, ALIVE)


def test_an_endpoint_keeps_its_breaker_and_others_have_theirs() -> None:
    breakers = Breakers(VirtualClock())
    for _ in range(10):
        call(breakers.of("http://a/x"), FAILED)
    assert breakers.of("http://a/x").state is BreakerState.OPEN
    assert breakers.of("http://a/y").state is BreakerState.CLOSED
    view, other = breakers.views()
    assert (view.endpoint, view.state, view.calls, view.failures, view.failure_ratio) == (
        "http://a/x",
        "OPEN",
        10,
        10,
        1.0,
    )
    assert (view.opened_at_ms, view.rejected) == (0, 0)
    assert (other.endpoint, other.failure_ratio, other.opened_at_ms) == ("http://a/y", 0.0, None)


def fail_paths(breakers: Breakers, count: int, now_ms: int = 0) -> None:
    for number in range(count):
        call(breakers.of(f"http://host:81/orders/{number}"), FAILED, now_ms)


def test_a_host_whose_paths_all_differ_is_left_alone_after_ten_of_them_failed() -> None:
    breakers = Breakers(VirtualClock())
    fail_paths(breakers, 9)
    assert breakers.of("http://host:81/new").admit(0) is not None
    fail_paths(breakers, 10)

    assert [breakers.of(f"http://host:81/{path}").admit(OPEN_MS - 1) for path in ("new", "newer", "orders/1")] == [
        None
    ] * 3
    assert breakers.of("http://host/new").admit(0) is not None
    [host] = [view for view in breakers.views() if view.state == "OPEN"]
    assert (host.endpoint, host.failures, host.rejected) == ("http://host:81", 10, 3)


def test_one_path_that_fails_does_not_open_the_host() -> None:
    breakers = Breakers(VirtualClock())
    for _ in range(10):
        call(breakers.of("http://a/bad"), FAILED)
    assert breakers.of("http://a/bad").admit(0) is None
    assert breakers.of("http://a/good").admit(0) is not None


def test_a_path_that_works_keeps_the_host_closed() -> None:
    breakers = Breakers(VirtualClock())
    for number in range(100):
        call(breakers.of(f"http://a/{number}"), FAILED)
        if number % 9 == 0:
            call(breakers.of("http://a/good"), ALIVE)
    assert breakers.of("http://a/good").admit(0) is not None


def test_failures_of_a_host_that_are_a_minute_apart_do_not_add_up() -> None:
    breakers = Breakers(VirtualClock())
    fail_paths(breakers, 9)
    call(breakers.of("http://host:81/late"), FAILED, 60_000)
    assert breakers.of("http://host:81/new").admit(60_000) is not None


def test_a_host_is_probed_and_one_success_closes_it() -> None:
    breakers = Breakers(VirtualClock())
    fail_paths(breakers, 10)
    probes = [breakers.of(f"http://host:81/probe/{number}") for number in range(PROBES + 1)]
    tickets = [probe.admit(OPEN_MS) for probe in probes]
    assert [ticket is not None for ticket in tickets] == [True, True, True, False]
    probes[0].settle(0, NEUTRAL, OPEN_MS)
    assert probes[3].admit(OPEN_MS) is not None
    probes[1].settle(0, ALIVE, OPEN_MS)

    assert probes[3].admit(OPEN_MS) is not None
    assert [view for view in breakers.views() if view.state != "CLOSED"] == []


def test_a_failed_probe_opens_the_host_again() -> None:
    breakers = Breakers(VirtualClock())
    fail_paths(breakers, 10)
    call(breakers.of("http://host:81/probe"), FAILED, OPEN_MS)
    assert breakers.of("http://host:81/other").admit(2 * OPEN_MS - 1) is None
    assert breakers.of("http://host:81/other").admit(2 * OPEN_MS) is not None


def test_a_probe_of_an_endpoint_is_not_spent_while_its_host_refuses() -> None:
    breakers = Breakers(VirtualClock())
    endpoint = breakers.of("http://host:81/orders/0")
    for _ in range(9):
        call(endpoint, FAILED)
    fail_paths(breakers, 10, 1000)
    assert endpoint.state is BreakerState.OPEN
    assert endpoint.admit(OPEN_MS + 999) is None
    assert [endpoint.admit(OPEN_MS + 1000) is not None for _ in range(PROBES)] == [True] * PROBES


def test_what_was_refused_waits_until_probes_may_be_made() -> None:
    breakers = Breakers(VirtualClock())
    endpoint = breakers.of("http://host:81/orders/0")
    for _ in range(9):
        call(endpoint, FAILED)
    fail_paths(breakers, 10, 1000)
    assert endpoint.opens_in_ms(3000) == OPEN_MS - 2000
    assert endpoint.opens_in_ms(9000) == 0


def test_a_host_is_closed_by_hand_by_itself_and_with_an_endpoint() -> None:
    for name in ("http://host:81", "http://host:81/orders/3"):
        breakers = Breakers(VirtualClock())
        fail_paths(breakers, 10)
        assert breakers.reset(name)
        assert breakers.of("http://host:81/new").admit(0) is not None
    fail_paths(breakers, 10)
    breakers.reset_all()
    assert breakers.of("http://host:81/new").admit(0) is not None


def test_breakers_are_reset_one_by_one_or_all() -> None:
    breakers = Breakers(VirtualClock())
    for endpoint in ("http://a/", "http://b/"):
        for _ in range(10):
            call(breakers.of(endpoint), FAILED)
    assert breakers.reset("http://a/")
    assert not breakers.reset("http://never/")
    assert [view.state for view in breakers.views()] == ["CLOSED", "OPEN"]
    assert breakers.reset_all() == 2
    assert [view.state for view in breakers.views()] == ["CLOSED", "CLOSED"]


def test_the_number_of_breakers_is_bounded_and_those_in_use_stay() -> None:
    clock = VirtualClock()
    breakers = Breakers(clock, max_endpoints=20)
    for _ in range(10):
        call(breakers.of("http://busy/"), FAILED, clock.now_ms())
    for number in range(1000):
        clock.advance(1)
        breakers.of("http://busy/").admit(clock.now_ms())
        call(breakers.of(f"http://host/{number}"), ALIVE, clock.now_ms())
    assert len(breakers.views()) <= 20
    assert breakers.of("http://busy/").state is not BreakerState.CLOSED

"""The demo's events and its summary."""

from itertools import count

from penstock.tools.demo.demo import DemoOutcome, DemoTimes
from penstock.tools.demo.subscriber import STEPS, DemoSubscriber, OrderStep, Result, order_events


def test_each_event_carries_the_time_at_which_it_is_published() -> None:
    ticks = count(100.0)
    events = order_events(2, lambda: next(ticks))
    data = [event.data for event in events]

    assert len(data) == 2 * len(STEPS)
    assert [each.published_s for each in data if isinstance(each, OrderStep)] == [100.0 + n for n in range(len(data))]


def test_the_summary_says_how_fast_it_was() -> None:
    subscriber = DemoSubscriber("billing", taken={0: list(range(7)), 1: list(range(7))}, latencies_ms=[1.0] * 14)
    outcome = DemoOutcome([Result.of(subscriber, 2)], None, DemoTimes(3.25, 2.0, 6.5))

    assert outcome.ok
    assert outcome.summary() == (
        "14 deliveries in 2.0 s (7/s); all parts were ready after 3.2 s, and everything took 6.5 s"
    )

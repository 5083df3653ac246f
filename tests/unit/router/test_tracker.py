"""The in-flight tracker: two indexes that always agree, and what is shown of them."""

import asyncio

import pytest

from penstock.router.intake.tracker import InFlightTracker, TrackedMessage
from penstock.router.monitoring.views import InFlightFilter
from tests.rigs.router import on_virtual_time, pointer, pool_p, pools, quiet, running, tracked


class Queue:
    """Where a message came from, as far as the tracker looks."""

    def __init__(self, name: str) -> None:
        self.name = name


def of_queue(message_id: str, queue: str, broker_id: str) -> TrackedMessage:
    message = tracked(pointer(message_id))
    message.origin = Queue(queue)  # type: ignore[assignment]
    message.received.broker_id = broker_id
    return message


def test_a_message_is_found_by_both_ids_until_it_is_removed() -> None:
    tracker, message = InFlightTracker(), of_queue("m", "q", "b")
    tracker.track(message)

    assert tracker.of_broker_id("q", "b") is tracker.of_message_id("m") is message
    assert (len(tracker), list(tracker), tracker.in_queue("q")) == (1, [message], 1)
    tracker.remove(message)
    assert tracker.of_broker_id("q", "b") is tracker.of_message_id("m") is None
    assert (len(tracker), tracker.in_queue("q")) == (0, 0)


def test_a_broker_id_counts_within_its_queue_and_a_message_id_everywhere() -> None:
    tracker = InFlightTracker()
    first, second = of_queue("m1", "q1", "b"), of_queue("m2", "q2", "b")
    tracker.track(first)
    tracker.track(second)

    assert tracker.of_broker_id("q1", "b") is first
    assert tracker.of_broker_id("q2", "b") is second
    assert tracker.of_broker_id("q3", "b") is None


@pytest.mark.parametrize("again", [("m", "q", "other"), ("other", "q", "b"), ("m", "q2", "b")])
def test_what_an_index_knows_is_not_tracked_twice(again: tuple[str, str, str]) -> None:
    tracker = InFlightTracker()
    tracker.track(of_queue("m", "q", "b"))
    with pytest.raises(AssertionError):
        tracker.track(of_queue(*again))

    # Refused whole: the indexes still agree.
    assert (len(tracker), tracker.in_queue("q"), tracker.in_queue("q2")) == (1, 1, 0)


def test_it_can_be_walked_through_while_messages_leave() -> None:
    tracker = InFlightTracker()
    for number in range(3):
        tracker.track(of_queue(f"m{number}", "q", f"b{number}"))
    for message in tracker:
        tracker.remove(message)

    assert len(tracker) == 0


@on_virtual_time
async def test_what_is_on_its_way_is_shown_the_oldest_first() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a", "1"))
        await asyncio.sleep(2)
        rig.source.give(pointer("b", "2"))
        await asyncio.sleep(1)

        oldest, newest = rig.router.in_flight(10).messages
        assert (oldest.message_id, oldest.broker_message_id, oldest.state) == ("a", "b-a", "DELIVERING")
        assert (newest.message_id, newest.message_group_id, newest.state) == ("b", "2", "WAITING")
        assert (oldest.queue, oldest.pool_code, oldest.attempt) == ("q", "P", 1)
        assert (oldest.elapsed_ms, newest.elapsed_ms) == (3000, 1000)
        assert newest.tracked_at_ms - oldest.tracked_at_ms == 2000
        assert [each.message_id for each in rig.router.in_flight(1).messages] == ["a"]
        rig.mediator.let_go("a")


@on_virtual_time
async def test_pages_of_what_is_on_its_way_stay_where_they_are_while_messages_come_and_go() -> None:
    async with running(pool_p(9)) as rig:
        first = [f"{number}" for number in range(6)]
        for each in (*first, "new"):
            rig.mediator.hold(each)
        rig.source.give(*(pointer(each, each) for each in first))
        await quiet()

        page = rig.router.in_flight(3)
        assert [each.message_id for each in page.messages] == first[:3]
        for gone in ("1", "4"):
            rig.mediator.let_go(gone)
        rig.source.give(pointer("new", "new"))
        await quiet()
        page = rig.router.in_flight(2, after=page.last)
        assert [each.message_id for each in page.messages] == ["3", "5"]
        page = rig.router.in_flight(2, after=page.last)
        assert ([each.message_id for each in page.messages], page.last) == (["new"], None)
        for each in ("0", "2", "3", "5", "new"):
            rig.mediator.let_go(each)


@on_virtual_time
async def test_what_is_on_its_way_is_found_by_id_pool_and_queue() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"), pointer("b"))
        await quiet()
        router = rig.router

        assert [each.message_id for each in router.in_flight(9, InFlightFilter("b")).messages] == ["b"]
        assert [each.message_id for each in router.in_flight(9, InFlightFilter("b-b")).messages] == ["b"]
        assert len(router.in_flight(9, InFlightFilter(pool="P", queue="q")).messages) == 2
        assert router.in_flight(9, InFlightFilter(pool="OTHER")).messages == []
        assert router.in_flight(9, InFlightFilter(queue="other")).messages == []
        by_own, by_brokers = router.find("a"), router.find("b-a")
        assert by_own is not None
        assert by_own == by_brokers
        assert router.find("nobody") is None
        rig.mediator.let_go("a")


@on_virtual_time
async def test_a_message_is_found_by_its_brokers_id_when_its_queue_is_consumed_no_longer() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.apply(pools(pool_p(), queues=()))

        assert rig.router.find("b-a") is not None
        rig.mediator.let_go("a")

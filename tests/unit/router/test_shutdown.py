"""Shutting down: in which order, for how long at most, and what becomes of every message."""

import asyncio
import logging
from contextlib import suppress

import pytest

from penstock.domain.errors import Unavailable
from penstock.queues.port import Received
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from tests.rigs.router import (
    SERVER_ERROR,
    RouterRig,
    ScriptedMediator,
    ScriptedSource,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
)


async def started(concurrency: int = 1, takes_s: float = 5, queues: tuple[str, ...] = ("q",)) -> RouterRig:
    """A router that polls."""
    rig = RouterRig(ScriptedMediator(takes_s, {}))
    await rig.router.apply(pools(pool_p(concurrency), queues=queues))
    await quiet()
    return rig


@on_virtual_time
async def test_polls_stop_then_deliveries_end_and_the_rest_goes_back_then_queues_are_left() -> None:
    rig = await started()
    rig.source.give(pointer("a"), pointer("b"), pointer("x", "x"))
    await asyncio.sleep(1)
    await rig.router.shut_down()

    settled = [(each.broker_id, each.delay_s, each.at_ms) for each in rig.source.settled]
    assert settled == [("b-b", 0, 1000), ("b-x", 0, 1000), ("b-a", None, 5000)]
    assert (rig.source.closed, len(rig.source.polls_ms)) == (1, 2)
    assert (rig.router.in_flight(9).messages, rig.router.pools(), rig.router.queues()) == ([], [], [])
    assert rig.now_ms() == 5000
    assert rig.warnings.listed() == []


@on_virtual_time
async def test_a_delivery_that_does_not_end_within_30_s_is_ended_and_its_message_goes_back() -> None:
    rig = await started(concurrency=2, takes_s=5)
    rig.mediator.hold("long")
    rig.source.give(pointer("long", "1"), pointer("short", "2"))
    await quiet()
    await rig.router.shut_down()

    settled = [(each.broker_id, each.delay_s, each.at_ms) for each in rig.source.settled]
    assert settled == [("b-short", None, 5000), ("b-long", 0, 30_000)]
    assert rig.router.in_flight(9).messages == []


@on_virtual_time
async def test_no_message_is_tried_again_during_the_shut_down() -> None:
    rig = RouterRig(ScriptedMediator(5, {"a": [SERVER_ERROR]}))
    await rig.router.apply(pools(pool_p()))
    await quiet()
    rig.source.give(pointer("a"))
    await asyncio.sleep(1)
    await rig.router.shut_down()

    assert rig.source.nacked == {"b-a": 30}
    assert rig.now_ms() == 5000


class StubbornSource(ScriptedSource):
    """A queue whose poll cannot be ended for a while, however often it is cancelled."""

    def __init__(self, stubborn_s: float) -> None:
        super().__init__()
        self._stubborn_s = stubborn_s

    async def receive(self) -> list[Received]:
        try:
            return await super().receive()
        except asyncio.CancelledError:
            loop = asyncio.get_running_loop()
            ends_s = loop.time() + self._stubborn_s
            while loop.time() < ends_s:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(ends_s - loop.time())
            raise


@pytest.mark.parametrize(("stubborn_s", "ends_ms"), [(10, 10_000), (30, 30_000), (100_000, 50_000)])
@on_virtual_time
async def test_a_poll_that_does_not_end_within_25_s_is_not_waited_for(stubborn_s: float, ends_ms: int) -> None:
    rig = RouterRig(ScriptedMediator(1, {}))
    source = StubbornSource(stubborn_s)
    rig.router._consumers._make_source = lambda _: source
    await rig.router.apply(pools(pool_p()))
    await quiet()
    await rig.router.shut_down()

    # 25 s to stop polling, then as long to hang up.
    assert rig.now_ms() == ends_ms


@on_virtual_time
async def test_settlements_that_fail_at_shut_down_are_warned_of() -> None:
    rig = await started(takes_s=5)
    rig.source.settle_errors.extend([Unavailable("no answer"), Unavailable("no answer")])
    rig.source.give(*(pointer(f"m{number}") for number in range(4)))
    await quiet()
    await rig.router.shut_down()

    [warning] = rig.warned(WarningCode.SHUTDOWN_CLEANUP_ERRORS)
    assert warning.severity is WarningSeverity.WARN
    assert warning.message.startswith("2 messages")
    assert rig.router.in_flight(9).messages == []


@on_virtual_time
async def test_failures_before_the_shut_down_are_not_counted_again() -> None:
    rig = await started(takes_s=0)
    rig.source.settle_errors.append(Unavailable("no answer"))
    rig.source.give(pointer("a"))
    await rig.idle()
    await rig.router.shut_down()

    assert rig.warned(WarningCode.SHUTDOWN_CLEANUP_ERRORS) == []


@on_virtual_time
async def test_a_broker_that_never_confirms_is_waited_for_25_s() -> None:
    rig = await started(takes_s=5)
    rig.source.settle_s = None
    rig.source.give(pointer("a"), pointer("b"))
    await quiet()
    await rig.router.shut_down()

    assert rig.now_ms() == 5000 + 25_000
    [warning] = rig.warned(WarningCode.SHUTDOWN_CLEANUP_ERRORS)
    assert warning.message.startswith("2 messages")


@on_virtual_time
async def test_a_router_with_nothing_to_do_stops_at_once_and_twice() -> None:
    rig = await started(queues=("q", "r"))
    await rig.router.shut_down()
    await rig.router.shut_down()

    assert [source.closed for source in rig.sources] == [1, 1]
    assert rig.now_ms() == 0


@on_virtual_time
async def test_a_router_that_was_emptied_can_be_filled_again() -> None:
    rig = await started(takes_s=0)
    await rig.router.apply(pools(queues=()))
    await rig.router.clean_up_drained()
    await rig.router.apply(pools(pool_p()))
    await quiet()
    rig.source.give(pointer("a"))
    await rig.idle()

    assert rig.source.acked == ["b-a"]
    await rig.router.shut_down()


def test_no_task_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    @on_virtual_time
    async def story() -> None:
        rig = await started(concurrency=3)
        rig.mediator.hold("long")
        rig.source.give(pointer("long", "1"), *(pointer(f"m{number}", "2") for number in range(5)))
        await quiet()
        await rig.router.shut_down()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with caplog.at_level(logging.ERROR):
        story()
    assert caplog.records == []

"""Settling: once per message, with the newest handle, and tracked until the broker has confirmed it."""

import asyncio
import gc

import pytest

from penstock.domain.errors import Unavailable
from tests.rigs.router import (
    FAILED_AT_ONCE,
    RouterRig,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    received,
    running,
)


def handles(rig: RouterRig) -> list[tuple[str, int | None]]:
    return [(each.handle, each.delay_s) for each in rig.source.settled]


@on_virtual_time
async def test_a_message_is_tracked_until_its_settlement_is_confirmed() -> None:
    async with running(takes_s=0) as rig:
        rig.source.settle_s = 5.0
        rig.source.give(pointer("a"))
        await asyncio.sleep(4.9)
        [view] = rig.router.in_flight(9).messages
        assert view.state == "SETTLING"
        await asyncio.sleep(0.2)

        assert rig.router.in_flight(9).messages == []


@pytest.mark.parametrize("outcome_delay_s", [None, 30])
@on_virtual_time
async def test_a_redelivery_during_the_settlement_is_settled_too_and_not_delivered(outcome_delay_s: int | None) -> None:
    script = {"a": [FAILED_AT_ONCE]} if outcome_delay_s else {}
    async with running(takes_s=0, script=script) as rig:
        rig.source.settle_s = 5.0
        rig.source.give(received(pointer("a"), "old"))
        await asyncio.sleep(1)
        rig.source.give(received(pointer("a"), "new"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert handles(rig) == [("old", outcome_delay_s), ("new", outcome_delay_s)]
        [queue] = rig.router.queues()
        assert queue.acked + queue.nacked == 1


@on_virtual_time
async def test_a_settlement_that_fails_ends_the_message_and_it_is_delivered_when_it_comes_again() -> None:
    async with running() as rig:
        rig.source.settle_errors.append(Unavailable("no answer"))
        rig.source.give(received(pointer("a"), "first"))
        await rig.idle()
        rig.source.give(received(pointer("a"), "second"))
        await rig.idle()

        assert rig.mediator.order == ["a", "a"]
        assert handles(rig) == [("first", None), ("second", None)]


@on_virtual_time
async def test_a_failed_settlement_of_a_redelivered_message_leaves_no_error_unread() -> None:
    unread: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    async with running(takes_s=0) as rig:
        rig.source.settle_s = 2.0
        rig.source.settle_errors.append(Unavailable("no answer"))
        rig.source.give(received(pointer("a"), "old"))
        await asyncio.sleep(1)
        rig.source.give(received(pointer("a"), "new"))
        await rig.idle()
        gc.collect()

        assert handles(rig) == [("old", None), ("new", None)]
        assert unread == []


@on_virtual_time
async def test_a_message_redelivered_to_a_new_consumer_is_settled_through_it() -> None:
    async with running() as rig:
        first = rig.source
        rig.mediator.hold("a")
        first.give(received(pointer("a"), "old"))
        await quiet()
        assert await rig.router.restart_consumer("q")
        await quiet()
        rig.source.give(received(pointer("a"), "new"))
        await quiet()
        await rig.router.clean_up_drained()
        assert (first.closed, len(rig.sources)) == (1, 2)
        rig.mediator.let_go("a")
        await rig.idle()

        assert first.settled == []
        assert handles(rig) == [("new", None)]


@on_virtual_time
async def test_a_consumer_that_is_no_longer_wanted_settles_what_it_took() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.apply(pools(pool_p(), queues=()))
        rig.mediator.let_go("a")
        await rig.idle()

        assert rig.source.acked == ["b-a"]


@on_virtual_time
async def test_settlements_are_counted_by_kind() -> None:
    async with running(script={"b": [FAILED_AT_ONCE]}) as rig:
        rig.source.give(pointer("a", "1"), pointer("b", "2"), pointer("c", "2"))
        await rig.idle()

        [queue] = rig.router.queues()
        assert (queue.received, queue.acked, queue.nacked, queue.in_flight) == (3, 1, 2, 0)

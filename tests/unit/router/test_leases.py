"""Leases that have ended: what is not this router's any more is dropped, neither acked nor nacked (ROUTER-TRACK-5)."""

import asyncio

import pytest

from penstock.domain.errors import Unavailable
from penstock.edge.pulse import TRAVEL_S, LoopPulse
from penstock.queues.port import Received
from penstock.testing.virtual_loop import VirtualProcess
from tests.rigs.router import SERVER_ERROR, ScriptedSource, on_virtual_time, pointer, pool_p, received, running

VISIBILITY_S = 30.0


def leased(source: ScriptedSource) -> None:
    source.visibility_s = VISIBILITY_S
    # Every heartbeat is lost, unless the test takes some away.
    source.extend_errors.extend(Unavailable("no answer") for _ in range(100))


def taken(message_id: str, leased_s: float = 0.0, handle: str = "h1", group: str = "g") -> Received:
    """A message whose lease started at this time."""
    message = received(pointer(message_id, group), handle)
    message.leased_s = leased_s
    return message


@on_virtual_time
async def test_a_message_whose_lease_ended_while_it_waited_is_dropped() -> None:
    async with running(pool_p(1), takes_s=40, prepare=leased) as rig:
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert [each.broker_id for each in rig.source.settled] == ["b-a"]


@on_virtual_time
async def test_later_ones_of_its_group_go_back_and_do_not_pass_it() -> None:
    async with running(pool_p(1), takes_s=31, prepare=leased) as rig:
        rig.source.give(taken("other", group="g1"), taken("a"), taken("b", leased_s=20), taken("c"))
        await rig.idle()

        assert rig.mediator.order == ["other"]
        assert (rig.source.acked, rig.source.nacked) == (["b-other"], {"b-b": 10})


@on_virtual_time
async def test_it_is_delivered_when_it_comes_again() -> None:
    async with running(pool_p(1), takes_s=40, prepare=leased) as rig:
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await rig.idle()
        rig.source.give(taken("b", leased_s=41, handle="h2", group="g2"))
        await rig.idle()

        assert rig.mediator.order == ["a", "b"]
        assert rig.source.acked == ["b-a", "b-b"]


@on_virtual_time
async def test_a_message_that_came_again_while_it_waited_has_its_new_lease() -> None:
    async with running(pool_p(1), takes_s=40, prepare=leased) as rig:
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await asyncio.sleep(35)
        rig.source.give(taken("b", leased_s=34, handle="h2", group="g2"))
        await rig.idle()

        assert rig.mediator.order == ["a", "b"]


@on_virtual_time
async def test_a_lease_that_ended_during_a_back_off_is_noticed() -> None:
    async with running(takes_s=29.5, script={"a": [SERVER_ERROR] * 3}, prepare=leased) as rig:
        rig.source.give(taken("a"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert rig.source.settled == []


@on_virtual_time
async def test_a_confirmed_extension_keeps_a_waiting_message() -> None:
    async with running(pool_p(1), takes_s=40, prepare=leased) as rig:
        rig.source.extend_errors.clear()
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await rig.idle()

        assert rig.mediator.order == ["a", "b"]


@on_virtual_time
async def test_an_extension_confirmed_after_the_end_of_the_lease_does_not_count() -> None:
    async with running(pool_p(1), takes_s=40, prepare=leased) as rig:
        rig.source.extend_errors.clear()
        rig.source.extend_s = 25.0
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await rig.idle()

        assert rig.mediator.order == ["a"]


@on_virtual_time
async def test_a_lease_that_has_ended_is_not_extended() -> None:
    async with running(pool_p(1), takes_s=60, prepare=leased) as rig:
        rig.source.give(taken("a", group="g1"), taken("b", group="g2"))
        await rig.idle()

        assert max(at_ms for at_ms, _ in rig.source.extended) < VISIBILITY_S * 1000


@on_virtual_time
async def test_a_dropped_message_spends_no_permit_of_the_rate_limit() -> None:
    async with running(pool_p(1, rate_limit_per_minute=2), takes_s=40, prepare=leased) as rig:
        rig.source.give(*(taken(f"m{number}", group=f"g{number}") for number in range(5)))
        await asyncio.sleep(41)
        rig.source.give(taken("later", leased_s=41, handle="h2", group="later"))
        await rig.idle()

        assert rig.mediator.starts_ms("later") == [41_000]


@pytest.mark.parametrize("waited_s", [3.0, 19.0])
@on_virtual_time
async def test_an_answer_is_as_old_as_it_may_be(waited_s: float) -> None:
    loop, pulse = asyncio.get_running_loop(), LoopPulse()
    with pulse.waiting():
        await asyncio.sleep(waited_s)

    assert pulse.leased_s(0.0, VISIBILITY_S) == pytest.approx(max(0.0, loop.time() - TRAVEL_S), abs=0.51)


@on_virtual_time
async def test_an_answer_read_after_the_process_was_stopped_may_have_come_before() -> None:
    loop, process, pulse = asyncio.get_running_loop(), VirtualProcess(), LoopPulse()
    answer = asyncio.Event()

    async def read() -> float:
        with pulse.waiting():
            await answer.wait()
        return pulse.leased_s(0.0, VISIBILITY_S)

    reading = process.run(read())
    await asyncio.sleep(10)
    process.stop()
    answer.set()
    await asyncio.sleep(100)
    process.go_on()

    assert await reading == pytest.approx(10 - TRAVEL_S, abs=0.51)
    assert loop.time() >= 110


@on_virtual_time
async def test_a_pulse_sets_no_timer_without_a_wait() -> None:
    pulse = LoopPulse()
    with pulse.waiting():
        await asyncio.sleep(1)
    await asyncio.sleep(1)

    assert pulse._timer is None

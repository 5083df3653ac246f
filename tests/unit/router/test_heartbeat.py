"""The lease heartbeat: whose lease is extended when, and until when."""

import asyncio
from itertools import pairwise

import pytest

from penstock.domain.errors import Unavailable
from penstock.router.intake.consumer import HeartbeatRounds
from tests.rigs.router import (
    ScriptedSource,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    received,
    running,
    tracked,
)

VISIBILITY_S = 30.0


def leased(source: ScriptedSource) -> None:
    source.visibility_s = VISIBILITY_S


def test_a_message_is_due_in_the_second_round_after_it_came_and_in_every_second_one_then() -> None:
    rounds, early, late = HeartbeatRounds(), tracked(pointer("early")), tracked(pointer("late"))
    rounds.add(early)
    due = [rounds.due()]
    rounds.add(late)
    due += [rounds.due() for _ in range(4)]

    assert due == [[], [early], [late], [early], [late]]


def test_one_that_is_added_again_has_a_new_lease() -> None:
    rounds, message = HeartbeatRounds(), tracked(pointer("m"))
    rounds.add(message)
    rounds.due()
    rounds.add(message)

    assert (rounds.due(), rounds.due()) == ([], [message])


def test_one_that_is_removed_is_due_no_more() -> None:
    rounds, message = HeartbeatRounds(), tracked(pointer("m"))
    rounds.remove(message)
    assert not rounds
    rounds.add(message)
    assert rounds
    rounds.remove(message)
    rounds.remove(message)

    assert not rounds
    assert rounds.due() == rounds.due() == []


def test_leases_are_extended_in_the_order_they_began() -> None:
    rounds, messages = HeartbeatRounds(), [tracked(pointer(f"m{number}")) for number in range(20)]
    for message in messages:
        rounds.add(message)
    rounds.due()

    assert rounds.due() == messages


@pytest.mark.parametrize("came_s", [0.0, 0.1, 4.9, 5.1, 7.3])
@on_virtual_time
async def test_a_lease_is_extended_within_a_third_of_the_visibility_and_every_third_from_then_on(came_s: float) -> None:
    async with running(prepare=leased) as rig:
        await asyncio.sleep(came_s)
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await asyncio.sleep(3 * VISIBILITY_S)
        rig.mediator.let_go("a")
        await rig.idle()

        times_ms = [at_ms for at_ms, _ in rig.source.extended]
        assert times_ms[0] - came_s * 1000 <= VISIBILITY_S * 1000 / 3
        assert {later - earlier for earlier, later in pairwise(times_ms)} == {VISIBILITY_S * 1000 / 3}
        assert len(times_ms) >= 8


@on_virtual_time
async def test_waiting_and_backing_off_messages_keep_their_leases_too_in_one_call() -> None:
    async with running(pool_p(1, rate_limit_per_minute=1), prepare=leased, takes_s=0) as rig:
        rig.source.give(*(received(pointer(f"m{number}", f"g{number}"), f"h{number}") for number in range(4)))
        await asyncio.sleep(10.5)

        assert rig.source.extended == [(10_000, ("h1", "h2", "h3"))]


@on_virtual_time
async def test_the_newest_handle_is_extended() -> None:
    async with running(prepare=leased) as rig:
        rig.mediator.hold("a")
        rig.source.give(received(pointer("a"), "old"))
        await asyncio.sleep(6)
        rig.source.give(received(pointer("a"), "new"))
        await asyncio.sleep(10)

        # The newer hand-out began a lease of its own at 6 s.
        assert rig.source.extended == [(15_000, ("new",))]
        rig.mediator.let_go("a")


@on_virtual_time
async def test_a_lease_is_kept_while_the_settlement_is_under_way_and_not_after_it() -> None:
    async with running(prepare=leased, takes_s=0) as rig:
        rig.source.settle_s = 12.0
        rig.source.give(pointer("a"))
        await asyncio.sleep(60)

        assert [at_ms for at_ms, _ in rig.source.extended] == [10_000]


@on_virtual_time
async def test_a_consumer_that_was_stopped_keeps_the_leases_of_what_it_took() -> None:
    async with running(prepare=leased) as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.apply(pools(pool_p(), queues=()))
        await rig.router.clean_up_drained()
        await asyncio.sleep(25)
        assert [at_ms for at_ms, _ in rig.source.extended] == [10_000, 20_000]
        assert rig.source.closed == 0
        rig.mediator.let_go("a")
        await rig.idle()
        await rig.router.clean_up_drained()

        assert rig.source.acked == ["b-a"]
        assert rig.source.closed == 1


@on_virtual_time
async def test_a_heartbeat_that_fails_is_tried_again_at_the_next_round() -> None:
    async with running(prepare=leased) as rig:
        rig.source.extend_errors.append(Unavailable("no answer"))
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await asyncio.sleep(21)

        assert [at_ms for at_ms, _ in rig.source.extended] == [10_000, 20_000]
        rig.mediator.let_go("a")


@on_virtual_time
async def test_a_heartbeat_that_ends_with_a_bug_makes_the_consumer_unhealthy() -> None:
    async with running(prepare=leased) as rig:
        rig.source.extend_errors.append(ZeroDivisionError("oops"))
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await asyncio.sleep(11)
        assert rig.router.queues()[0].healthy is False
        await rig.router.restart_unhealthy_consumers()
        await quiet()
        rig.source.give(received(pointer("a"), "again"))
        await asyncio.sleep(11)

        assert [handles for _, handles in rig.sources[1].extended] == [("again",)]
        rig.mediator.let_go("a")


@on_virtual_time
async def test_without_leases_there_is_no_heartbeat() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await asyncio.sleep(3600)

        assert rig.source.extended == []
        rig.mediator.let_go("a")

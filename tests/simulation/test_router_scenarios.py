"""Scenarios of batches and groups (ROUTER-BATCH-1 to 5), on virtual time: acked, or given back, for how long."""

import asyncio
from itertools import pairwise

import pytest

from penstock.domain.errors import Unavailable
from penstock.domain.outcome import MediationOutcome
from penstock.domain.pointer import DEFAULT_GROUP, DispatchMode, MessagePointer
from tests.rigs.router import (
    REFUSED,
    SERVER_ERROR,
    TIMED_OUT,
    UNREACHABLE,
    ScriptedSource,
    deferred,
    on_virtual_time,
    pointer,
    pool_p,
    rate_limited,
    received,
    running,
)


def order(number: str, *message_ids: str) -> list[MessagePointer]:
    """Messages of the group of an order."""
    return [pointer(message_id, f"order-{number}") for message_id in message_ids]


@on_virtual_time
async def test_scenario_1_mixed_groups_in_batch() -> None:
    async with running(script={"msg2": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*order("12345", "msg1", "msg2", "msg3"), *order("67890", "msg4"))
        await rig.idle()

        assert sorted(rig.source.acked) == ["b-msg1", "b-msg4"]
        assert rig.source.nacked == {"b-msg2": 30, "b-msg3": 10}
        assert "msg3" not in rig.mediator.order


@on_virtual_time
async def test_scenario_2_all_messages_same_group() -> None:
    async with running(script={"msg3": [TIMED_OUT] * 3}) as rig:
        rig.source.give(*order("12345", "msg1", "msg2", "msg3", "msg4", "msg5"))
        await rig.idle()

        assert rig.source.acked == ["b-msg1", "b-msg2"]
        assert rig.source.nacked == {"b-msg3": 30, "b-msg4": 10, "b-msg5": 10}
        assert rig.mediator.order == ["msg1", "msg2", "msg3", "msg3", "msg3"]
        assert rig.pool().groups == 0


@on_virtual_time
async def test_scenario_3_multiple_batches_same_group() -> None:
    async with running(script={"msg1": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*order("12345", "msg1", "msg2"))
        rig.source.give(*order("12345", "msg3", "msg4"))
        await rig.idle()

        assert rig.source.nacked == {"b-msg1": 30, "b-msg2": 10, "b-msg3": 10, "b-msg4": 10}
        assert rig.source.acked == []
        assert rig.mediator.order == ["msg1", "msg1", "msg1"]


@on_virtual_time
async def test_without_order_in_the_queue_batches_are_independent() -> None:
    def unordered(source: ScriptedSource) -> None:
        source.ordered = False

    async with running(script={"msg1": [SERVER_ERROR] * 3}, prepare=unordered) as rig:
        rig.source.give(*order("12345", "msg1", "msg2"))
        rig.source.give(*order("12345", "msg3", "msg4"))
        await rig.idle()

        assert rig.source.nacked == {"b-msg1": 30, "b-msg2": 31}
        assert rig.source.acked == ["b-msg3", "b-msg4"]


@on_virtual_time
async def test_a_failure_gives_back_what_met_in_its_lane_after_a_lapsed_lease() -> None:
    async with running(script={"msg2": [SERVER_ERROR] * 3}) as rig:
        rig.source.settle_errors.append(Unavailable("the delete was lost"))
        rig.source.give(*order("12345", "msg1", "msg2", "msg3"))
        await asyncio.sleep(0.25)
        # msg1 is done here but not in its queue, so it comes again; its lease and that of msg3 have lapsed.
        again = [received(each, "h2") for each in order("12345", "msg1", "msg2", "msg3")]
        rig.source.give(*again, *order("12345", "msg4"))
        rig.source.give(*order("12345", "msg5"))
        await rig.idle()

        assert rig.mediator.order == ["msg1", "msg2", "msg2", "msg2"]
        assert rig.source.nacked == {"b-msg2": 30, **{f"b-msg{number}": 10 for number in (1, 3, 4, 5)}}


@on_virtual_time
async def test_what_comes_with_a_message_that_is_being_given_back_does_not_pass_it() -> None:
    async with running(script={"msg1": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*order("12345", "msg1"))
        rig.source.give(*order("12345", "msg2"))
        await asyncio.sleep(1.0)
        rig.source.settle_s = 5.0
        await asyncio.sleep(4.0)
        rig.source.give(received(order("12345", "msg2")[0], "h2"), *order("12345", "msg3"))
        await rig.idle()

        assert rig.mediator.order == ["msg1", "msg1", "msg1"]
        assert "b-msg3" in rig.source.nacked


@pytest.mark.parametrize(
    ("outcome", "delay_s"),
    [
        (UNREACHABLE, 30),
        (SERVER_ERROR, 30),
        (deferred(), 30),
        (deferred(0), 30),
        (deferred(7), 7),
        (deferred(100_000), 43_200),
        (rate_limited(90), 90),
    ],
)
@on_virtual_time
async def test_the_failed_message_goes_back_for_30_s_or_for_what_the_endpoint_asked(
    outcome: MediationOutcome, delay_s: int
) -> None:
    async with running(script={"a": [outcome] * 3}) as rig:
        rig.source.give(*order("1", "a", "b"))
        await rig.idle()

        assert rig.source.nacked == {"b-a": delay_s, "b-b": 10}


@pytest.mark.parametrize(("custom_s", "followers_s"), [(None, 31), (3, 10), (120, 121)])
@on_virtual_time
async def test_without_order_in_the_queue_followers_come_back_after_the_failed_one(
    custom_s: int | None, followers_s: int
) -> None:
    def unordered(source: ScriptedSource) -> None:
        source.ordered = False

    async with running(script={"a": [deferred(custom_s)]}, prepare=unordered) as rig:
        rig.source.give(*order("1", "a", "b", "c"))
        await rig.idle()

        assert rig.source.nacked == {"b-a": custom_s or 30, "b-b": followers_s, "b-c": followers_s}


@pytest.mark.parametrize(("groups", "seconds"), [(1, 10), (5, 2), (10, 1), (100, 1)])
@on_virtual_time
async def test_100_messages_10_workers_100_ms_mediation(groups: int, seconds: int) -> None:
    async with running(pool_p(concurrency=10), takes_s=0.1) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number % groups}") for number in range(100)))
        await rig.idle()

        ends_ms = [delivery.ended_ms for delivery in rig.mediator.deliveries if delivery.ended_ms is not None]
        assert len(rig.source.acked) == len(ends_ms) == 100
        assert max(ends_ms) == seconds * 1000
        assert rig.mediator.most_at_once == min(groups, 10)


@on_virtual_time
async def test_should_maintain_fifo_ordering_per_message_group() -> None:
    async with running() as rig:
        for number in range(10):
            rig.source.give(pointer(f"1-{number}", "group-1"), pointer(f"2-{number}", "group-2"))
        await rig.idle()

        for group in ("group-1", "group-2"):
            delivered = [each for each in rig.mediator.deliveries if each.group == group]
            assert [each.message_id[2:] for each in delivered] == [str(number) for number in range(10)]
            for earlier, later in pairwise(delivered):
                assert earlier.ended_ms is not None
                assert earlier.ended_ms <= later.started_ms


@on_virtual_time
async def test_should_allow_concurrent_processing_across_groups() -> None:
    async with running(pool_p(concurrency=10)) as rig:
        for group in range(10):
            rig.source.give(*(pointer(f"{group}-{number}", f"group-{group}") for number in range(10)))
        await rig.idle()

        together = {each.group for each in rig.mediator.deliveries if each.started_ms == 0}
        assert len(together) == 10
        assert len(rig.source.acked) == 100


@on_virtual_time
async def test_high_priority_goes_before_regular_and_both_stay_in_order() -> None:
    async with running() as rig:
        rig.source.give(
            *(pointer(f"r{number}") for number in range(3)),
            *(pointer(f"h{number}", high_priority=True) for number in range(3)),
        )
        await rig.idle()

        assert rig.mediator.order == ["h0", "h1", "h2", "r0", "r1", "r2"]


@on_virtual_time
async def test_high_priority_that_comes_later_goes_next_and_never_interrupts() -> None:
    async with running() as rig:
        rig.source.give(*(pointer(f"r{number}") for number in range(3)))
        rig.source.give(pointer("h", high_priority=True))
        await rig.idle()

        assert rig.mediator.order == ["r0", "h", "r1", "r2"]
        assert rig.mediator.most_at_once == 1


@pytest.mark.parametrize("high_priority", [True, False])
@on_virtual_time
async def test_an_idle_group_wakes_at_once_whichever_tier_receives(high_priority: bool) -> None:
    async with running(takes_s=0.1) as rig:
        rig.source.give(pointer("first", high_priority=not high_priority))
        await asyncio.sleep(3600)
        rig.source.give(pointer("second", high_priority=high_priority))
        await rig.idle()

        assert rig.mediator.starts_ms("second") == [3_600_000]


@pytest.mark.parametrize("nothing", [None, "", "  ", "\t\n"])
@on_virtual_time
async def test_messages_without_a_group_share_the_default_group(nothing: str | None) -> None:
    async with running() as rig:
        rig.source.give(pointer("a", nothing), pointer("b", None), pointer("c", DEFAULT_GROUP))
        await rig.idle()

        assert {delivery.group for delivery in rig.mediator.deliveries} == {"__DEFAULT__"}
        assert rig.mediator.order == ["a", "b", "c"]
        assert rig.mediator.most_at_once == 1


@on_virtual_time
async def test_next_on_error_lets_followers_go_on_and_only_the_failed_one_goes_back() -> None:
    mode = DispatchMode.NEXT_ON_ERROR
    async with running(script={"a": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*(pointer(message_id, mode=mode) for message_id in "abc"))
        await rig.idle()

        assert rig.mediator.order == ["a", "a", "a", "b", "c"]
        assert (rig.source.acked, rig.source.nacked) == (["b-b", "b-c"], {"b-a": 30})
        assert rig.mediator.most_at_once == 1


@on_virtual_time
async def test_immediate_ignores_order_and_failures_of_its_group() -> None:
    mode = DispatchMode.IMMEDIATE
    async with running(script={"a": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*(pointer(message_id, mode=mode) for message_id in "abc"))
        await rig.idle()

        assert rig.mediator.most_at_once == 3
        assert (sorted(rig.source.acked), rig.source.nacked) == (["b-b", "b-c"], {"b-a": 30})
        assert rig.pool().groups == 0


@on_virtual_time
async def test_in_a_mixed_batch_each_message_decides_for_itself_whether_it_is_held_back() -> None:
    async with running(script={"a": [deferred()]}) as rig:
        rig.source.give(
            pointer("a"),
            pointer("next", mode=DispatchMode.NEXT_ON_ERROR),
            pointer("block"),
            pointer("now", mode=DispatchMode.IMMEDIATE),
        )
        await rig.idle()

        assert sorted(rig.source.acked) == ["b-next", "b-now"]
        assert rig.source.nacked == {"b-a": 30, "b-block": 10}


@on_virtual_time
async def test_a_refused_message_is_acked_and_holds_nobody_back() -> None:
    async with running(script={"a": [REFUSED]}) as rig:
        rig.source.give(*order("1", "a", "b"))
        await rig.idle()

        assert rig.source.acked == ["b-a", "b-b"]
        assert rig.source.nacked == {}

"""A pool's permits count requests, not what is done before and after them."""

import asyncio

from tests.rigs.router import StagedMediatorScript, on_virtual_time, pointer, pool_p, quiet, running


@on_virtual_time
async def test_only_requests_count_and_the_next_ones_are_made_ready_meanwhile() -> None:
    async with running(pool_p(2), takes_s=0.02, mediator=StagedMediatorScript) as rig:
        rig.source.give(*(pointer(f"m{number}", group=f"s:{number}") for number in range(40)))
        await rig.idle()

        assert rig.mediator.most_at_once == 2
        first_ms, last_ms = rig.mediator.deliveries[0].started_ms, rig.mediator.deliveries[-1].started_ms
        # One after the other the stages of 20 pairs would take 1,200 ms.
        assert last_ms - first_ms <= 800
        assert len(rig.source.acked) == 40


@on_virtual_time
async def test_a_message_waits_until_the_result_of_the_one_before_it_is_stored() -> None:
    async with running(pool_p(2), takes_s=0.02, mediator=StagedMediatorScript) as rig:
        rig.source.give(pointer("a", group="g"), pointer("b", group="g"))
        await rig.idle()

        first, second = rig.mediator.deliveries
        assert first.ended_ms is not None
        assert second.started_ms - first.ended_ms == 40


@on_virtual_time
async def test_a_message_whose_lease_ends_before_its_request_is_not_delivered() -> None:
    async with running(pool_p(2), takes_s=0.02, mediator=StagedMediatorScript) as rig:
        rig.source.give(pointer("a", group="g"), pointer("b", group="g"))
        await quiet()
        for message in rig.router._tracker:
            message.leased_until_s = asyncio.get_running_loop().time()
        await rig.idle()

        assert rig.mediator.order == []
        assert rig.source.acked == []


@on_virtual_time
async def test_a_pool_with_a_rate_limit_prepares_nothing_ahead() -> None:
    async with running(pool_p(2, 600), mediator=StagedMediatorScript) as rig:
        rig.source.give(*(pointer(f"m{number}", group=f"s:{number}") for number in range(20)))
        for _ in range(30):
            await asyncio.sleep(0.05)
            [pool] = rig.router.pools()
            assert pool.active <= 2
            assert len(rig.router._pools._pools["P"]._workers) <= 4
        await rig.idle()

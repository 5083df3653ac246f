"""A configuration made so: pools and consumers added, changed, drained, moved; limits and leaks."""

import asyncio
import logging

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.pointer import DispatchMode
from penstock.ops.config.router_options import RouterOptions
from penstock.queues.open import QueueSpec
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.intake.tracker import TrackedMessage
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from tests.rigs.router import (
    SERVER_ERROR,
    RouterRig,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    received,
    running,
)


def codes(rig: RouterRig) -> list[str]:
    """The codes of the pools, those being drained in brackets."""
    return [f"({view.code})" if view.draining else view.code for view in rig.router.pools()]


@on_virtual_time
async def test_what_did_not_change_is_left_alone() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"), pointer("b"))
        await quiet()
        await rig.router.apply(pools(pool_p(), PoolConfiguration("NEW", 1)))

        assert (len(rig.sources), rig.pool().active, rig.pool().queued) == (1, 1, 1)
        assert codes(rig) == ["P", "NEW"]
        assert rig.source.settled == []
        rig.mediator.let_go("a")


@pytest.mark.parametrize("change", [{"connections": 2}, {"visibility_timeout": 60}, {"queue_uri": "scripted:other"}])
@on_virtual_time
async def test_a_queue_whose_settings_changed_gets_another_consumer(change: dict[str, object]) -> None:
    async with running() as rig:
        queue = {"queue_name": "q", "queue_uri": "scripted:q", "connections": 1, **change}
        await rig.router.apply(RouterConfiguration((pool_p(),), (QueueSpec(**queue),)))  # type: ignore[arg-type]
        await quiet()
        await rig.router.clean_up_drained()

        old, new = rig.sources
        assert (old.closed, new.closed, new.opened) == (1, 0, 1)


@on_virtual_time
async def test_the_log_says_which_pools_and_queues_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.router.router")
    async with running() as rig:
        many = [PoolConfiguration(f"N{number:02}", 1) for number in range(12)]
        await rig.router.apply(pools(pool_p(7), *many, queues=("q", "r")))
        await rig.router.apply(pools(pool_p(7), queues=("r",)))
        await rig.router.apply(pools(pool_p(7), queues=("r",)))

    names = ", ".join(f"N{number:02}" for number in range(10))
    assert caplog.messages[2:] == [
        f"12 pools created: {names}, …",
        "1 pools with new limits: P",
        "1 queues to be consumed: r",
        f"12 pools to be drained: {names}, …",
        "1 queues to be left: q",
    ]


@on_virtual_time
async def test_a_queue_that_cannot_be_used_is_warned_of_and_the_others_go_on() -> None:
    async with running() as rig:
        rig.make_errors.append(InvalidArgument("no such kind of queue"))
        await rig.router.apply(pools(pool_p(), queues=("q", "bad", "good")))

        assert [source.name for source in rig.sources] == ["q", "good"]
        [warning] = rig.warned(WarningCode.QUEUE_VALIDATION)
        assert (warning.severity, "queue bad" in warning.message) == (WarningSeverity.WARN, True)
        await rig.router.apply(pools(pool_p(), queues=("q", "bad", "good")))
        assert [source.name for source in rig.sources] == ["q", "good", "bad"]


@on_virtual_time
async def test_a_drained_pool_gives_back_what_waits_in_order_and_at_once_and_ends_what_it_delivers() -> None:
    async with running(pool_p(1), takes_s=5) as rig:
        rig.source.give(*(pointer(f"a{number}", "a") for number in range(4)))
        rig.source.give(pointer("b0", "b"), pointer("b1", "b", high_priority=True))
        await asyncio.sleep(1)
        await rig.router.apply(pools())
        await quiet()

        given_back = [(each.broker_id, each.delay_s, each.at_ms) for each in rig.source.settled]
        assert given_back == [(f"b-{each}", 0, 1000) for each in ("a1", "a2", "a3", "b1", "b0")]
        assert codes(rig) == ["(P)"]
        await rig.idle()
        assert rig.source.acked == ["b-a0"]
        assert rig.mediator.order == ["a0"]


@on_virtual_time
async def test_a_message_that_backs_off_is_given_back_first_of_its_group() -> None:
    async with running(takes_s=0, script={"a": [SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a"), pointer("b"))
        await asyncio.sleep(0.5)
        await rig.router.apply(pools())
        await asyncio.sleep(10)

        assert [(each.broker_id, each.delay_s) for each in rig.source.settled] == [("b-a", 0), ("b-b", 0)]
        assert rig.mediator.order == ["a"]


@on_virtual_time
async def test_messages_that_ignore_order_are_given_back_in_the_order_they_came() -> None:
    async with running(pool_p(1), takes_s=5) as rig:
        rig.source.give(*(pointer(f"m{number}", mode=DispatchMode.IMMEDIATE) for number in range(30)))
        await asyncio.sleep(1)
        await rig.router.apply(pools())
        await quiet()

        assert [each.broker_id for each in rig.source.settled] == [f"b-m{number}" for number in range(1, 30)]


@on_virtual_time
async def test_a_rate_limited_message_is_given_back_too_and_no_timer_is_left() -> None:
    async with running(pool_p(1, rate_limit_per_minute=1), takes_s=0) as rig:
        rig.source.give(pointer("a", "a"), pointer("b", "b"))
        await asyncio.sleep(1)
        await rig.router.apply(pools())
        await asyncio.sleep(120)

        assert rig.mediator.order == ["a"]
        assert rig.source.nacked == {"b-b": 0}


@on_virtual_time
async def test_a_delivery_that_fails_while_its_pool_is_drained_is_not_tried_again_here() -> None:
    async with running(takes_s=5, script={"a": [SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a"))
        await asyncio.sleep(1)
        await rig.router.apply(pools())
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert rig.source.nacked == {"b-a": 30}


@on_virtual_time
async def test_a_drained_pool_is_forgotten_with_its_counts_when_its_last_delivery_has_ended() -> None:
    async with running(takes_s=5) as rig:
        rig.source.give(pointer("a"))
        await asyncio.sleep(1)
        await rig.router.apply(pools())
        await rig.router.clean_up_drained()
        assert codes(rig) == ["(P)"]
        await rig.idle()
        await rig.router.clean_up_drained()

        assert codes(rig) == []
        assert dict(rig.metrics) == {}


@on_virtual_time
async def test_a_pool_that_comes_back_while_it_is_drained_keeps_to_its_limits() -> None:
    async with running(pool_p(2)) as rig:
        rig.mediator.hold("a", "b")
        rig.source.give(pointer("a", "a"), pointer("b", "b"))
        await quiet()
        await rig.router.apply(pools())
        await rig.router.apply(pools(pool_p(2)))
        rig.source.give(pointer("c", "c"))
        await asyncio.sleep(1)
        assert (codes(rig), rig.pool().active, rig.pool().queued) == (["P"], 2, 1)
        rig.mediator.let_go("a", "b")
        await rig.idle()

        assert rig.mediator.most_at_once == 2
        assert sorted(rig.source.acked) == ["b-a", "b-b", "b-c"]


@on_virtual_time
async def test_a_pool_that_comes_back_with_fewer_permits_lets_deliveries_end_first() -> None:
    async with running(pool_p(2)) as rig:
        rig.mediator.hold("a", "b")
        rig.source.give(pointer("a", "a"), pointer("b", "b"))
        await quiet()
        await rig.router.apply(pools())
        await rig.router.apply(pools(pool_p(1)))
        rig.source.give(pointer("c", "c"), pointer("d", "d"))
        await quiet()
        rig.mediator.hold("c")
        rig.mediator.let_go("a")
        await quiet()
        assert "c" not in rig.mediator.order
        rig.mediator.let_go("b")
        await quiet()

        assert rig.mediator.order == ["a", "b", "c"]
        rig.mediator.let_go("c")


@on_virtual_time
async def test_messages_of_a_dropped_pool_wait_for_its_last_deliveries_before_the_default_pool_has_them() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.apply(pools())
        rig.source.give(pointer("b"))
        await quiet()
        assert rig.source.nacked == {"b-b": 10}
        rig.mediator.let_go("a")
        await rig.idle()
        rig.source.give(pointer("b"))
        await rig.idle()

        assert rig.mediator.order == ["a", "b"]
        assert rig.pool("DEFAULT-POOL").succeeded == 1


@on_virtual_time
async def test_groups_of_a_new_pool_wait_for_what_the_default_pool_has_of_them() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a", pool="LATER"))
        await quiet()
        await rig.router.apply(pools(pool_p(), PoolConfiguration("LATER", 5)))
        others = (pointer("other", "o", pool="P"), pointer("later", "another group", pool="LATER"))
        rig.source.give(pointer("b", pool="LATER"), *others)
        await asyncio.sleep(1)
        assert rig.source.nacked == {"b-b": 10}
        assert sorted(rig.source.acked) == ["b-later", "b-other"]
        rig.mediator.let_go("a")
        await rig.idle()
        rig.source.give(pointer("b", pool="LATER"))
        await rig.idle()

        assert rig.pool("LATER").succeeded == 2


@on_virtual_time
async def test_pools_that_come_and_go_leave_nothing_behind() -> None:
    async with running() as rig:
        for number in range(20):
            await rig.router.apply(pools(PoolConfiguration(f"P{number}", 1)))
            await rig.router.clean_up_drained()

        assert codes(rig) == ["P19"]
        assert rig.router._pools._former == {}
        assert [code for code, _ in rig.metrics] == ["P19"]


@on_virtual_time
async def test_pools_beyond_the_limit_are_not_made_and_a_crowd_is_warned_of() -> None:
    limits = RouterOptions(max_pools=4, pool_warning_threshold=2)
    async with running(*(PoolConfiguration(f"P{number}", 1) for number in range(5)), limits=limits) as rig:
        assert codes(rig) == ["P0", "P1", "P2", "P3"]
        severities = {warning.severity: warning.message for warning in rig.warned(WarningCode.POOL_LIMIT)}
        assert severities.keys() == {WarningSeverity.CRITICAL, WarningSeverity.WARN}
        assert "P4" in severities[WarningSeverity.CRITICAL]
        rig.source.give(pointer("a", pool="P4"))
        await rig.idle()

        assert rig.pool("DEFAULT-POOL").succeeded == 1


def test_the_limits_of_pools_have_their_defaults() -> None:
    limits = RouterOptions()
    assert (limits.max_pools, limits.pool_warning_threshold) == (10_000, 5_000)
    assert (limits.stop_consumers_s, limits.drain_pools_s, limits.consumer_health_s) == (25, 30, 60)


@on_virtual_time
async def test_a_leak_is_a_tracked_message_that_is_in_no_pool_and_not_being_settled() -> None:
    async with running(pool_p(1), takes_s=0) as rig:
        rig.mediator.hold("held")
        rig.source.give(pointer("held"))
        await quiet()
        [held] = rig.router._tracker
        of = pointer("forgotten")
        forgotten = TrackedMessage(of, received(of), held.origin, held.pool, held.batch_group, 0.0)
        rig.router._tracker.track(forgotten)
        await rig.router.check_for_leaks()

        [warning] = rig.warned(WarningCode.PIPELINE_MAP_LEAK)
        assert warning.severity is WarningSeverity.WARN
        assert "size (2) > in pools and settlement (1)" in warning.message
        rig.router._tracker.remove(forgotten)
        rig.mediator.let_go("held")


@on_virtual_time
async def test_full_load_is_not_a_leak() -> None:
    script = {f"back-off-{number}": [SERVER_ERROR] * 3 for number in range(40)}
    async with running(pool_p(1), PoolConfiguration("Q", 1), takes_s=0, script=script) as rig:
        rig.mediator.hold("held")
        rig.source.settle_s = None
        rig.source.give(*(pointer(f"settling-{number}", f"s{number}") for number in range(45)))
        await quiet()
        rig.source.give(*(pointer(each, each) for each in script))
        await quiet()
        rig.source.give(*(pointer(f"held-{number}" if number else "held", pool="Q") for number in range(50)))
        await quiet()
        await rig.router.check_for_leaks()

        assert rig.router.queues()[0].in_flight == 45 + 40 + 50
        assert rig.warned(WarningCode.PIPELINE_MAP_LEAK) == []
        rig.source.confirm_all()
        rig.mediator.let_go("held")


@on_virtual_time
async def test_limits_changed_by_hand_hold_until_the_configuration_changes() -> None:
    async with running(pool_p(5, rate_limit_per_minute=10)) as rig:
        assert await rig.router.change_pool("P", concurrency=7, rate_limit_per_minute=None, unlimited_rate=False)
        assert (rig.pool().concurrency, rig.pool().rate_limit_per_minute) == (7, 10)
        assert await rig.router.change_pool("P", concurrency=None, rate_limit_per_minute=20, unlimited_rate=False)
        assert (rig.pool().concurrency, rig.pool().rate_limit_per_minute) == (7, 20)
        assert await rig.router.change_pool("P", concurrency=None, rate_limit_per_minute=None, unlimited_rate=True)
        assert (rig.pool().concurrency, rig.pool().rate_limit_per_minute) == (7, None)
        await rig.router.apply(pools(pool_p(5, 10)))

        assert (rig.pool().concurrency, rig.pool().rate_limit_per_minute) == (5, 10)
        assert not await rig.router.change_pool("NONE", concurrency=1, rate_limit_per_minute=None, unlimited_rate=False)

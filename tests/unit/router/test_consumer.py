"""A consumer: polling, back-off, full pools, health, and that nothing spins."""

import asyncio

import pytest

from penstock.domain.errors import Unavailable
from penstock.queues.errors import BrokerQueueNotFound
from penstock.queues.open import QueueSpec
from penstock.router.config.configuration import PoolConfiguration
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from penstock.testing.virtual_loop import LoopClock, NothingWillHappen, VirtualLoop
from tests.rigs.counting_loop import CountingLoop, run_counting
from tests.rigs.router import (
    RouterRig,
    ScriptedMediator,
    ScriptedSource,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    running,
)


@on_virtual_time
async def test_a_queue_that_cannot_be_opened_is_tried_again_with_back_off() -> None:
    def away(source: ScriptedSource) -> None:
        source.open_errors.extend(Unavailable("away") for _ in range(5))

    async with running(prepare=away) as rig:
        rig.source.give(pointer("a"))
        await asyncio.sleep(36)
        assert (rig.source.opened, rig.source.polls_ms) == (5, [])
        await asyncio.sleep(1)

        assert rig.source.opened == 6
        assert rig.source.polls_ms[0] == 200 + 1000 + 5000 + 15_000 + 15_000
        assert rig.source.acked == ["b-a"]


@on_virtual_time
async def test_a_source_that_does_not_answer_is_polled_again_with_back_off_until_it_does() -> None:
    def away(source: ScriptedSource) -> None:
        source.receive_errors.extend(Unavailable("away") for _ in range(6))

    async with running(prepare=away) as rig:
        rig.source.give(pointer("a"))
        await asyncio.sleep(60)

        assert rig.source.polls_ms[:7] == [0, 200, 1200, 6200, 21_200, 36_200, 51_200]
        assert rig.source.acked == ["b-a"]


@on_virtual_time
async def test_the_back_off_begins_anew_after_a_good_poll() -> None:
    async with running() as rig:
        for _ in range(2):
            rig.source.receive_errors.extend([Unavailable("away"), Unavailable("away")])
            rig.source.give()
            await asyncio.sleep(10)

        # Each time the poll that was waiting returned first, and the two after it failed.
        assert rig.source.polls_ms == [0, 0, 200, 1200, 10_000, 10_200, 11_200]


@on_virtual_time
async def test_every_connection_polls() -> None:
    async with running() as rig:
        await rig.router.apply(pools(pool_p(), queues=("q", "busy"), connections=3))
        await quiet()

        assert [len(source.polls_ms) for source in rig.sources] == [1, 3, 3]
        assert rig.sources[0].name == rig.sources[1].name == "q"


@on_virtual_time
async def test_a_full_pool_stops_the_polls_and_a_freed_place_wakes_them() -> None:
    async with running(pool_p(1), takes_s=1) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("first"), *(pointer(f"m{number}") for number in range(41)))
        await asyncio.sleep(59)
        assert len(rig.source.polls_ms) == 1
        [queue] = rig.router.queues()
        assert (queue.paused, queue.healthy) == (True, True)
        rig.mediator.let_go("first")
        await quiet()

        # A batch of ten fits again as soon as the next message is taken out of line.
        assert rig.source.polls_ms == [0, 59_000]
        assert rig.router.queues()[0].paused is False
        assert rig.warned(WarningCode.QUEUE_FULL) == []


@on_virtual_time
async def test_a_full_pool_does_not_stop_the_others_of_its_queue() -> None:
    async with running(pool_p(1), PoolConfiguration("Q", 1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("q0", "q0", "Q"), pointer("first"), *(pointer(f"m{n}") for n in range(49)))
        for number in range(1, 4):
            rig.source.give(pointer("late-1"), pointer("late-2"), pointer(f"q{number}", "q", "Q"))
        await asyncio.sleep(1)

        assert rig.source.acked == ["b-q0", "b-q1", "b-q2", "b-q3"]
        turned_away = [(each.broker_id, each.delay_s) for each in rig.source.settled if each.delay_s is not None]
        assert turned_away == [("b-late-1", 5), ("b-late-2", 5)] * 3
        assert rig.warned(WarningCode.QUEUE_FULL) != []
        rig.mediator.let_go("first")


@on_virtual_time
async def test_turning_messages_away_slows_the_polls_down() -> None:
    async with running(pool_p(1), PoolConfiguration("Q", 1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("q", "q", "Q"), pointer("first"), *(pointer(f"m{n}") for n in range(49)))
        for _ in range(20):
            rig.source.give(*(pointer(f"late-{number}") for number in range(10)))
        await asyncio.sleep(2)

        assert rig.source.polls_ms == [0, 0, *range(50, 1001, 50)]
        rig.mediator.let_go("first")


@on_virtual_time
async def test_polls_pause_while_all_pools_of_a_queue_are_full() -> None:
    async with running(pool_p(1), PoolConfiguration("Q", 1)) as rig:
        rig.mediator.hold("p", "q")
        rig.source.give(pointer("p"), pointer("q", "q", "Q"))
        rig.source.give(*(pointer(f"p{n}") for n in range(45)), *(pointer(f"q{n}", "q", "Q") for n in range(45)))
        await asyncio.sleep(10)
        assert rig.router.queues()[0].paused
        rig.mediator.let_go("q")
        await asyncio.sleep(1)

        assert not rig.router.queues()[0].paused
        assert rig.warned(WarningCode.QUEUE_FULL) == []
        rig.mediator.let_go("p")


@on_virtual_time
async def test_a_pause_ends_after_a_minute_as_there_may_be_messages_for_other_pools() -> None:
    async with running(pool_p(1), PoolConfiguration("Q", 1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("first"), *(pointer(f"m{number}") for number in range(49)))
        rig.source.give(pointer("q", "q", "Q"))
        await asyncio.sleep(61)

        assert rig.source.polls_ms == [0, 60_000, 60_000]
        assert rig.source.acked == ["b-q"]
        rig.mediator.let_go("first")


@on_virtual_time
async def test_a_pool_that_was_fed_long_ago_does_not_keep_the_polls_for_a_full_one_going() -> None:
    async with running(pool_p(1), PoolConfiguration("Q", 1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("q", "q", "Q"))
        await asyncio.sleep(601)
        rig.source.give(pointer("first"), *(pointer(f"m{number}") for number in range(49)))
        rig.source.give(pointer("late"))
        await asyncio.sleep(1)

        assert rig.source.polls_ms == [0, 0]
        assert rig.source.nacked == {}
        rig.mediator.let_go("first")


@on_virtual_time
async def test_more_capacity_wakes_the_polls_too() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("first"), *(pointer(f"m{number}") for number in range(41)))
        await asyncio.sleep(10)
        await rig.router.apply(pools(pool_p(5)))
        await quiet()

        assert rig.source.polls_ms == [0, 10_000]
        rig.mediator.let_go("first")


@on_virtual_time
async def test_a_full_pool_that_is_drained_wakes_the_polls() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("first")
        rig.source.give(pointer("first"), *(pointer(f"m{number}") for number in range(41)))
        await asyncio.sleep(10)
        await rig.router.apply(pools())
        await quiet()

        assert rig.source.polls_ms == [0, 10_000]
        rig.mediator.let_go("first")


@on_virtual_time
async def test_a_full_pool_does_not_stop_the_polls_of_a_queue_that_does_not_feed_it() -> None:
    async with running(pool_p(1)) as rig:
        await rig.router.apply(pools(pool_p(1), queues=("q", "other")))
        rig.mediator.hold("first")
        fed, other = rig.sources
        fed.give(pointer("first"), *(pointer(f"m{number}") for number in range(41)))
        await quiet()
        other.give()
        await quiet()

        assert (len(fed.polls_ms), len(other.polls_ms)) == (1, 2)
        rig.mediator.let_go("first")


@on_virtual_time
async def test_a_consumer_is_healthy_for_60_s_after_a_poll_and_then_replaced() -> None:
    async with running() as rig:
        rig.source.give()
        await asyncio.sleep(59.9)
        await rig.router.restart_unhealthy_consumers()
        assert (rig.router.queues()[0].healthy, len(rig.sources)) == (True, 1)
        await asyncio.sleep(0.2)
        assert rig.router.queues()[0].healthy is False
        await rig.router.restart_unhealthy_consumers()
        await quiet()

        [warning] = rig.warned(WarningCode.CONSUMER_RESTART)
        assert warning.severity is WarningSeverity.WARN
        old, new = rig.sources
        new.give(pointer("a"))
        await rig.idle()
        assert new.acked == ["b-a"]
        await rig.router.clean_up_drained()
        assert (old.closed, new.closed) == (1, 0)


@on_virtual_time
async def test_a_queue_is_not_silent_while_the_router_itself_was_stopped() -> None:
    async with running() as rig:
        rig.source.give()
        await asyncio.sleep(40)
        await rig.router.tick()
        # Without ticks: as if the process had been stopped.
        await asyncio.sleep(3600)
        assert rig.router.queues()[0].healthy
        await rig.router.restart_unhealthy_consumers()
        assert (rig.warnings.listed(), len(rig.sources)) == ([], 1)


@on_virtual_time
async def test_a_queue_that_was_never_reached_is_unhealthy_after_60_s_whatever_is_restarted() -> None:
    def away(source: ScriptedSource) -> None:
        source.open_errors.extend(Unavailable("away") for _ in range(100))

    async with running(prepare=away) as rig:
        await asyncio.sleep(59.9)
        assert rig.router.queues()[0].healthy
        for _ in range(3):
            await asyncio.sleep(60)
            assert rig.router.queues()[0].healthy is False
            await rig.router.restart_unhealthy_consumers()
            await quiet()
            assert [queue.healthy for queue in rig.router.queues() if not queue.draining] == [False]

        assert rig.router.queues()[0].last_poll_age_s is None
        warning = rig.warned(WarningCode.QUEUE_VALIDATION)[0]
        assert (warning.source, warning.severity) == ("queue q", WarningSeverity.WARN)
        assert "away" in warning.message
        rig.prepare = lambda _: None
        await rig.router.restart_unhealthy_consumers()
        await quiet()
        assert [queue.healthy for queue in rig.router.queues() if not queue.draining] == [True]


@on_virtual_time
async def test_a_broker_that_is_gone_for_good_stays_unhealthy() -> None:
    async with running() as rig:
        rig.prepare = lambda source: source.open_errors.extend(Unavailable("away") for _ in range(100))
        rig.source.receive_errors.extend(Unavailable("away") for _ in range(100))
        rig.source.give()
        await asyncio.sleep(61)
        for _ in range(3):
            await rig.router.restart_unhealthy_consumers()
            await asyncio.sleep(30)
            assert [queue.healthy for queue in rig.router.queues() if not queue.draining] == [False]


@on_virtual_time
async def test_a_queue_that_hangs_when_it_is_opened_is_unhealthy_and_warned_of() -> None:
    def hangs(source: ScriptedSource) -> None:
        source.open_s = 3600.0

    async with running(prepare=hangs) as rig:
        await asyncio.sleep(61)
        assert rig.router.queues()[0].healthy is False
        await rig.router.restart_unhealthy_consumers()

        [warning] = rig.warned(WarningCode.QUEUE_VALIDATION)
        assert "does not answer" in warning.message


@on_virtual_time
async def test_a_queue_that_does_not_exist_yet_is_not_an_outage() -> None:
    def missing(source: ScriptedSource) -> None:
        source.open_errors.extend(BrokerQueueNotFound("no such queue") for _ in range(20))

    async with running(prepare=missing) as rig:
        await asyncio.sleep(120)
        assert rig.router.queues()[0].healthy
        await rig.router.restart_unhealthy_consumers()
        [warning] = rig.warned(WarningCode.QUEUE_VALIDATION)
        assert (warning.source, warning.message) == ("router", "1 queues do not exist yet: q")
        rig.source.open_errors.clear()
        rig.source.give(pointer("a"))
        await asyncio.sleep(20)

        assert rig.source.acked == ["b-a"]
        assert len(rig.sources) == 1


@on_virtual_time
async def test_a_consumer_that_never_comes_back_from_its_first_poll_is_replaced() -> None:
    async with running() as rig:
        await asyncio.sleep(61)
        await rig.router.restart_unhealthy_consumers()
        await quiet()
        rig.source.give(pointer("a"))
        await rig.idle()

        assert len(rig.sources) == 2
        assert rig.source.acked == ["b-a"]


@on_virtual_time
async def test_a_poll_that_ends_with_a_bug_makes_the_consumer_unhealthy_and_is_replaced() -> None:
    async with running() as rig:
        rig.source.receive_errors.append(ZeroDivisionError("oops"))
        rig.source.give()
        await quiet()
        assert rig.router.queues()[0].healthy is False
        await rig.router.restart_unhealthy_consumers()
        rig.source.give(pointer("a"))
        await rig.idle()

        assert rig.sources[1].acked == ["b-a"]


@on_virtual_time
async def test_a_restart_that_fails_is_critical_and_tried_again_until_it_works() -> None:
    async with running() as rig:
        rig.make_errors.extend([Unavailable("no broker"), Unavailable("no broker")])
        for failures in (1, 2):
            assert not await rig.router.restart_consumer("q")
            [warning] = rig.warned(WarningCode.CONSUMER_RESTART_FAILED)
            assert (warning.severity, warning.count) == (WarningSeverity.CRITICAL, failures)
            assert "no broker" in warning.message
        await rig.router.restart_unhealthy_consumers()
        await quiet()
        rig.source.give(pointer("a"))
        await rig.idle()

        assert len(rig.sources) == 2
        assert rig.source.acked == ["b-a"]


@on_virtual_time
async def test_a_queue_whose_restart_failed_can_be_changed_and_dropped() -> None:
    async with running() as rig:
        rig.make_errors.append(Unavailable("no broker"))
        await rig.router.restart_consumer("q")
        await rig.router.apply(pools(pool_p(), connections=2))
        await quiet()
        assert len(rig.source.polls_ms) == 2
        rig.make_errors.append(Unavailable("no broker"))
        await rig.router.restart_consumer("q")
        await rig.router.apply(pools(pool_p(), queues=()))

        assert all(queue.draining for queue in rig.router.queues())


@on_virtual_time
async def test_a_queue_that_nobody_consumes_cannot_be_restarted() -> None:
    async with running() as rig:
        assert not await rig.router.restart_consumer("nowhere")
        assert rig.warned(WarningCode.CONSUMER_RESTART) == []


@on_virtual_time
async def test_a_source_that_only_one_may_consume_is_closed_before_the_next_is_opened() -> None:
    def alone(source: ScriptedSource) -> None:
        source.exclusive = True

    async with running(prepare=alone) as rig:
        rig.mediator.hold("a")
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.restart_consumer("q")

        assert (rig.sources[0].closed, rig.source.opened) == (1, 0)
        rig.mediator.let_go("a")


class SlowToClose(ScriptedSource):
    """A queue that one may consume at a time, and that takes its time to be left."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.exclusive = True

    async def close(self) -> None:
        await asyncio.sleep(5)
        await super().close()


@on_virtual_time
async def test_a_restart_that_meets_a_new_configuration_leaves_one_consumer() -> None:
    rig = RouterRig(ScriptedMediator(0.1, {}))
    sources: list[ScriptedSource] = []

    def make(queue: QueueSpec) -> ScriptedSource:
        sources.append(SlowToClose(queue.queue_name))
        return sources[-1]

    rig.router._consumers._make_source = make
    await rig.router.apply(pools(pool_p()))
    await quiet()
    restart = asyncio.create_task(rig.router.restart_consumer("q"))
    await asyncio.sleep(1)
    await rig.router.apply(pools(pool_p()))
    await restart
    await quiet()

    assert [source.closed for source in sources] == [1, 0]
    await rig.router.shut_down()
    assert [source.closed for source in sources] == [1, 1]


@pytest.mark.parametrize("visibility_s", [None, 30.0])
def test_an_idle_router_sets_no_timer_and_does_not_spin(visibility_s: float | None) -> None:
    async def story(loop: CountingLoop) -> None:
        rig = RouterRig(ScriptedMediator(0.1, {}))

        def leased(source: ScriptedSource) -> None:
            source.visibility_s = visibility_s

        rig.prepare = leased
        await rig.router.apply(pools(pool_p(100, rate_limit_per_minute=10_000)))
        await quiet()
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(1000)))
        await rig.idle()
        await asyncio.sleep(60)

        assert loop.timers() == []
        before = loop.rounds
        await asyncio.sleep(3600)
        assert loop.rounds - before <= 5
        await rig.router.shut_down()

    run_counting(story)


def test_a_router_with_nothing_to_do_waits_for_nothing_but_its_queues() -> None:
    async def story() -> None:
        rig = RouterRig(ScriptedMediator(0.1, {}))
        await rig.router.apply(pools(pool_p()))
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(NothingWillHappen):
        runner.run(story())


def test_the_virtual_clock_goes_with_its_loop() -> None:
    async def story() -> int:
        clock = LoopClock(asyncio.get_running_loop(), start_ms=5)
        await asyncio.sleep(1.5)
        return clock.now_ms()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(story()) == 1505

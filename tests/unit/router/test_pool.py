"""A pool: how many at once, how many may wait, attempts and what they keep, and what goes wrong inside."""

import asyncio
import logging

import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.domain.outcome import MediationOutcome
from penstock.domain.pointer import DispatchMode
from penstock.router.monitoring.views import longest
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from tests.rigs.router import (
    CIRCUIT_OPEN,
    FAILED_AT_ONCE,
    REFUSED,
    SERVER_ERROR,
    TIMED_OUT,
    UNREACHABLE,
    deferred,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    rate_limited,
    running,
)


def workers() -> list["asyncio.Task[object]"]:
    """The tasks of all pools that deliver."""
    return [task for task in asyncio.all_tasks() if "Pool._work" in str(task.get_coro())]


@pytest.mark.parametrize(("concurrency", "capacity"), [(1, 50), (2, 50), (3, 60), (10, 200), (1000, 20_000)])
@on_virtual_time
async def test_capacity_is_twenty_per_permit_and_fifty_at_least(concurrency: int, capacity: int) -> None:
    async with running(pool_p(concurrency)) as rig:
        assert rig.pool().queue_capacity == capacity


@on_virtual_time
async def test_no_more_deliveries_at_once_than_permits() -> None:
    async with running(pool_p(3)) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(20)))
        await quiet()
        assert (rig.pool().active, rig.pool().available_permits, rig.pool().queued) == (3, 0, 17)
        await rig.idle()

        assert rig.mediator.most_at_once == 3
        assert (rig.pool().active, rig.pool().available_permits, rig.pool().queued) == (0, 3, 0)


@on_virtual_time
async def test_groups_take_turns_however_deep_one_of_them_is() -> None:
    async with running(pool_p(1)) as rig:
        deep = [pointer(f"deep-{number}", "deep") for number in range(5)]
        rig.source.give(*deep, pointer("x", "x"), pointer("y", "y"))
        await rig.idle()

        assert rig.mediator.order == ["deep-0", "x", "y", "deep-1", "deep-2", "deep-3", "deep-4"]


@on_virtual_time
async def test_subscriptions_take_turns_however_many_keys_one_of_them_has() -> None:
    async with running(pool_p(1)) as rig:
        rig.source.give(*(pointer(f"many-{number}", f"many:{number}") for number in range(5)))
        rig.source.give(pointer("few-1", "few:1"), pointer("few-1b", "few:1"), pointer("few-2", "few:2"))
        await rig.idle()

        turns = [each.partition("-")[0] for each in rig.mediator.order]
        assert turns == ["many", "many", "few", "many", "few", "many", "few", "many"]


@on_virtual_time
async def test_one_subscription_of_a_shared_pool_has_half_of_the_permits_at_most() -> None:
    async with running(pool_p(4)) as rig:
        rig.mediator.hold(*(f"slow-{number}" for number in range(10)))
        rig.source.give(pointer("quick-0", "quick:0"), *(pointer(f"slow-{n}", f"slow:{n}") for n in range(10)))
        for number in range(1, 20):
            await asyncio.sleep(5)
            rig.source.give(pointer(f"quick-{number}", "quick:0"))
        await quiet()

        assert rig.pool().active == 3
        await asyncio.sleep(0.2)
        assert rig.source.acked == [f"b-quick-{number}" for number in range(20)]
        assert [each for each in rig.mediator.order if "slow" in each] == ["slow-0", "slow-1"]
        rig.mediator.let_go(*(f"slow-{number}" for number in range(10)))


@on_virtual_time
async def test_the_other_half_of_a_shared_pool_is_free_for_who_has_not_sent_anything_yet() -> None:
    async with running(pool_p(4, shared=True)) as rig:
        hanging = [f"hanging-{number}" for number in range(10)]
        rig.mediator.hold(*hanging)
        rig.source.give(*(pointer(each, f"hanging:{each}") for each in hanging))
        await asyncio.sleep(5)
        assert rig.pool().active == 2
        rig.source.give(pointer("quick", "quick:0"))
        await asyncio.sleep(1)

        assert rig.source.acked == ["b-quick"]
        rig.mediator.let_go(*hanging)


@on_virtual_time
async def test_the_last_subscription_of_a_shared_pool_has_all_permits_at_once() -> None:
    async with running(pool_p(4, shared=True)) as rig:
        held = [f"m{number}" for number in range(10)]
        rig.mediator.hold(*held)
        rig.source.give(*(pointer(each, f"only:{each}") for each in held))
        await asyncio.sleep(5)
        assert rig.pool().active == 2
        await rig.router.apply(pools(pool_p(4)))
        await quiet()

        assert rig.pool().active == 4
        rig.mediator.let_go(*held)


@on_virtual_time
async def test_a_delivery_that_ends_makes_way_for_its_own_subscription() -> None:
    async with running(pool_p(4)) as rig:
        rig.mediator.hold("slow-0")
        rig.source.give(pointer("quick", "quick:0"), *(pointer(f"slow-{n}", f"slow:{n}") for n in range(10)))
        await rig.idle_but("slow-0")

        assert len(rig.source.acked) == 10
        rig.mediator.let_go("slow-0")


@on_virtual_time
async def test_a_subscription_alone_in_its_pool_has_all_permits() -> None:
    async with running(pool_p(4), takes_s=1) as rig:
        rig.source.give(*(pointer(f"m{number}", f"only:{number}") for number in range(8)))
        await rig.idle()

        assert (rig.mediator.most_at_once, rig.now_ms()) == (4, 2000)


@on_virtual_time
async def test_a_subscription_that_is_alone_for_ten_minutes_has_all_permits_again() -> None:
    async with running(pool_p(4), takes_s=1) as rig:
        rig.source.give(pointer("other", "other:0"), *(pointer(f"early-{n}", f"only:{n}") for n in range(8)))
        await asyncio.sleep(600)
        assert rig.mediator.most_at_once == 3
        rig.source.give(*(pointer(f"late-{number}", f"only:{number}") for number in range(8)))
        await rig.idle()

        assert rig.mediator.most_at_once == 4


@on_virtual_time
async def test_more_permits_of_a_shared_pool_are_used_at_once() -> None:
    async with running(pool_p(2)) as rig:
        held = [f"slow-{number}" for number in range(10)]
        rig.mediator.hold(*held)
        rig.source.give(pointer("quick", "quick:0"), *(pointer(each, f"slow:{each}") for each in held))
        await asyncio.sleep(1)
        assert rig.pool().active == 1
        await rig.router.apply(pools(pool_p(8)))
        await quiet()

        assert rig.pool().active == 4
        rig.mediator.let_go(*held)


@on_virtual_time
async def test_a_turn_that_is_not_taken_spends_no_permit_of_the_rate_limit() -> None:
    async with running(pool_p(2, rate_limit_per_minute=4)) as rig:
        rig.mediator.hold("slow-0")
        rig.source.give(pointer("quick-0", "quick:0"), *(pointer(f"slow-{n}", f"slow:{n}") for n in range(3)))
        await asyncio.sleep(1)
        rig.source.give(pointer("quick-1", "quick:0"), pointer("quick-2", "quick:0"))
        await asyncio.sleep(1)

        assert rig.source.acked == ["b-quick-0", "b-quick-1", "b-quick-2"]
        rig.mediator.let_go("slow-0")


@on_virtual_time
async def test_messages_that_back_off_take_room() -> None:
    async with running(pool_p(10), takes_s=0, script={f"m{n}": [SERVER_ERROR] * 3 for n in range(400)}) as rig:
        for first in range(0, 400, 10):
            rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(first, first + 10)))
        await quiet()

        # The last ten came while ten others were being delivered.
        assert (rig.pool().queue_capacity, rig.pool().backing_off, rig.pool().queued) == (200, 210, 0)
        assert rig.router.queues()[0].paused
        assert rig.warned(WarningCode.QUEUE_FULL) == []
        await rig.idle()


@on_virtual_time
async def test_messages_whose_back_off_has_ended_take_room_until_their_turn() -> None:
    async with running(pool_p(1), takes_s=0, script={f"m{n}": [SERVER_ERROR] for n in range(50)}) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(50)))
        await quiet()
        rig.mediator.hold(*(f"m{number}" for number in range(50)))
        await asyncio.sleep(2)

        assert (rig.pool().active, rig.pool().queued, rig.pool().backing_off) == (1, 49, 0)
        rig.mediator.let_go(*(f"m{number}" for number in range(50)))


@on_virtual_time
async def test_a_group_costs_nothing_when_it_has_no_messages() -> None:
    async with running() as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(50)))
        await rig.idle()

        assert rig.pool().groups == 0
        assert workers() == []


@on_virtual_time
async def test_three_attempts_one_and_two_seconds_apart() -> None:
    async with running(takes_s=0.5, script={"a": [SERVER_ERROR, UNREACHABLE, TIMED_OUT]}) as rig:
        rig.source.give(pointer("a"))
        await rig.idle()

        assert [delivery.attempt for delivery in rig.mediator.deliveries] == [1, 2, 3]
        assert rig.mediator.starts_ms("a") == [0, 1500, 4000]
        assert rig.source.nacked == {"b-a": 30}


@on_virtual_time
async def test_an_attempt_that_succeeds_ends_the_attempts() -> None:
    async with running(script={"a": [SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a"))
        await rig.idle()

        assert len(rig.mediator.deliveries) == 2
        assert rig.source.acked == ["b-a"]


@pytest.mark.parametrize("outcome", [CIRCUIT_OPEN, deferred(), rate_limited(5), REFUSED, FAILED_AT_ONCE])
@on_virtual_time
async def test_what_another_attempt_cannot_help_is_not_tried_again(outcome: MediationOutcome) -> None:
    async with running(script={"a": [outcome]}) as rig:
        rig.source.give(pointer("a"))
        await rig.idle()

        assert rig.mediator.order == ["a"]


@on_virtual_time
async def test_a_back_off_gives_the_permit_to_others_and_keeps_the_groups_turn() -> None:
    async with running(pool_p(1), takes_s=0.1, script={"a1": [SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a1", "a"), pointer("a2", "a"), *(pointer(f"b{n}", "b") for n in range(3)))
        await asyncio.sleep(0.15)
        assert (rig.pool().backing_off, rig.pool().active) == (1, 1)
        await rig.idle()

        assert rig.mediator.order == ["a1", "b0", "b1", "b2", "a1", "a2"]
        assert rig.mediator.starts_ms("a1") == [0, 1100]
        assert rig.pool().backing_off == 0


@on_virtual_time
async def test_high_priority_does_not_pass_a_message_that_backs_off() -> None:
    async with running(script={"a": [SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a"))
        await quiet()
        rig.source.give(pointer("h", high_priority=True))
        await rig.idle()

        assert rig.mediator.order == ["a", "a", "h"]


@on_virtual_time
async def test_more_permits_are_used_at_once() -> None:
    async with running(pool_p(1), takes_s=1) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(5)))
        await asyncio.sleep(0.5)
        await rig.router.apply(pools(pool_p(4)))
        await quiet()

        assert rig.pool().active == 4
        assert [delivery.started_ms for delivery in rig.mediator.deliveries] == [0, 500, 500, 500]


@on_virtual_time
async def test_fewer_permits_wait_for_deliveries_to_end() -> None:
    async with running(pool_p(3), takes_s=10) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(6)))
        await quiet()
        change = asyncio.create_task(rig.router.apply(pools(pool_p(1))))
        await asyncio.sleep(9)
        assert not change.done()
        assert rig.pool().concurrency == 3
        await change

        assert (rig.pool().concurrency, rig.now_ms()) == (1, 10_000)
        await rig.idle()
        starts_ms = [delivery.started_ms for delivery in rig.mediator.deliveries]
        assert starts_ms == [0, 0, 0, 10_000, 20_000, 30_000]


@on_virtual_time
async def test_fewer_permits_are_given_up_after_60_s_and_the_old_limit_holds() -> None:
    async with running(pool_p(3)) as rig:
        rig.mediator.hold("m0", "m1")
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(2)))
        await quiet()
        with pytest.raises(FailedPrecondition, match="still has 2 deliveries"):
            await rig.router.change_pool("P", concurrency=1, rate_limit_per_minute=None, unlimited_rate=False)

        assert (rig.pool().concurrency, rig.now_ms()) == (3, 60_000)
        rig.source.give(pointer("more", "more"))
        await quiet()
        assert "more" in rig.mediator.order
        rig.mediator.let_go("m0", "m1")


@on_virtual_time
async def test_what_waited_for_fewer_permits_goes_when_they_are_given_up() -> None:
    async with running(pool_p(3)) as rig:
        rig.mediator.hold("m0", "m1")
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(2)))
        await quiet()
        change = rig.router.change_pool("P", concurrency=1, rate_limit_per_minute=None, unlimited_rate=False)
        changing = asyncio.create_task(change)
        await quiet()
        rig.source.give(pointer("more", "more"))
        await quiet()
        assert "more" not in rig.mediator.order

        with pytest.raises(FailedPrecondition):
            await changing
        await quiet()
        assert "more" in rig.mediator.order
        rig.mediator.let_go("m0", "m1")


@on_virtual_time
async def test_the_newest_change_holds_when_an_older_one_still_waits() -> None:
    async with running(pool_p(3)) as rig:
        rig.mediator.hold("m0", "m1", "m2")
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(3)))
        await quiet()
        older = asyncio.create_task(rig.router.apply(pools(pool_p(1))))
        await quiet()
        assert await rig.router.change_pool("P", concurrency=5, rate_limit_per_minute=None, unlimited_rate=False)
        rig.mediator.let_go("m0", "m1", "m2")
        await older

        assert (rig.pool().concurrency, rig.pool().available_permits) == (5, 5)


@on_virtual_time
async def test_a_change_that_is_cut_short_leaves_the_old_limit() -> None:
    async with running(pool_p(3)) as rig:
        rig.mediator.hold("m0", "m1")
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(2)))
        await quiet()
        change = asyncio.create_task(rig.router.apply(pools(pool_p(1))))
        await quiet()
        change.cancel()
        await quiet()

        assert (rig.pool().concurrency, rig.pool().available_permits) == (3, 1)
        rig.mediator.let_go("m0", "m1")


@on_virtual_time
async def test_an_outcome_of_nothing_is_critical_and_counts_as_a_failure() -> None:
    async with running(script={"a": [None]}) as rig:
        rig.source.give(pointer("a"), pointer("b"))
        await rig.idle()

        [warning] = rig.warned(WarningCode.MEDIATOR_NULL_RESULT)
        assert warning.severity is WarningSeverity.CRITICAL
        assert rig.source.nacked == {"b-a": 30, "b-b": 10}
        assert rig.metrics.pool("P").transient_count == 1


@on_virtual_time
async def test_an_error_in_the_mediator_is_a_warning_and_the_message_goes_back() -> None:
    async with running(script={"a": [ZeroDivisionError("oops")]}) as rig:
        rig.source.give(pointer("a"), pointer("x", "x"))
        await rig.idle()

        [warning] = rig.warned(WarningCode.PROCESSING)
        assert (warning.severity, "ZeroDivisionError" in warning.message) == (WarningSeverity.WARN, True)
        assert (rig.source.nacked, rig.source.acked) == ({"b-a": 30}, ["b-x"])


@on_virtual_time
async def test_a_worker_ended_from_outside_strands_nobody() -> None:
    async with running(pool_p(1), takes_s=1) as rig:
        rig.source.give(pointer("a"), pointer("with-a"))
        rig.source.give(pointer("later", mode=DispatchMode.NEXT_ON_ERROR))
        rig.source.give(pointer("x", "x"))
        await asyncio.sleep(0.5)
        [worker] = workers()
        worker.cancel()
        await rig.idle()

        assert rig.source.nacked == {"b-a": 0, "b-with-a": 10}
        assert sorted(rig.source.acked) == ["b-later", "b-x"]
        for code in (WarningCode.GROUP_THREAD_EXIT_WITH_MESSAGES, WarningCode.GROUP_THREAD_RESTART):
            assert [warning.severity for warning in rig.warned(code)] == [WarningSeverity.WARN]
        assert (rig.pool().active, rig.pool().available_permits) == (0, 1)


@on_virtual_time
async def test_a_worker_ended_before_its_first_step_strands_nobody() -> None:
    async with running(pool_p(1)) as rig:
        rig.source.give(pointer("a"))
        for _ in range(100):
            await asyncio.sleep(0)
            if workers():
                break
        workers()[0].cancel()
        await rig.idle()

        assert rig.mediator.order == []
        assert rig.source.nacked == {"b-a": 0}
        assert rig.warned(WarningCode.GROUP_THREAD_RESTART) == []


@on_virtual_time
async def test_a_permit_that_comes_back_twice_is_critical_and_mended() -> None:
    async with running(pool_p(1)) as rig:
        rig.source.give(pointer("a"))
        await quiet()
        rig.router._pools._pools["P"]._permits.taken = 0
        await rig.idle()

        [warning] = rig.warned(WarningCode.SEMAPHORE_RELEASE_FAILED)
        assert warning.severity is WarningSeverity.CRITICAL
        assert rig.pool().available_permits == 1


@on_virtual_time
async def test_every_ending_is_counted_once_as_what_it_is() -> None:
    script = {"refused": [REFUSED], "down": [UNREACHABLE] * 3, "open": [CIRCUIT_OPEN], "late": [SERVER_ERROR] * 3}
    async with running(script={**script, "deferred": [deferred()], "limited": [rate_limited(1)]}) as rig:
        rig.source.give(*(pointer(each, each) for each in [*script, "deferred", "limited", "fine"]))
        await rig.idle()

        counts = rig.metrics.pool("P")
        assert counts.submitted_count == 7
        assert counts.succeeded_count == 1
        assert counts.failed_count == 3
        assert counts.transient_count == 1
        assert counts.deferred_count == 2


@on_virtual_time
async def test_the_times_of_a_message_with_several_attempts_are_those_of_all_of_them() -> None:
    async with running(pool_p(1), takes_s=0.5, script={"a": [SERVER_ERROR, SERVER_ERROR]}) as rig:
        rig.source.give(pointer("a", "a"))
        await rig.idle()
        counts = rig.metrics.pool("P")
        # Three attempts of half a second, and pauses of one and two seconds that no one waited for.
        assert (counts.processing.total, counts.waiting.total) == (1.5, 0.0)

        rig.source.give(pointer("b", "b"), pointer("c", "c"))
        await rig.idle()
        assert (counts.processing.total, counts.waiting.total) == (2.5, 0.5)
        assert rig.pool().average_processing_ms == pytest.approx(2500 / 3)


@on_virtual_time
async def test_the_rate_limit_counts_each_time_that_it_holds_the_pool_back() -> None:
    async with running(pool_p(10, 2)) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(5)))
        await rig.idle()

        # Two go at once, two after a minute, the last one after another: one pause each, however many wait.
        assert rig.pool().rate_limit_waits == 2


@on_virtual_time
async def test_the_log_says_what_happens_to_a_batch_and_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.router")
    async with running(takes_s=0.5, script={"b": [FAILED_AT_ONCE], "d": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(*(pointer(each, "g") for each in "abc"))
        rig.source.give(pointer("d", "h"))
        await rig.idle()

    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    batch = "q#1|g"
    for line in (
        ("DEBUG", f"message a joins batch and group {batch}, which has 1"),
        ("DEBUG", f"message a leaves batch and group {batch}, which has 2"),
        ("WARNING", f"batch and group {batch} has failed: its later messages return to their queue"),
        ("WARNING", f"message c returns to its queue, to keep order: batch and group {batch} has failed"),
        ("INFO", "message d returns to its queue for 30 s: answered 500"),
        ("DEBUG", f"batch and group {batch} is finished"),
    ):
        assert line in said
    failed = next(record for record in caplog.records if "message b returns" in record.getMessage())
    assert (vars(failed)["pool"], vars(failed)["queue"], vars(failed)["group"]) == ("P", "q", "g")


@on_virtual_time
async def test_the_log_says_how_much_a_pool_has_when_it_is_drained(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.router")
    async with running(pool_p(1), takes_s=5) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(3)))
        await quiet()
    assert "pool P is drained: 2 messages wait, 1 are being delivered, in 3 groups" in caplog.messages


@on_virtual_time
async def test_the_groups_shown_are_those_with_messages_the_deepest_first() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("a0")
        rig.source.give(*(pointer(f"a{number}", "a") for number in range(2)))
        rig.source.give(*(pointer(f"b{number}", "b") for number in range(3)))
        await asyncio.sleep(2)

        shown = longest(rig.router.groups(None), 10)
        assert [(each.group, each.queued, each.active) for each in shown] == [("b", 3, False), ("a", 1, True)]
        assert [round(each.oldest_waiting_s) for each in shown] == [2, 2]
        assert longest(rig.router.groups("P"), 1) == shown[:1]
        assert rig.router.groups("OTHER") == []
        rig.mediator.let_go("a0")


@on_virtual_time
async def test_immediate_messages_are_bounded_by_permits_too() -> None:
    async with running(pool_p(2)) as rig:
        rig.source.give(*(pointer(f"m{number}", mode=DispatchMode.IMMEDIATE) for number in range(6)))
        await rig.idle()

        assert rig.mediator.most_at_once == 2
        assert len(rig.source.acked) == 6

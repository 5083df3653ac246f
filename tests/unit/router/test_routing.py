"""Routing of a batch: duplicates, capacity, unknown pools, and messages that are not pointers."""

import asyncio
import logging

import pytest

from penstock.domain.pointer import encode_pointer
from penstock.ops.telemetry.logs import HumanFormatter
from penstock.queues.port import Received
from penstock.router.config.configuration import PoolConfiguration
from penstock.router.monitoring.warnings import MAX_MESSAGE_CHARS, WarningCode, WarningSeverity
from tests.rigs.router import (
    FAILED_AT_ONCE,
    RouterRig,
    on_virtual_time,
    pointer,
    pool_p,
    quiet,
    received,
    running,
)


async def fill(rig: RouterRig, messages: int) -> None:
    """Hold the delivery of `first`, and let this many messages wait behind it."""
    rig.mediator.hold("first")
    rig.source.give(pointer("first", "first"), *(pointer(f"w{number}", "first") for number in range(messages)))
    await quiet()


@on_virtual_time
async def test_a_physical_redelivery_swaps_the_handle_and_is_not_settled() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(received(pointer("a"), "old"))
        await quiet()
        rig.source.give(received(pointer("a"), "new"))
        await quiet()
        assert rig.source.settled == []
        rig.mediator.let_go("a")
        await rig.idle()

        assert [(each.handle, each.delay_s) for each in rig.source.settled] == [("new", None)]
        assert rig.mediator.order == ["a"]


@on_virtual_time
async def test_a_logical_requeue_is_acked_with_its_own_handle_and_the_owner_is_left_alone() -> None:
    async with running() as rig:
        rig.mediator.hold("a")
        rig.source.give(received(pointer("a"), "owner"))
        await quiet()
        rig.source.give(received(pointer("a"), "copy", broker_id="other"))
        await quiet()
        assert [(each.broker_id, each.handle, each.delay_s) for each in rig.source.settled] == [("other", "copy", None)]
        rig.mediator.let_go("a")
        await rig.idle()

        assert [each.handle for each in rig.source.settled] == ["copy", "owner"]
        assert [(queue.received, queue.acked) for queue in rig.router.queues()] == [(2, 2)]
        assert rig.mediator.order == ["a"]


@on_virtual_time
async def test_a_message_queued_twice_in_one_batch_is_delivered_once() -> None:
    async with running() as rig:
        rig.source.give(received(pointer("a"), "first"), received(pointer("a"), "copy", broker_id="other"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert sorted(rig.source.acked) == ["b-a", "other"]


@on_virtual_time
async def test_one_hand_out_twice_in_a_batch_is_not_removed_before_it_was_delivered() -> None:
    async with running(script={"a": [FAILED_AT_ONCE]}) as rig:
        rig.source.give(received(pointer("a"), "first"), received(pointer("a"), "second"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert [(each.handle, each.delay_s) for each in rig.source.settled] == [("second", 30)]


@on_virtual_time
async def test_who_comes_with_a_redelivered_message_may_not_pass_it_should_it_fail() -> None:
    async with running(script={"a": [FAILED_AT_ONCE]}) as rig:
        rig.mediator.hold("a")
        rig.source.give(received(pointer("a"), "old"))
        await quiet()
        rig.source.give(received(pointer("a"), "new"), pointer("b"))
        await quiet()
        rig.mediator.let_go("a")
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert rig.source.nacked == {"b-a": 30, "b-b": 10}


@on_virtual_time
async def test_who_comes_with_a_failed_message_that_is_being_given_back_goes_back_too() -> None:
    async with running(script={"a": [FAILED_AT_ONCE]}, takes_s=0) as rig:
        rig.source.settle_s = 5
        rig.source.give(received(pointer("a"), "old"))
        await asyncio.sleep(1)
        rig.source.give(received(pointer("a"), "new"), pointer("b"))
        await rig.idle()

        assert rig.mediator.order == ["a"]
        assert rig.source.nacked == {"b-a": 30, "b-b": 10}


@on_virtual_time
async def test_all_of_a_pools_messages_have_room_or_none_has() -> None:
    async with running(pool_p(1), PoolConfiguration("OTHER", 1)) as rig:
        await fill(rig, 40)
        rig.source.give(
            *(pointer(f"m{number}", f"g{number}") for number in range(11)), pointer("elsewhere", "x", "OTHER")
        )
        await asyncio.sleep(1)

        assert rig.source.nacked == {f"b-m{number}": 5 for number in range(11)}
        assert rig.source.acked == ["b-elsewhere"]
        [warning] = rig.warned(WarningCode.QUEUE_FULL)
        assert warning.severity is WarningSeverity.WARN
        assert rig.pool().queued == 40
        [queue] = rig.router.queues()
        assert (queue.received, queue.nacked) == (40 + 12 + 1, 11)
        rig.mediator.let_go("first")


@on_virtual_time
async def test_one_subscription_of_a_shared_pool_has_half_of_the_room_at_most() -> None:
    async with running(pool_p(2)) as rig:
        rig.mediator.hold("slow-0", "slow-1")
        rig.source.give(pointer("quick", "quick:1"), *(pointer(f"slow-{n}", f"slow:{n % 3}") for n in range(9)))
        for first in range(9, 39, 10):
            rig.source.give(
                *(pointer(f"slow-{n}", f"slow:{n % 3}") for n in range(first, first + 9)),
                pointer(f"quick-{first}", "quick:1"),
            )
        await asyncio.sleep(3)

        assert rig.source.nacked == {f"b-slow-{n}": 5 for n in [*range(19, 28), *range(29, 38)]}
        assert {"b-quick", "b-quick-9", "b-quick-19", "b-quick-29"} <= set(rig.source.acked)
        rig.mediator.let_go("slow-0", "slow-1")


@on_virtual_time
async def test_a_subscription_alone_in_its_pool_has_all_of_the_room() -> None:
    async with running(pool_p(1)) as rig:
        rig.mediator.hold("m0")
        for first in range(0, 50, 10):
            rig.source.give(*(pointer(f"m{n}", "only:1") for n in range(first, first + 10)))
        await asyncio.sleep(1)

        assert (rig.pool().queued, rig.source.nacked) == (49, {})
        rig.mediator.let_go("m0")


@on_virtual_time
async def test_the_last_place_is_used() -> None:
    async with running(pool_p(1)) as rig:
        await fill(rig, 40)
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(10)))
        await quiet()

        assert (rig.pool().queued, rig.pool().queue_capacity) == (50, 50)
        assert rig.source.nacked == {}
        rig.mediator.let_go("first")


@on_virtual_time
async def test_an_unknown_pool_is_the_default_pool_made_on_demand() -> None:
    async with running() as rig:
        assert [view.code for view in rig.router.pools()] == ["P"]
        rig.source.give(pointer("a", pool="NOWHERE"), pointer("b", pool="NOWHERE"), pointer("c", pool="DEFAULT-POOL"))
        await rig.idle()

        assert rig.pool("DEFAULT-POOL").concurrency == 20
        assert rig.pool("DEFAULT-POOL").succeeded == 3
        [warning] = rig.warned(WarningCode.ROUTING)
        assert (warning.severity, "'NOWHERE'" in warning.message) == (WarningSeverity.WARN, True)
        assert rig.metrics.default_pool_uses == 2


MALFORMED = [
    b"",
    b"not json",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"id":"x"}',
    b'{"id":"","mediationTarget":"http://e.test/"}',
    b'{"id":7,"mediationTarget":"http://e.test/"}',
    b'{"id":"x","mediationTarget":"http://e.test/","dispatchMode":"SOMETIMES"}',
    b'{"id":"x","mediationTarget":"http://e.test/","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@on_virtual_time
async def test_what_is_no_pointer_is_removed_counted_and_warned_of_and_the_rest_goes_on(body: bytes) -> None:
    async with running() as rig:
        rig.source.give(Received("bad", body, None, "h"), pointer("with"))
        rig.source.give(pointer("after"))
        await rig.idle()

        assert sorted(rig.source.acked) == ["b-after", "b-with", "bad"]
        [queue] = rig.router.queues()
        assert (queue.malformed, queue.received, queue.healthy) == (1, 3, True)
        [warning] = rig.warned(WarningCode.MALFORMED_MESSAGE)
        assert warning.severity is WarningSeverity.WARN
        assert len(warning.message) < MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    "body",
    [
        b'{"authToken":"hunter2","id":7}',
        b'{"authToken":"hunter2',
        b'{"signingSecrets":["hunter1","hunter2"],"id":7}',
        b'{"signingSecrets":["whsec_x", "hunter2',
        b'{"mediationTarget":"http://me:hunter2@e.test/"}',
        b'{"x":"' + b"x" * 170 + b'","authToken":"hunter2hunter2hunter2hunter2"}',
    ],
)
def test_the_log_shows_a_bounded_part_of_what_is_no_pointer_and_no_secret(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @on_virtual_time
    async def story() -> None:
        async with running() as rig:
            rig.source.give(Received("bad", body + b"y" * 1_000_000, None, "h"))
            await rig.idle()
            assert "hunter" not in str(rig.warned(WarningCode.MALFORMED_MESSAGE))

    with caplog.at_level(logging.INFO):
        story()
    formatter = HumanFormatter(colour=False)
    lines = [formatter.format(record) for record in caplog.records]
    assert any("message bad" in line for line in lines)
    assert all(len(line) < 1000 and "hunter" not in line for line in lines)


@on_virtual_time
async def test_the_brokers_group_goes_before_the_one_in_the_body() -> None:
    async with running() as rig:
        rig.source.give(Received("b", encode_pointer(pointer("a", "body's")), "broker's", "h"))
        await rig.idle()

        assert [delivery.group for delivery in rig.mediator.deliveries] == ["broker's"]


@on_virtual_time
async def test_an_empty_batch_is_nothing() -> None:
    async with running() as rig:
        rig.source.give()
        await quiet()

        assert rig.source.settled == []
        assert len(rig.source.polls_ms) == 2

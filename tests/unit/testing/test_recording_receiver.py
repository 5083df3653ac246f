"""The receiver that users' tests deliver to."""

import asyncio

import pytest

from penstock.domain.outcome import MediationResult
from penstock.testing.receiver import Ending, RecordingReceiver, Reply, defer, rate_limit
from tests.rigs.http_endpoints import mediator_rig


async def test_it_answers_by_its_script_and_then_as_by_default() -> None:
    async with RecordingReceiver(default=Reply(204, b"")) as receiver, mediator_rig() as rig:
        receiver.script(Reply(500), rate_limit("3"), defer(4), Reply(ending=Ending.CUT))
        outcomes = [await rig.deliver(receiver.url, f"m{number}") for number in range(5)]
        assert [outcome.status for outcome in outcomes] == [500, 429, 200, None, 204]
        assert [outcome.delay_s for outcome in outcomes] == [None, 3, 4, None, None]
        assert outcomes[3].result is MediationResult.ERROR_CONNECTION


async def test_it_records_requests_in_order_with_their_times() -> None:
    async with RecordingReceiver() as receiver, mediator_rig() as rig:
        for number in range(3):
            await rig.deliver(f"{receiver.url}/hook?n={number}", f"m{number}")
        assert receiver.message_ids == ["m0", "m1", "m2"]
        assert [request.path for request in receiver.requests] == ["/hook?n=0", "/hook?n=1", "/hook?n=2"]
        times = [request.received_s for request in receiver.requests]
        assert times == sorted(times)


async def test_it_lets_a_test_wait_for_requests() -> None:
    async with RecordingReceiver() as receiver, mediator_rig() as rig:
        waiting = asyncio.create_task(receiver.received(2))
        await rig.deliver(receiver.url, "a")
        await rig.deliver(receiver.url, "b")
        assert [request.message_id for request in await waiting] == ["a", "b"]
        with pytest.raises(TimeoutError):
            await receiver.received(3, within_s=0.01)


async def test_it_can_answer_late_or_never() -> None:
    async with RecordingReceiver() as receiver, mediator_rig() as rig:
        receiver.script(Reply(ending=Ending.HANG), Reply(delay_s=0.05))
        hanging = asyncio.create_task(rig.deliver(receiver.url, "hanging"))
        await receiver.received(1)
        assert (await rig.deliver(receiver.url, "late")).result is MediationResult.SUCCESS
        assert not hanging.done()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)

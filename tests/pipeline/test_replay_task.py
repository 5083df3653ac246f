"""The work of one task of a replay: a real database, a real receiver, no Spark."""

import asyncio
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.delivery import CourierSettings
from penstock.delivery.webhook.courier import Courier, WebhookDelivery
from penstock.delivery.webhook.request import DeliveryRequest
from penstock.delivery.webhook.secret_box import SecretBox
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import SUCCESS, AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import REPLAY_HEADER, Replay, ReplayAttempt, ReplayProgress, copy_id
from penstock.domain.signing import Signature, verify
from penstock.domain.subscription import OAuth2Client
from penstock.events.errors import ReplayTakenOver
from penstock.events.store.repository.replays import ReplayLoad, ReplayPart, Replays
from penstock.history.replay.delivery import AT_ONCE, NOTHING, JobDelivery, OutcomeWriter
from penstock.history.replay.task import NextIds, ReplayRun, do_part, in_chunks, replays_in
from penstock.history.replay.timetable import ReplayPace, timetable
from penstock.spark.database import SparkDatabase
from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.made_jobs import dispatch_job
from tests.rigs.penstock_process import wait_until
from tests.rigs.replay import SECRET, ReplayRig

LOOPBACK = CourierSettings(egress_allow=(ip_network("127.0.0.0/8"),))


@pytest.fixture
def rig(tmp_path: Path) -> ReplayRig:
    return ReplayRig(SparkDatabase(f"sqlite:///{tmp_path}/jobs.db"))


async def prepared(rig: ReplayRig, receiver: RecordingReceiver, keys: Iterable[str], **fields: Any) -> list[str]:
    """Jobs that are over, one for each key."""

    def prepare() -> list[str]:
        job_ids = rig.publish(list(keys), rig.subscribe(f"{receiver.url}/hook", **fields))
        rig.end(job_ids)
        return job_ids

    return await asyncio.to_thread(prepare)


async def begun(rig: ReplayRig, **order: Any) -> Replay:
    return await asyncio.to_thread(rig.begin, direct=True, **order)


async def done(rig: ReplayRig, replay: Replay, next_ids: NextIds, owner: str = "a", **request: Any) -> ReplayProgress:
    await do_part(
        ReplayRun(database=rig.database, replay_id=replay.id, run=replay.run, **{"direct": LOOPBACK, **request}),
        ReplayPart(replay.id, replay.run, 0, owner),
        next_ids,
        rig.clock,
    )
    return await asyncio.to_thread(rig.progress, replay)


def delivered_ids(receiver: RecordingReceiver) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.requests]


async def test_each_group_is_delivered_in_order_and_signed(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, [f"k{number % 5}" for number in range(60)])
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 7)) == ReplayProgress(done=60)
        # To receivers they are the webhooks they have had before.
        assert sorted(delivered_ids(receiver)) == sorted(job_ids)
        for key in range(5):
            of_key = set(job_ids[key::5])
            assert [name for name in delivered_ids(receiver) if name in of_key] == job_ids[key::5]
        request = receiver.requests[0]
        assert request.headers[REPLAY_HEADER] == replay.id
        assert request.headers["penstock-job"] == copy_id(request.headers["webhook-id"], replay.id)
        named = Signature(*(request.headers[f"webhook-{part}"] for part in ("id", "timestamp", "signature")))
        assert verify(named, request.body, [SECRET], rig.clock.now_ms())
        attempts = await asyncio.to_thread(rig.attempts, replay)
        assert [made.job_id for made in attempts] == sorted(job_ids)
        assert {(made.attempt.outcome, made.attempt.status_code) for made in attempts} == {
            (AttemptOutcome.DELIVERED, 200)
        }
        # The jobs themselves are as they were.
        assert await asyncio.to_thread(rig.execute, "SELECT DISTINCT state, delivery_count FROM jobs") == [(5, 1)]


async def test_groups_do_not_wait_for_each_other(rig: ReplayRig) -> None:
    async with RecordingReceiver(Reply(ending=Ending.HANG)) as receiver:
        job_ids = await prepared(rig, receiver, [f"k{number}" for number in range(40)])
        replay = await begun(rig)
        running = asyncio.create_task(done(rig, replay, in_chunks(iter(job_ids), 250)))
        # None is answered, and still all come.
        await receiver.received(40, within_s=60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (DispatchMode.BLOCK_ON_ERROR, ReplayProgress(done=2, failed=1, held_back=2)),
        (DispatchMode.NEXT_ON_ERROR, ReplayProgress(done=4, failed=1)),
        (DispatchMode.IMMEDIATE, ReplayProgress(done=4, failed=1)),
    ],
)
async def test_a_job_that_is_given_up_holds_back_what_its_mode_says(
    rig: ReplayRig, mode: DispatchMode, expected: ReplayProgress
) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "b", "a", "b", "a"], mode=mode)
        replay = await begun(rig)
        receiver.script(Reply(404))
        chunks = iter([job_ids[:1], job_ids[1:], []])

        def next_ids() -> list[str]:
            chunk = next(chunks)
            if chunk == job_ids[1:]:
                # So that the first request, which fails, is the first job's.
                wait_until(lambda: receiver.requests)
            return chunk

        assert await done(rig, replay, next_ids) == expected
        again = await asyncio.to_thread(rig.go_on, replay)
        receiver.requests.clear()
        assert await done(rig, again, in_chunks(iter(job_ids), 250)) == ReplayProgress(done=5)
        # What was delivered is not delivered again; what failed comes first, with its next number.
        assert len(receiver.requests) == 5 - expected.done
        (failed,) = [request for request in receiver.requests if request.headers["penstock-attempt"] == "2"]
        assert failed.headers["webhook-id"] == job_ids[0]


async def test_an_endpoint_that_fails_for_a_moment_is_tried_again(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "a"])
        receiver.script(Reply(503), Reply(200, body=b'{"ack":false,"delaySeconds":1}'))
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 250)) == ReplayProgress(done=2)
        outcomes = [(made.job_id, made.attempt.outcome.name) for made in await asyncio.to_thread(rig.attempts, replay)]
        assert outcomes == [
            (job_ids[0], "FAILED"),
            (job_ids[0], "DEFERRED"),
            (job_ids[0], "DELIVERED"),
            (job_ids[1], "DELIVERED"),
        ]


async def test_the_egress_guard_is_on(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "b"])
        replay = await begun(rig)
        progress = await done(rig, replay, in_chunks(iter(job_ids), 250), direct=CourierSettings())
        assert progress == ReplayProgress(failed=2)
        assert receiver.requests == []
        attempts = await asyncio.to_thread(rig.attempts, replay)
        assert all("may not be reached" in (made.attempt.error or "") for made in attempts)


async def test_a_replay_carries_the_token_of_the_subscription(rig: ReplayRig) -> None:
    token = Reply(body=b'{"access_token":"t1","token_type":"bearer"}')
    async with RecordingReceiver() as receiver, RecordingReceiver(token) as issuer:
        oauth2 = OAuth2Client(token_url=issuer.url, client_id="penstock", client_secret="x")
        job_ids = await prepared(rig, receiver, "abc", oauth2=oauth2)
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 250)) == ReplayProgress(done=3)
    assert {request.headers["authorization"] for request in receiver.requests} == {"Bearer t1"}
    assert len(issuer.requests) == 1


async def test_a_paused_subscription_gets_nothing(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "a"], paused=True)
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 250)) == ReplayProgress(held_back=2)
        assert receiver.requests == []


async def test_what_cannot_be_delivered_any_more_is_said(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "b"])
        await asyncio.to_thread(rig.execute, "DELETE FROM events WHERE group_name = 'a'")
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 250)) == ReplayProgress(done=1, failed=1)
        await asyncio.to_thread(rig.execute, "DELETE FROM subscriptions")
        replay = await begun(rig)
        assert await done(rig, replay, in_chunks(iter(job_ids), 250)) == ReplayProgress(failed=2)
        errors = {made.attempt.error for made in await asyncio.to_thread(rig.attempts, replay)}
        assert errors == {"its event is no longer kept", "its subscription was deleted"}


async def test_a_task_that_dies_repeats_at_most_one_delivery_of_each_group(rig: ReplayRig) -> None:
    async with RecordingReceiver(Reply(delay_s=0.002)) as receiver:
        job_ids = await prepared(rig, receiver, [f"k{number % 20}" for number in range(600)])
        replay = await begun(rig)
        dying = asyncio.create_task(done(rig, replay, in_chunks(iter(job_ids), 50), "dying"))
        await receiver.received(200, within_s=60)
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
        recorded = {made.job_id for made in await asyncio.to_thread(rig.attempts, replay)}
        seen = len(receiver.requests)
        assert 0 < len(recorded) <= seen < 600
        assert await done(rig, replay, in_chunks(iter(job_ids), 50), "next") == ReplayProgress(done=600)
        ids = delivered_ids(receiver)
        assert set(ids) == set(job_ids)
        for key in range(20):
            of_key = job_ids[key::20]
            came = [name for name in ids if name in set(of_key)]
            assert list(dict.fromkeys(came)) == of_key
            assert len(came) <= len(of_key) + 1
        assert not recorded.intersection(ids[seen:])


async def test_a_task_that_was_taken_over_stops(rig: ReplayRig) -> None:
    async with RecordingReceiver(Reply(delay_s=0.02)) as receiver:
        job_ids = await prepared(rig, receiver, ["a"] * 200)
        replay = await begun(rig)
        lost = asyncio.create_task(done(rig, replay, in_chunks(iter(job_ids), 50), "lost"))
        await receiver.received(5)
        async with replays_in(rig.database, rig.clock) as replays:
            await replays.own(ReplayPart(replay.id, replay.run, 0, "next"))
        with pytest.raises(BaseExceptionGroup) as raised:
            await lost
        assert raised.group_contains(ReplayTakenOver)
        assert len(receiver.requests) < 200


async def test_a_replay_that_is_asked_to_stop_finishes_what_is_under_way(rig: ReplayRig) -> None:
    async with RecordingReceiver(Reply(delay_s=0.02)) as receiver:
        job_ids = await prepared(rig, receiver, [f"k{number % 3}" for number in range(600)])
        replay = await begun(rig)
        run = asyncio.create_task(done(rig, replay, in_chunks(iter(job_ids), 50)))
        await receiver.received(10)
        async with replays_in(rig.database, rig.clock) as replays:
            await replays.stop(replay.id)
        progress = await run
        # All that came is written down: nothing of it comes again.
        assert progress.done == len(receiver.requests) < 600
        again = await asyncio.to_thread(rig.go_on, replay)
        assert await done(rig, again, in_chunks(iter(job_ids), 50)) == ReplayProgress(done=600)
        assert len(delivered_ids(receiver)) == len(set(delivered_ids(receiver))) == 600


async def test_the_rate_is_kept(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, [f"k{number}" for number in range(10)])
        replay = await begun(rig)
        start_ms = rig.clock.now_ms() + 200
        await done(rig, replay, in_chunks(iter(job_ids), 50), timetable=timetable(start_ms, 20, [10]))
        times_ms = sorted(request.received_s * 1000 for request in receiver.requests)
        # On a busy machine they are late, but none comes before its slot; the slots are 50 ms apart.
        assert all(time_ms > start_ms + 50 * slot - 2 for slot, time_ms in enumerate(times_ms))


def test_deliveries_that_had_to_wait_for_a_place_do_not_catch_up() -> None:
    # Their slots were past when a place came free: each took the next one, a millisecond later.
    begun_ms = run_virtual(crowded)
    assert len(begun_ms) == AT_ONCE * 2
    assert begun_ms[AT_ONCE:] == [begun_ms[AT_ONCE] + number for number in range(AT_ONCE)]
    assert begun_ms[AT_ONCE] >= begun_ms[0] + 1000


async def crowded(clock: LoopClock) -> list[int]:
    """Deliver twice as many jobs as have a place to an endpoint that answers after a second; when each began."""
    begun_ms: list[int] = []
    answers = asyncio.Event()

    class Slow:
        secret_box = SecretBox()

        async def deliver(self, request: DeliveryRequest) -> WebhookDelivery:
            begun_ms.append(clock.now_ms())
            await answers.wait()
            return WebhookDelivery(SUCCESS)

    class Forgetful(OutcomeWriter):
        async def record(self, attempt: ReplayAttempt | None, by: ReplayProgress = NOTHING) -> None:
            """Store nothing."""

    pace = ReplayPace(timetable(clock.now_ms(), 1000, [1000]), 0, clock)
    outcomes = Forgetful(cast("Replays", None), ReplayPart("r", 1, 0, "a"))
    deliveries = JobDelivery("0HZXEQ5Y8JY60", cast("Courier", Slow()), outcomes, pace, clock)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE * 2):
            tasks.create_task(deliveries.deliver(ReplayLoad(dispatch_job(), None, 0), {}))
        await asyncio.sleep(1.0)
        assert len(begun_ms) == AT_ONCE
        answers.set()
    return begun_ms


async def test_through_the_queue_copies_come_due_at_the_rate(rig: ReplayRig) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await prepared(rig, receiver, ["a", "b", "a", "b"])
        replay = await begun(rig)
        start_ms = 4_000_000_000_000
        progress = await done(
            rig, replay, in_chunks(iter(job_ids), 3), direct=None, timetable=timetable(start_ms, 10, [4])
        )
        assert progress == ReplayProgress(done=4)
        jobs = [await asyncio.to_thread(rig.job, copy_id(job_id, replay.id)) for job_id in job_ids]
        assert [job.due_at_ms - start_ms for job in jobs] == [0, 100, 200, 300]
        assert {job.status for job in jobs} == {JobStatus.PENDING}


def test_an_id_that_is_seen_twice_is_given_once() -> None:
    next_ids = in_chunks(iter(["a", "a", "b", "b", "c", "d", "d"]), 2)
    assert [next_ids(), next_ids(), next_ids()] == [["a", "b"], ["c", "d"], []]

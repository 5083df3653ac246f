"""The small parts of the scheduler, each by itself."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from penstock.cluster.leadership import lease_for
from penstock.cluster.standby import Alone
from penstock.domain.errors import InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.domain.pointer import DispatchMode
from penstock.events.dispatch.message_group_dispatcher import MessageGroupDispatcher, MessageGroupQueue, return_pause_s
from penstock.events.dispatch.pending_job_poller import Pace
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.publisher import Backoff
from penstock.events.dispatch.server import BlockOnErrorChecker, ServerSettings
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.errors import InvalidStandby
from penstock.router.standby import Leadership as RouterLeadership
from penstock.testing.clock import VirtualClock
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.scheduler_rig import BLOCK, IMMEDIATE, NEXT, PlainTokens, SchedulerRig, comes_true

FOR_EVER_S = 1e9


def job(job_id: str, group: str = "g", mode: DispatchMode = BLOCK, publish_round: int = 0) -> ClaimedJob:
    return ClaimedJob(job_id, group, mode, "DISPATCH-POOL", publish_round, None, 0)


def test_a_pointer_has_every_field_of_the_format_so_that_other_routers_can_read_it() -> None:
    pointers = Pointers("http://localhost:8080/api/dispatch/process", PlainTokens(), "SLOW")
    publication = pointers.publication(job("01K97F", "orders:customer-12345"), 7)
    assert json.loads(publication.body) == {
        "id": "01K97F",
        "poolCode": "SLOW",
        "authToken": "01K97F@7",
        "mediationType": "HTTP",
        "mediationTarget": "http://localhost:8080/api/dispatch/process",
        "messageGroupId": "orders:customer-12345",
        "highPriority": False,
        "dispatchMode": "BLOCK_ON_ERROR",
    }
    assert (publication.group, publication.dedup_id) == ("orders:customer-12345", "01K97F:0")


def test_the_pace_grows_while_claims_are_full_and_falls_when_they_are_not() -> None:
    pace = Pace(batch=20, most=2000, groups=10)
    seen = []
    for count in (20, 80, 320, 1280, 2000, 30, 5, 0, 0):
        pace.claimed(count)
        seen.append((pace.batch, pace.groups))
    assert seen == [
        (80, 40),
        (320, 160),
        (1280, 640),
        (2000, 1000),
        (2000, 1000),
        (500, 250),
        (125, 62),
        (31, 15),
        (20, 10),
    ]


def test_a_pace_with_no_room_to_grow_keeps_to_its_numbers() -> None:
    pace = Pace(batch=20, most=20, groups=10)
    pace.claimed(20)
    assert (pace.batch, pace.groups) == (20, 10)


def test_a_backoff_doubles_up_to_its_limit_and_ends_with_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    delays = []
    for _ in range(5):
        backoff.failed()
        delays.append(backoff.delay_s)
    backoff.succeeded()
    assert delays == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.delay_s == 0


def test_a_job_that_came_back_waits_longer_each_time() -> None:
    assert [return_pause_s(publish_round) for publish_round in (0, 2, 3, 4, 8, 9, 1000)] == [
        0,
        0,
        0.1,
        0.2,
        3.2,
        5.0,
        5.0,
    ]


def test_a_group_queue_has_one_run_in_flight_at_a_time() -> None:
    queue = MessageGroupQueue()
    queue.add([job("1"), job("2")], FOR_EVER_S)
    assert [each.id for each in queue.take_run()] == ["1", "2"]
    queue.add([job("3")], FOR_EVER_S)
    assert (queue.take_run(), queue.is_waiting) == ([], False)
    queue.run_ended()
    assert [each.id for each in queue.take_run()] == ["3"]


def test_it_is_too_late_for_a_group_when_the_claim_of_one_of_its_jobs_is_nearly_over() -> None:
    queue = MessageGroupQueue()
    queue.add([job("1")], 10.0)
    queue.add([job("2")], FOR_EVER_S)
    assert (queue.is_too_late(9.9), queue.is_too_late(10.0)) == (False, True)
    queue.clear()
    queue.add([job("3")], FOR_EVER_S)
    assert not queue.is_too_late(10.0)


def test_jobs_whose_claim_is_nearly_over_are_not_published() -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 1, asyncio.get_running_loop().time)
        dispatcher.submit([job("a1", "a"), job("b1", "b")], 0.5)
        dispatcher.submit([job("c1", "c")], FOR_EVER_S)
        await dispatcher.has_room(1)
        assert recorder.waves == [["a1"], ["c1"]]
        assert (dispatcher.groups, dispatcher.jobs_held) == (0, 0)

    run_virtual(main)


class Recorder:
    """Takes its time for each dispatch, and remembers it."""

    def __init__(self) -> None:
        self.waves: list[list[str]] = []
        self.breaks = False

    async def dispatch(self, jobs: Sequence[ClaimedJob]) -> bool:
        self.waves.append([each.id for each in jobs])
        await asyncio.sleep(1)
        if self.breaks:
            raise RuntimeError("it breaks")
        return True


def test_a_dispatcher_serves_groups_in_turn_and_keeps_no_queue_of_a_group_that_is_done() -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 2, asyncio.get_running_loop().time)
        dispatcher.submit([job("a1", "a"), job("b1", "b"), job("c1", "c"), job("a2", "a")], FOR_EVER_S)
        dispatcher.submit([job("a3", "a"), job("c2", "c")], FOR_EVER_S)
        assert (dispatcher.groups, dispatcher.jobs_held) == (3, 6)
        await dispatcher.has_room(1)
        assert recorder.waves == [["a1", "a2", "b1"], ["c1", "c2", "a3"]]
        assert (dispatcher.groups, dispatcher.jobs_held) == (0, 0)

    run_virtual(main)


def test_a_dispatch_that_breaks_releases_its_groups(caplog: pytest.LogCaptureFixture) -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        recorder.breaks = True
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 1, asyncio.get_running_loop().time)
        dispatcher.submit([job("a1", "a")], FOR_EVER_S)
        await dispatcher.has_room(1)
        recorder.breaks = False
        dispatcher.submit([job("a2", "a")], FOR_EVER_S)
        await dispatcher.has_room(1)
        assert recorder.waves == [["a1"], ["a2"]]

    run_virtual(main)
    assert "a dispatch failed in a way nobody expected" in caplog.messages


def test_ordered_and_immediate_jobs_of_a_group_do_not_wait_for_each_other() -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 9, asyncio.get_running_loop().time)
        dispatcher.submit([job("1", publish_round=9), job("2", mode=IMMEDIATE)], FOR_EVER_S)
        assert dispatcher.jobs_held == 1
        await asyncio.sleep(0)
        assert recorder.waves == [["2"]]
        await asyncio.sleep(10)
        assert recorder.waves == [["2"], ["1"]]

    run_virtual(main)


def test_a_job_that_came_back_is_published_before_its_claim_is_over_however_short_that_is() -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 9, asyncio.get_running_loop().time)
        dispatcher.submit([job("1", publish_round=99)], asyncio.get_running_loop().time() + 1.5)
        await asyncio.sleep(1)
        assert recorder.waves == [["1"]]

    run_virtual(main)


def test_what_a_dispatcher_abandons_is_everything_that_is_not_in_flight() -> None:
    async def main(clock: LoopClock) -> None:
        recorder = Recorder()
        dispatcher = MessageGroupDispatcher(recorder.dispatch, lambda: 1, asyncio.get_running_loop().time)
        dispatcher.submit([job("a1", "a"), job("b1", "b"), job("c1", "c", publish_round=9)], FOR_EVER_S)
        dispatcher.submit([job("a2", "a")], FOR_EVER_S)
        await asyncio.sleep(0.5)
        assert sorted(each.id for each in dispatcher.abandon()) == ["a2", "b1", "c1"]
        await dispatcher.finish(10)
        await asyncio.sleep(100)
        assert recorder.waves == [["a1"]]
        assert (dispatcher.groups, dispatcher.jobs_held) == (0, 0)

    run_virtual(main)


@pytest.mark.parametrize("standby", ["", "on", "postgresql://db", "memcached://cache"])
async def test_a_standby_of_no_known_kind_is_refused(standby: str) -> None:
    rig = SchedulerRig(VirtualClock())
    try:
        with pytest.raises(InvalidStandby, match="off, sql, redis"):
            async with lease_for(standby, rig.jobs, rig.clock, "scheduler", "node"):
                pass
    finally:
        await rig.close()


def test_a_lease_that_is_renewed_less_than_twice_in_its_time_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        ServerSettings(scheduler=SchedulerSettings(), lease_ttl_s=10, lease_renew_s=6)


def test_the_checker_names_the_errors_that_block_a_group() -> None:
    async def main(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        checker = BlockOnErrorChecker(rig.jobs)
        rig.start()
        ids = await rig.make_all([rig.new_job("g", mode=NEXT), rig.new_job("g", mode=NEXT), rig.new_job("other")])
        await comes_true(lambda: len(rig.queue.entries) == 3)
        await asyncio.sleep(1)
        assert await checker.errors_of("DISPATCH_JOB:g") == []
        for job_id in ids[:2]:
            await rig.fail(job_id)
        assert await checker.errors_of("DISPATCH_JOB:g") == ids[:2]
        assert await checker.errors_of("DISPATCH_JOB:other") == []
        await rig.close()

    run_virtual(main)


def test_a_scheduler_alone_always_leads_as_the_router_understands_it() -> None:
    async def main(clock: LoopClock) -> None:
        alone: RouterLeadership = Alone()
        assert alone.is_primary()
        await alone.becomes(True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await alone.becomes(False)

    run_virtual(main)

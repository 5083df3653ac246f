"""What is kept of replays, on both databases: copies made once, parts that one task has, deliveries written down."""

import pytest

from penstock.delivery.webhook.request import checked_headers
from penstock.domain.ids import check_job_id
from penstock.domain.job import Attempt
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import REPLAY_HEADER, Copied, ReplayAttempt, ReplayProgress, ReplayRequest, copy_id
from penstock.events.errors import ReplayNotFound, ReplayTakenOver
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.replays import KEPT_MS, ReplayPart, Replays
from penstock.spark.database import SparkDatabase
from tests.rigs.jobs import unlimited
from tests.rigs.replay import EVERYTHING, ReplayRig

TARGET = "https://orders.example/hook"


@pytest.fixture
def rig(database: SparkDatabase) -> ReplayRig:
    return ReplayRig(database)


def delivered(job_id: str, number: int = 1, outcome: AttemptOutcome = AttemptOutcome.DELIVERED) -> ReplayAttempt:
    return ReplayAttempt(job_id, Attempt(number=number, outcome=outcome, at_ms=number, duration_ms=3, status_code=200))


def part_of(rig: ReplayRig) -> tuple[str, ReplayPart]:
    replay = rig.begin()
    return replay.id, ReplayPart(replay.id, replay.run, 0, "first")


def with_replays(rig: ReplayRig, use: object) -> object:
    return rig._with_replays(use)


def test_a_copy_stands_where_its_original_stood(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a", "a"], rig.subscribe(TARGET))
    rig.end(job_ids)
    replay_id, part = part_of(rig)

    async def make(replays: Replays) -> Copied:
        await replays.own(part)
        return await replays.make_copies(part, [(job_ids[0], None), (job_ids[1], 4_000_000_000_000)])

    assert with_replays(rig, make) == Copied(copies=2, in_error=0, goes_on=True)
    original, copy = rig.job(job_ids[0]), rig.job(copy_id(job_ids[0], replay_id))
    check_job_id(copy.id)
    assert (copy.group_key, copy.sequence, copy.created_at_ms) == (
        original.group_key,
        original.sequence,
        original.created_at_ms,
    )
    assert (copy.event_id, copy.target, copy.mode) == (original.event_id, TARGET, DispatchMode.BLOCK_ON_ERROR)
    assert (copy.status, copy.delivery_count, copy.headers) == (JobStatus.PENDING, 0, {REPLAY_HEADER: replay_id})
    assert rig.job(copy_id(job_ids[1], replay_id)).due_at_ms == 4_000_000_000_000
    with pytest.raises(Exception, match=REPLAY_HEADER):
        checked_headers({REPLAY_HEADER: "forged"})


def test_a_copy_is_made_once_even_if_it_is_in_the_archive_by_then(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a", "b"], rig.subscribe(TARGET))
    rig.end(job_ids)
    replay_id, part = part_of(rig)

    async def make(replays: Replays) -> None:
        await replays.own(part)
        await replays.make_copies(part, [(job_id, None) for job_id in job_ids])

    with_replays(rig, make)
    rig.execute(f"DELETE FROM jobs WHERE id = '{copy_id(job_ids[0], replay_id)}'")
    with_replays(rig, make)
    assert rig.execute(f"SELECT id FROM jobs WHERE id LIKE '%{replay_id}'") == [(copy_id(job_ids[1], replay_id),)]
    assert with_replays(rig, lambda replays: replays.progress(replay_id)) == ReplayProgress(done=2)


def test_the_copy_of_a_job_in_error_takes_its_place(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a", "a"], rig.subscribe(TARGET))
    rig.end(job_ids[:1], JobStatus.ERROR)
    replay_id, part = part_of(rig)

    async def make(replays: Replays) -> None:
        await replays.own(part)
        await replays.make_copies(part, [(job_ids[0], None)])

    with_replays(rig, make)
    assert rig.job(job_ids[0]).status is JobStatus.CANCELLED

    async def free(repository: JobRepository) -> list[str]:
        now_ms = rig.clock.now_ms() + 10_000
        await repository.do_chores(now_ms)
        runs = await repository.lanes.read(now_ms, 10, unlimited())
        return [job.id for run in runs for job in run.jobs]

    # What it kept back follows its copy.
    assert rig._with_repository(free) == [copy_id(job_ids[0], replay_id), job_ids[1]]


def test_a_job_whose_event_is_gone_cannot_be_copied(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a", "b"], rig.subscribe(TARGET))
    rig.end(job_ids)
    rig.execute(f"DELETE FROM events WHERE id = '{rig.job(job_ids[0]).event_id}'")
    replay_id, part = part_of(rig)

    async def make(replays: Replays) -> None:
        await replays.own(part)
        await replays.make_copies(part, [(job_id, None) for job_id in job_ids])

    with_replays(rig, make)
    assert with_replays(rig, lambda replays: replays.progress(replay_id)) == ReplayProgress(done=1, failed=1)


def test_a_job_that_is_on_its_way_again_or_whose_subscription_is_gone_cannot_be_copied(rig: ReplayRig) -> None:
    kept, gone = rig.subscribe(TARGET), rig.subscribe(TARGET, "gone")
    job_ids = [*rig.publish(["a", "b"], kept), *rig.publish(["a"], gone)]
    rig.end([job_ids[0], job_ids[2]])
    rig._with_repository(lambda repository: repository.delete_subscription(gone.id))
    _, part = part_of(rig)

    async def make(replays: Replays) -> ReplayProgress:
        await replays.own(part)
        made = await replays.make_copies(part, [(job_id, None) for job_id in job_ids])
        assert made == Copied(copies=1)
        return await replays.progress(part.replay_id)

    assert with_replays(rig, make) == ReplayProgress(done=1, failed=2)


def test_a_replay_copies_a_job_once_whichever_of_its_copies_it_finds(rig: ReplayRig) -> None:
    (job_id,) = rig.publish(["a"], rig.subscribe(TARGET))
    rig.end([job_id], JobStatus.ERROR)
    earlier, part = part_of(rig)
    later = rig.begin()
    again = ReplayPart(later.id, later.run, 0, "first")

    async def make(replays: Replays, of: ReplayPart, copied_id: str) -> Copied:
        await replays.own(of)
        return await replays.make_copies(of, [(copied_id, None)])

    assert with_replays(rig, lambda replays: make(replays, part, job_id)) == Copied(copies=1, in_error=1)
    copy = copy_id(job_id, earlier)
    rig.end([copy], JobStatus.ERROR)
    assert with_replays(rig, lambda replays: make(replays, again, copy)) == Copied(copies=1, in_error=1)
    assert rig.job(copy).status is JobStatus.CANCELLED
    rig.execute(f"DELETE FROM jobs WHERE id = '{copy_id(job_id, later.id)}'")
    rig.end([job_id])
    assert with_replays(rig, lambda replays: make(replays, again, job_id)) == Copied()
    assert with_replays(rig, lambda replays: replays.progress(later.id)) == ReplayProgress(done=1)


def test_what_was_delivered_is_not_loaded_again(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a", "a", "a"], rig.subscribe(TARGET))
    rig.end(job_ids)
    replay_id, part = part_of(rig)

    async def deliver(replays: Replays) -> list[tuple[str, int]]:
        await replays.own(part)
        before = await replays.loads(replay_id, job_ids)
        assert [load.job.id for load in before] == job_ids
        assert all(load.event is not None and load.event.id == load.job.event_id for load in before)
        failed = delivered(job_ids[1], 1, AttemptOutcome.FAILED)
        assert await replays.record(part, [delivered(job_ids[0]), failed], ReplayProgress(1, 1))
        assert await replays.loads(replay_id, [copy_id(job_ids[0], "0HZXEQ5Y8JY60")]) == []
        return [(load.job.id, load.deliveries) for load in await replays.loads(replay_id, job_ids)]

    assert with_replays(rig, deliver) == [(job_ids[1], 1), (job_ids[2], 0)]


def test_a_task_that_was_given_up_for_lost_keeps_nothing(rig: ReplayRig) -> None:
    job_ids = rig.publish(["a"], rig.subscribe(TARGET))
    rig.end(job_ids)
    replay_id, lost = part_of(rig)

    async def take_over(replays: Replays) -> None:
        await replays.own(lost)
        await replays.own(ReplayPart(replay_id, 1, 0, "second"))
        with pytest.raises(ReplayTakenOver):
            await replays.record(lost, [delivered(job_ids[0])], ReplayProgress(1))
        with pytest.raises(ReplayTakenOver):
            await replays.make_copies(lost, [(job_ids[0], None)])
        assert await replays.attempts(replay_id) == []

    with_replays(rig, take_over)
    with pytest.raises(Exception, match="not found"):
        rig.job(copy_id(job_ids[0], replay_id))


def test_a_later_run_ends_an_earlier_one(rig: ReplayRig) -> None:
    rig.subscribe(TARGET)
    replay_id, part = part_of(rig)

    async def go_on(replays: Replays) -> None:
        await replays.own(part)
        await replays.record(part, [], ReplayProgress(5, 2, 1))
        assert (await replays.go_on(replay_id)).run == 2
        assert await replays.progress(replay_id) == ReplayProgress(done=5)
        with pytest.raises(ReplayTakenOver):
            await replays.record(part, [], ReplayProgress(1))
        with pytest.raises(ReplayTakenOver):
            await replays.own(part)

    with_replays(rig, go_on)


def test_a_replay_is_asked_to_stop(rig: ReplayRig) -> None:
    replay_id, part = part_of(rig)

    async def stop(replays: Replays) -> None:
        assert await replays.own(part)
        assert await replays.record(part, [], ReplayProgress(1))
        await replays.stop(replay_id)
        assert not await replays.record(part, [], ReplayProgress(1))
        assert not await replays.own(part)
        assert (await replays.get(replay_id)).stop_asked
        replay = await replays.go_on(replay_id)
        assert not replay.stop_asked
        await replays.end(replay)
        assert (await replays.get(replay_id)).finished_at_ms is not None
        with pytest.raises(ReplayNotFound):
            await replays.go_on("0000000000000")

    with_replays(rig, stop)


def test_replays_of_long_ago_are_forgotten(rig: ReplayRig) -> None:
    replay_id, part = part_of(rig)

    async def forget(replays: Replays) -> None:
        await replays.own(part)
        await replays.record(part, [delivered("0HZXEQ5Y8JY5Z")], ReplayProgress(1))
        await replays.add("0HZXEQ5Y8JY60", ReplayRequest(selection=EVERYTHING), 0, rig.clock.now_ms() + KEPT_MS)
        assert len(await replays.attempts(replay_id)) == 1
        await replays.add("0HZXEQ5Y8JY61", ReplayRequest(selection=EVERYTHING), 0, rig.clock.now_ms() + 2 * KEPT_MS)
        assert await replays.attempts(replay_id) == []
        with pytest.raises(ReplayNotFound):
            await replays.get(replay_id)
        assert (await replays.get("0HZXEQ5Y8JY61")).run == 1

    with_replays(rig, forget)


def test_a_copy_of_a_copy_names_the_first_original() -> None:
    assert copy_id(copy_id("0HZXEQ5Y8JY5Z", "0HZXEQ5Y8JY60"), "0HZXEQ5Y8JY61") == "0HZXEQ5Y8JY5Z~0HZXEQ5Y8JY61"


def test_the_newest_replays_are_listed_with_their_sizes(rig: ReplayRig) -> None:
    first, second = rig.begin(), rig.begin()

    async def resize(replays: Replays) -> list[tuple[str, int]]:
        await replays.size(second, 12_345)
        # A run that another has followed says nothing any more.
        await replays.go_on(first.id)
        await replays.size(first, 7)
        return [(replay.id, replay.total) for replay in await replays.newest(10)]

    assert sorted(with_replays(rig, resize)) == sorted([(second.id, 12_345), (first.id, first.total)])  # type: ignore[call-overload]
    assert len(with_replays(rig, lambda replays: replays.newest(1))) == 1  # type: ignore[arg-type]

"""One replay rule: the API, Spark through the queue and Spark directly deliver the same copies."""

import asyncio
import shutil
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.delivery.webhook.request import DeliveryRequest, delivery_request
from penstock.domain.event import StoredEvent
from penstock.domain.ids import COPY_JOINT, encode_tsid
from penstock.domain.job import DispatchJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import (
    REPLAY_HEADER,
    REPLAYABLE,
    ReplayRequest,
    ReplaySelection,
    as_copy,
    copy_id,
    last_copies,
    original_id,
)
from penstock.domain.subscription import Subscription
from penstock.events.api.jobs.replay_worker import ReplayWorker
from penstock.events.api.jobs.replays import ReplayRoutes
from penstock.events.store.repository.replays import ReplayPart
from penstock.events.store.statements import codes_of
from penstock.history.replay.task import ReplayRun, do_part, in_chunks, replays_in
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import Call, RouteTable, routes_of
from penstock.spark.database import SparkDatabase
from penstock.testing.clock import VirtualClock
from tests.rigs.search import examples

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
REPLAY_ID = encode_tsid(9_000)
BILLING = Subscription(
    id=encode_tsid(1),
    name="billing",
    pattern="**",
    target="https://a.example/",
    secrets=(SECRET,),
    headers={"x-a": "1"},
)
FINISHED = sorted({*REPLAYABLE, JobStatus.CANCELLED})


class Case(msgspec.Struct, frozen=True):
    """A job, and how it and its copies of earlier replays ended."""

    statuses: list[JobStatus]
    key: str | None
    mode: DispatchMode
    sequence: int
    of_event: bool
    is_gone: bool
    headers: dict[str, str]


CASES = st.lists(
    st.builds(
        Case,
        st.lists(st.sampled_from([*FINISHED, JobStatus.PENDING]), min_size=1, max_size=3),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from(DispatchMode),
        st.sampled_from([1, 99]),
        st.booleans(),
        st.sampled_from([False, False, True]),
        st.dictionaries(st.sampled_from(["x-a", "x-b"]), st.sampled_from(["", "2"])),
    ),
    min_size=1,
    max_size=6,
)


def event_of(number: int, case: Case) -> StoredEvent:
    return StoredEvent(
        id=encode_tsid(1_000 + number), source="/shop", type="orders:created", received_ms=number // 2, group=case.key
    )


def jobs_of(number: int, case: Case) -> list[NewJob]:
    """A job and its copies, as earlier replays left them."""
    first = encode_tsid(1_000 + number) + (f"-{BILLING.id}" if case.of_event else "")
    ids = [first, *(copy_id(first, encode_tsid(8_000 + copy)) for copy in range(1, len(case.statuses)))]
    return [
        NewJob(
            id=job_id,
            target=BILLING.target,
            created_at_ms=number // 2,
            event_id=encode_tsid(1_000 + number) if case.of_event else None,
            subscription_id=encode_tsid(2) if case.is_gone else BILLING.id if case.of_event else None,
            group=case.key,
            sequence=case.sequence,
            mode=case.mode,
            payload=None if case.of_event else b"[%d]" % number,
            headers=case.headers,
            expires_at_ms=10**15,
            idempotency_key=job_id,
        )
        for job_id in ids
    ]


async def fill(database: SparkDatabase, cases: list[Case], clock: VirtualClock) -> list[DispatchJob]:
    jobs = [(job, case) for number, case in enumerate(cases) for job in jobs_of(number, case)]
    repository = database.repository()
    await repository.open(clock.now_ms())
    await repository.add_subscription(BILLING)
    await repository.publish([event_of(number, case) for number, case in enumerate(cases)], [], clock.now_ms())
    await repository.create_jobs([job for job, _ in jobs], clock.now_ms())
    await repository.close()
    with sqlite3.connect(database.path) as connection:
        for number, case in enumerate(cases):
            for job, status in zip(jobs_of(number, case), case.statuses, strict=True):
                finished_ms = None if status is JobStatus.PENDING else 1
                values = (codes_of(status)[0], finished_ms, job.id)
                connection.execute("UPDATE jobs SET state = ?, finished_at_ms = ? WHERE id = ?", values)
        connection.execute("DELETE FROM lanes")
    connection.close()
    return await all_jobs(database, clock)


async def all_jobs(database: SparkDatabase, clock: VirtualClock) -> list[DispatchJob]:
    with sqlite3.connect(database.path) as connection:
        ids = [job_id for (job_id,) in connection.execute("SELECT id FROM jobs ORDER BY id")]
    connection.close()
    repository = database.repository()
    await repository.open(clock.now_ms())
    jobs = [await repository.get_job(job_id) for job_id in ids]
    await repository.close()
    return jobs


async def replay_by_api(database: SparkDatabase, clock: VirtualClock) -> Any:
    repository = database.repository()
    await repository.open(clock.now_ms())
    worker = ReplayWorker(repository, clock)
    routes = RouteTable(*routes_of(ReplayRoutes(repository, lambda: REPLAY_ID, clock, worker)))
    found = routes.find(b"/api/v1/replays")
    assert found is not None
    route = found.routes["POST"]
    answer = await route.answered(Call({}, NoQuery(), route.body()))
    await repository.close()
    return answer


async def replay_by_spark(database: SparkDatabase, ids: list[str], clock: VirtualClock) -> None:
    async with replays_in(database, clock) as replays:
        replay = await replays.add(REPLAY_ID, ReplayRequest(selection=ReplaySelection()), len(ids), clock.now_ms())
        request = ReplayRun(database=database, replay_id=replay.id, run=replay.run)
        await do_part(request, ReplayPart(replay.id, replay.run, 0, "task"), in_chunks(iter(ids), 3), clock)
        await replays.end(replay)


def contents(request: DeliveryRequest) -> tuple[object, ...]:
    return dict(request.head.headers), request.head.target, request.body, request.signature, request.timeout_s


@settings(max_examples=examples(15))
@given(cases=CASES)
def test_every_way_delivers_the_same_copies(cases: list[Case]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(check(Path(directory), cases))


async def check(directory: Path, cases: list[Case]) -> None:
    clock = VirtualClock()
    by_api = SparkDatabase(f"sqlite:///{directory}/api.db")
    by_spark = SparkDatabase(f"sqlite:///{directory}/spark.db")
    before = await fill(by_api, cases, clock)
    shutil.copy(by_api.path, by_spark.path)
    wanted = last_copies(job for job in before if job.status in REPLAYABLE)

    answer = await replay_by_api(by_api, clock)
    await replay_by_spark(by_spark, [job.id for job in wanted], clock)
    after = await all_jobs(by_api, clock)
    assert after == await all_jobs(by_spark, clock)

    copies = {original_id(job.id): job for job in after if job.id.endswith(f"{COPY_JOINT}{REPLAY_ID}")}
    deliverable = [job for job in wanted if job.subscription_id != encode_tsid(2)]
    assert set(copies) == {original_id(job.id) for job in deliverable}
    assert answer.retried + answer.made == len(copies)
    for job in deliverable:
        copy = copies[original_id(job.id)]
        assert (copy.group_key, copy.sequence, copy.created_at_ms) == (job.group_key, job.sequence, job.created_at_ms)
        check_request(job, copy, cases)


def check_request(job: DispatchJob, copy: DispatchJob, cases: list[Case]) -> None:
    """What the receiver gets of a copy, whichever way it comes, and how that differs from the first delivery."""
    event = next((event_of(n, case) for n, case in enumerate(cases) if event_of(n, case).id == job.event_id), None)
    subscription = BILLING if job.subscription_id else None
    queued = delivery_request(msgspec.structs.replace(copy, delivery_count=1), event, subscription, 5)
    direct = delivery_request(as_copy(job, REPLAY_ID, 1), event, subscription, 5)
    assert contents(queued) == contents(direct)

    first = msgspec.structs.replace(job, id=original_id(job.id), delivery_count=1)
    plain = delivery_request(first, event, subscription, 5)
    assert (queued.signature, queued.body) == (plain.signature, plain.body)
    changed = dict(queued.head.headers).items() ^ dict(plain.head.headers).items()
    assert dict(queued.head.headers)[REPLAY_HEADER] == REPLAY_ID
    assert {name for name, _ in changed} == {REPLAY_HEADER, "penstock-job", "traceparent"}

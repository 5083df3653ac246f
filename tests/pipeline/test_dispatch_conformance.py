"""What both engines promise, inline and Spark, on both databases: the rules of the plan, seen in the queue."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from penstock.domain.job import Attempt, NewJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Pool, Subscription
from penstock.edge.clock import SystemClock
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import Beginning, DeliveryLease, Done, EndedDelivery, TryLater, Verdict
from penstock.spark.database import SparkDatabase
from tests.pipeline.dispatch_engines import WITHIN_S, Engine, InlineEngine, SparkEngine, in_queue
from tests.rigs.jobs import BLOCK, IMMEDIATE, NEXT, begin_all, finish_all
from tests.services.sqs_server import SqsServer, running

pytestmark = [pytest.mark.xdist_group("spark")]

TARGET = "https://orders.example/hook"
LARGEST_BYTES = 1024
HOUR_MS = 3_600_000
MANY_GROUPS = 80


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with running(tmp_path_factory.mktemp("sqs"), "--memory") as server:
        yield server


@pytest.fixture
def queue_url(sqs: SqsServer) -> str:
    attributes = {"FifoQueue": "true", "MaximumMessageSize": str(LARGEST_BYTES)}
    url: str = sqs.anyone.create_queue(QueueName=f"d-{uuid4().hex}.fifo", Attributes=attributes)["QueueUrl"]
    return url


@pytest.fixture(params=["inline", "spark"])
def engine(request: pytest.FixtureRequest, database: SparkDatabase, queue_url: str) -> Engine:
    if request.param == "inline":
        return InlineEngine(queue_url)
    return SparkEngine(request.getfixturevalue("spark"), database, queue_url)


class Story:
    """Jobs with speaking names on a real clock, and what happens to them."""

    def __init__(self, jobs: JobRepository) -> None:
        self.jobs = jobs
        self._clock = SystemClock()

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def make(self, *names: str, group: str | None, **fields: object) -> None:
        now_ms = self.now_ms
        usual: dict[str, object] = {"target": TARGET, "created_at_ms": now_ms, "group": group}
        made = [NewJob(**{**usual, "id": name, **fields}) for name in names]  # type: ignore[arg-type]
        await self.jobs.create_jobs(made, now_ms)

    async def deliver(self, name: str, verdict: Verdict) -> None:
        lease = DeliveryLease(self.now_ms, self.now_ms + HOUR_MS)
        (begun,) = await begin_all(self.jobs, [name], lease)
        assert begun.what is Beginning.BEGUN, (name, begun)
        assert begun.job is not None
        attempt = Attempt(
            number=begun.job.delivery_count, outcome=AttemptOutcome.FAILED, at_ms=self.now_ms, duration_ms=1
        )
        assert await finish_all(self.jobs, [EndedDelivery(name, attempt, verdict, self.now_ms)]) == [True]

    async def statuses(self, *names: str) -> list[JobStatus]:
        return [(await self.jobs.get_job(name)).status for name in names]


@pytest.fixture
async def story(database: SparkDatabase) -> AsyncIterator[Story]:
    jobs = database.repository()
    await jobs.open(SystemClock().now_ms())
    # With credit for all of them, since no one delivers them.
    await jobs.put_pool(Pool(DEFAULT_DISPATCH_POOL, 100))
    yield Story(jobs)
    await jobs.close()


def key(group: str) -> str:
    return f"DISPATCH_JOB:{group}"


async def test_the_queue_has_what_the_rules_let_go_once_and_in_order(
    story: Story, engine: Engine, sqs: SqsServer, queue_url: str
) -> None:
    jobs, now_ms = story.jobs, story.now_ms
    # First what stands in the way of others later: a job in ERROR, and one that waits for its next attempt.
    await story.make("failed", group="failed")
    await story.make("tried", group="tried")
    await engine.publish_all(jobs)
    assert in_queue(sqs, queue_url) == {key("failed"): ["failed"], key("tried"): ["tried"]}
    await story.deliver("failed", Done(JobStatus.ERROR))
    await story.deliver("tried", TryLater(now_ms + HOUR_MS))

    for name, sequence in (("o-4", 99), ("o-2", 5), ("o-5", 99), ("o-1", 1), ("o-3", 5)):
        await story.make(name, group="order", sequence=sequence)
    await story.make("none", group=None)
    await story.make("loose-1", "loose-2", group="loose", mode=IMMEDIATE)
    for group in ("failed", "tried"):
        for mode in DispatchMode:
            await story.make(f"{group}-{mode}", group=group, mode=mode)
    await story.make("later", group="later", scheduled_for_ms=now_ms + HOUR_MS)
    await story.make("after-later", group="later")
    await story.make("expired", group="expired", expires_at_ms=now_ms)
    await story.make("cancelled", "not-cancelled", group="cancelled")
    await jobs.cancel(["cancelled"], story.now_ms)
    subscription = Subscription(id="sub", name="billing", pattern="orders:**", target=TARGET, paused=True)
    await jobs.add_subscription(subscription)
    await story.make("paused", group="g", subscription_id="sub")
    # Its pointer is larger than the queue takes: it stays, and keeps its followers back, but no one else. Of one age,
    # they stand in the order of their names.
    await story.make("a-large", group="large", pool="P" * LARGEST_BYTES)
    await story.make("behind-large", group="large")
    many = {f"m{number}": [f"m{number}-{place}" for place in range(3)] for number in range(MANY_GROUPS)}
    for group, names in many.items():
        await story.make(*names, group=group)

    await engine.publish_all(jobs)
    wanted = {
        key("order"): ["o-1", "o-2", "o-3", "o-4", "o-5"],
        key("default"): ["none"],
        "loose-1": ["loose-1"],
        "loose-2": ["loose-2"],
        key("failed"): ["failed-NEXT_ON_ERROR"],
        "failed-IMMEDIATE": ["failed-IMMEDIATE"],
        key("tried"): ["tried-NEXT_ON_ERROR"],
        "tried-IMMEDIATE": ["tried-IMMEDIATE"],
        key("later"): ["after-later"],
        key("cancelled"): ["not-cancelled"],
        **{key(group): names for group, names in many.items()},
    }
    assert in_queue(sqs, queue_url) == wanted
    published = [name for names in wanted.values() for name in names]
    assert set(await story.statuses(*published)) == {JobStatus.QUEUED}
    kept = ["failed-BLOCK_ON_ERROR", "tried-BLOCK_ON_ERROR", "later", "paused", "a-large", "behind-large"]
    assert set(await story.statuses(*kept)) == {JobStatus.PENDING}
    assert await story.statuses("expired", "cancelled") == [JobStatus.EXPIRED, JobStatus.CANCELLED]

    # What stood in the way is gone.
    await jobs.ignore(["failed"], story.now_ms)
    await jobs.resume_subscription("sub")
    await jobs.cancel(["a-large"], story.now_ms)
    for name in ("tried-NEXT_ON_ERROR", "failed-NEXT_ON_ERROR"):
        await story.deliver(name, Done(JobStatus.COMPLETED))
    wanted = {
        key("failed"): ["failed-BLOCK_ON_ERROR"],
        "sub:g": ["paused"],
        key("large"): ["behind-large"],
    }
    found: dict[str, list[str]] = {}
    async with asyncio.timeout(WITHIN_S):
        while len(found) < len(wanted):
            # A group in trouble rests for a while before it is looked at again.
            await resting_lanes_wake(story)
            await engine.publish_all(jobs)
            found.update(in_queue(sqs, queue_url))
    assert found == wanted


async def resting_lanes_wake(story: Story) -> None:
    """Have every claim run out, as it would in time."""
    while (due_ms := await story.jobs.next_due_ms()) is not None and due_ms < story.now_ms + HOUR_MS // 2:
        await story.jobs.do_chores(due_ms)


@pytest.mark.parametrize("mode", [BLOCK, NEXT])
async def test_a_lost_job_comes_again_before_those_behind_it(
    story: Story, engine: Engine, sqs: SqsServer, queue_url: str, mode: DispatchMode
) -> None:
    await story.make("lost", group="g", mode=mode)
    await engine.publish_all(story.jobs)
    assert in_queue(sqs, queue_url) == {key("g"): ["lost"]}
    await story.make("next", group="g", mode=mode)
    now_ms = story.now_ms + HOUR_MS
    assert await story.jobs.recover_stale(now_ms, 10, settled={DEFAULT_DISPATCH_POOL: now_ms}) == ["lost"]
    await engine.publish_all(story.jobs)
    assert in_queue(sqs, queue_url) == {key("g"): ["lost", "next"]}

"""Whole replays on Spark: counted, delivered by executors or copied for the queue, stopped and gone on with."""

import threading
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.delivery import CourierSettings
from penstock.domain.job_state import JobStatus
from penstock.domain.replay import Copied, ReplayProgress, ReplaySelection, copy_id
from penstock.events.store.repository.replays import ReplayPart, Replays
from penstock.history.errors import InvalidQuery, ReplayBroken
from penstock.history.lake.facts_job import FactsBatch
from penstock.history.lake.lake import open_lake
from penstock.history.replay.runner import ReplayRunner
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.pipeline.receiver_thread import ReceiverThread
from tests.rigs.facts import FactsRig, attempt
from tests.rigs.replay import EVERYTHING, NEVER, ReplayRig

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

LOOPBACK = CourierSettings(egress_allow=(ip_network("127.0.0.0/8"),))


@pytest.fixture
def receiver() -> Iterator[RecordingReceiver]:
    thread = ReceiverThread(Reply(delay_s=0.005))
    yield thread.receiver
    thread.stop()


@pytest.fixture
def rig(tmp_path: Path) -> ReplayRig:
    return ReplayRig(SparkDatabase(f"sqlite:///{tmp_path}/jobs.db"))


def nobody(progress: ReplayProgress) -> None:
    """No one looks."""


def test_a_direct_replay_is_stopped_and_goes_on(
    spark: SparkSession, rig: ReplayRig, receiver: RecordingReceiver
) -> None:
    subscription = rig.subscribe(f"{receiver.url}/hook")
    job_ids = rig.publish([f"k{number % 4}" for number in range(400)], subscription)
    rig.end(job_ids)
    rig.publish(["k0"], subscription)
    runner = ReplayRunner(spark, rig.database, rig.clock)
    count = runner.count(EVERYTHING, rig.clock.now_ms() + 1_000_000)
    assert (count.jobs, count.groups, count.on_their_way) == (400, 4, 1)
    replay = rig.begin(direct=True, total=400, per_s=100)
    stop = threading.Event()
    seen: list[ReplayProgress] = []

    def stop_early(progress: ReplayProgress) -> None:
        seen.append(progress)
        if progress.done:
            stop.set()

    ended = runner.run(replay, count, LOOPBACK, stop, stop_early)
    assert ended.stopped
    assert 0 < ended.progress.done < 400, "it ended before it could be stopped: give it more to do"
    assert ended.progress.done == len(receiver.requests)
    assert any(0 < progress.done < 400 for progress in seen)
    ended = runner.run(rig.go_on(replay), count, LOOPBACK, NEVER, nobody)
    assert (ended.stopped, ended.progress) == (False, ReplayProgress(done=400))
    came = [request.headers["webhook-id"] for request in receiver.requests]
    assert sorted(came) == sorted(job_ids)
    for key in range(4):
        of_key = set(job_ids[key::4])
        assert [name for name in came if name in of_key] == job_ids[key::4]


def test_through_the_queue_what_failed_is_copied_once(spark: SparkSession, rig: ReplayRig) -> None:
    subscription = rig.subscribe("https://orders.example/hook")
    job_ids = rig.publish([f"k{number % 3}" for number in range(30)], subscription)
    rig.end(job_ids)
    rig.end(job_ids[:10], JobStatus.ERROR)
    selection = ReplaySelection(failed_since_ms=0, subscription_id=subscription.id)
    runner = ReplayRunner(spark, rig.database, rig.clock)
    as_of_ms = rig.clock.now_ms() + 1_000_000
    count = runner.count(selection, as_of_ms)
    assert count.jobs == 10
    replay = rig.begin(selection, total=10, per_s=1000)
    ended = runner.run(replay, count, LOOPBACK, NEVER, nobody)
    assert ended.progress == ReplayProgress(done=10)
    made = [row[0] for row in rig.execute("SELECT id FROM jobs WHERE id LIKE '%~%' ORDER BY id")]
    assert made == sorted(copy_id(job_id, replay.id) for job_id in job_ids[:10])
    assert {rig.job(job_id).status for job_id in job_ids[:10]} == {JobStatus.CANCELLED}
    due = [row[0] for row in rig.execute("SELECT due_at_ms FROM jobs WHERE id LIKE '%~%'")]
    assert len(set(due)) == 10
    # Their places are taken: there is nothing left that failed.
    assert runner.count(selection, as_of_ms).jobs == 0


def test_a_replay_that_the_api_did_not_finish_is_gone_on_with(spark: SparkSession, rig: ReplayRig) -> None:
    subscription = rig.subscribe("https://orders.example/hook")
    job_ids = rig.publish(["a", "b", "a", "a"], subscription)
    rig.end(job_ids)
    rig.end(job_ids[3:], JobStatus.EXPIRED)
    selection = ReplaySelection(
        type="orders:created", group_key=f"{subscription.id}:a", status=JobStatus.COMPLETED, from_ms=0
    )
    replay = rig.begin(selection, total=2)
    part = ReplayPart(replay.id, replay.run, 0, "1:api")

    async def begin(replays: Replays) -> Copied:
        await replays.own(part)
        return await replays.make_copies(part, [(job_ids[0], None)])

    assert rig._with_replays(begin) == Copied(copies=1)
    runner = ReplayRunner(spark, rig.database, rig.clock)
    count = runner.count(selection, replay.requested_at_ms)
    assert (count.jobs, count.groups) == (2, 1)
    ended = runner.run(rig.go_on(replay), count, LOOPBACK, NEVER, nobody)
    assert ended.progress == ReplayProgress(done=2)
    made = [row[0] for row in rig.execute("SELECT id FROM jobs WHERE id LIKE '%~%' ORDER BY id")]
    assert made == [copy_id(job_id, replay.id) for job_id in (job_ids[0], job_ids[2])]


def test_a_query_over_the_lake_names_the_jobs(spark: SparkSession, rig: ReplayRig, tmp_path: Path) -> None:
    job_ids = rig.publish(["a", "b", "a", "b"], rig.subscribe("https://orders.example/hook"))
    rig.end(job_ids)
    FactsRig(rig.database).add_attempts(
        [attempt(job_id, status_code=502 if job_id in job_ids[1:3] else 200) for job_id in job_ids]
    )
    lake = str(tmp_path / "lake")
    FactsBatch(rig.database, open_lake(spark, lake), rig.clock, counts=False).add(
        Tables(spark, rig.database).attempts().drop("response")
    )
    runner = ReplayRunner(spark, rig.database, rig.clock, lake)
    # Twice the same job is once; with another condition, both must hold.
    query = (
        "SELECT job_id FROM deliveries WHERE status = 502 UNION ALL SELECT job_id FROM deliveries WHERE status = 502"
    )
    selection = ReplaySelection(sql=query, key="a")
    as_of_ms = rig.clock.now_ms() + 1_000_000
    count = runner.count(selection, as_of_ms)
    assert (count.jobs, count.groups) == (1, 1)
    replay = rig.begin(selection, total=1)
    assert replay.request.selection == selection
    assert runner.run(replay, count, LOOPBACK, NEVER, nobody).progress == ReplayProgress(done=1)
    copy = copy_id(job_ids[2], replay.id)
    assert rig.execute("SELECT id FROM jobs WHERE id LIKE '%~%'") == [(copy,)]
    # A query that names an original takes the last of it and its copies.
    rig.end([copy])
    again = rig.begin(selection, total=1)
    runner.run(again, runner.count(selection, as_of_ms), LOOPBACK, NEVER, nobody)
    assert rig.execute(f"SELECT id FROM jobs WHERE id LIKE '%~{again.id}'") == [(copy_id(copy, again.id),)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT key FROM deliveries", "must have a column job_id, but has key"),
        ("SELECT nothing FROM deliveries", "nothing"),
        ("SELECT CAST('x' AS INT) AS job_id", "x"),
    ],
)
def test_a_query_that_names_no_jobs_is_a_sentence(
    spark: SparkSession, rig: ReplayRig, tmp_path: Path, sql: str, said: str
) -> None:
    rig.publish(["a"], rig.subscribe("https://orders.example/hook"))
    with pytest.raises(InvalidQuery, match=said) as refused:
        ReplayRunner(spark, rig.database, rig.clock, str(tmp_path / "lake")).count(ReplaySelection(sql=sql), 1)
    assert "\n" not in refused.value.message


def test_a_database_that_fails_is_said_in_a_sentence(spark: SparkSession, rig: ReplayRig) -> None:
    rig.end(rig.publish(["a"], rig.subscribe("https://orders.example/hook")))
    runner = ReplayRunner(spark, rig.database, rig.clock)
    count = runner.count(EVERYTHING, rig.clock.now_ms() + 1_000_000)
    replay = rig.begin(total=1)
    rig.execute("ALTER TABLE replay_copies RENAME TO lost")
    with pytest.raises(ReplayBroken) as raised:
        runner.run(replay, count, LOOPBACK, NEVER, nobody)
    assert "refused a change" in raised.value.message
    assert f"--resume {replay.id}" in raised.value.message
    assert "\n" not in raised.value.message

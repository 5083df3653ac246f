"""A replay directly from Spark's tasks: jobs of PostgreSQL signed, delivered to a receiver, and written down."""

import asyncio
from ipaddress import ip_network
from threading import Event

from pyspark.sql import SparkSession

from penstock.delivery import CourierSettings
from penstock.domain.replay import Replay, ReplayRequest, ReplaySelection
from penstock.domain.subscription import Subscription
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.history.replay.runner import Count, ReplayRunner
from penstock.history.replay.task import replays_in
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.dispatch import groups_of
from penstock.tools.bench.pipeline.schema import fill_completed, jobs_schema
from penstock.tools.bench.servers import median_rate, server_process

_ALL = ReplaySelection(from_ms=0)
_DIRECT = CourierSettings(egress_allow=(ip_network("127.0.0.0/8"),))
_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def replayed_per_s(spark: SparkSession, url: str, jobs: int, rounds: int) -> float:
    """Deliveries a second, without the count beforehand, to a receiver that answers at once."""
    clock = SystemClock()
    with (
        jobs_schema(url, "penstock_bench_replay") as database,
        server_process("-m", "penstock.tools.bench.receiver_server", "0") as receiver_url,
    ):
        filled = fill_completed(database, _subscription(f"{receiver_url}/hook"), groups_of(jobs))
        runner = ReplayRunner(spark, database, clock)

        now_ms = clock.now_ms()
        count = runner.count(_ALL, now_ms)

        def replay() -> int:
            asked = asyncio.run(_ask(database, count, now_ms))
            ended = runner.run(asked, count, _DIRECT, Event(), lambda _: None)
            if ended.progress.done != filled:
                raise RuntimeError(f"of {filled:,} jobs the replay delivered {ended.progress}")
            return filled

        replay()
        return median_rate(rounds, replay)


async def _ask(database: SparkDatabase, count: Count, now_ms: int) -> Replay:
    async with replays_in(database, SystemClock()) as replays:
        order = ReplayRequest(selection=_ALL, direct=True)
        return await replays.add(process_ids().next_id(now_ms), order, count.jobs, now_ms)


def _subscription(target: str) -> Subscription:
    subscription_id = process_ids().next_id(SystemClock().now_ms())
    return Subscription(id=subscription_id, name="subscriber", pattern="orders:**", target=target, secrets=(_SECRET,))

"""From the start of a process to the end of Spark's first micro-batch: an event of SQLite, fanned out.

As a module of its own it is that process.
"""

import subprocess
import sys
import time
from pathlib import Path

import uvloop

from penstock.domain.event import StoredEvent
from penstock.domain.subscription import Subscription
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.store.sqlite import sqlite_repository
from penstock.tools.bench.scheduler_backlog import TARGET, opened

_DONE = "fanned out"


def first_batch_s(directory: Path) -> float:
    """Seconds, with `local[*]` and Penstock's own settings; with the classes of `penstock pipeline warm-up` if any."""
    uvloop.run(_publish(directory / "jobs.db"))
    started_s = time.perf_counter()
    command = [sys.executable, "-m", "penstock.tools.bench.pipeline.start", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took_s = time.perf_counter() - started_s
        if line.strip() != _DONE:
            raise RuntimeError(f"Spark made no job of the event: {line!r}")
    return took_s


async def _publish(path: Path) -> None:
    now_ms = SystemClock().now_ms()
    ids = process_ids()
    wanting = Subscription(id=ids.next_id(now_ms), name="subscriber", pattern="orders:**", target=TARGET)
    event = StoredEvent(
        id=ids.next_id(now_ms), source="/shop", type="orders:created", received_ms=now_ms, external_id="1"
    )
    async with opened(sqlite_repository(path)) as jobs:
        await jobs.add_subscription(wanting)
        await jobs.add_events([event])


def _fan_out(directory: Path) -> None:
    from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
    from penstock.spark.database import SparkDatabase
    from penstock.spark.session import SessionSettings, spark_session

    job = FanOutJob(SparkDatabase(f"sqlite://{directory}/jobs.db"), FanOutSettings(once=True))
    with spark_session(SessionSettings(app_name="penstock-bench", streams=True)) as spark:
        job.start(spark, f"{directory}/checkpoint").awaitTermination()
        print(_DONE if job.lag() == 0 else f"{job.lag()} event waits", flush=True)
        job.close()


if __name__ == "__main__":
    _fan_out(Path(sys.argv[1]))

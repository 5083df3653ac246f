"""How many connections to PostgreSQL fan-out has open at the same time."""

from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
from penstock.spark.database import SparkDatabase
from tests.rigs.fan_out import FanOutRig

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

CORES = 2
OF_DRIVER = 10
WAIT_S = 300


class Counter:
    """Looks at the server's sessions until it is stopped."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self.before = self._count()
        self.most = 0

    def __enter__(self) -> "Counter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.most = max(self.most, self._count())

    def _count(self) -> int:
        counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        row = self._connection.execute(counted).fetchone()
        assert row is not None
        return int(row[0])


def test_fan_out_has_two_connections_for_each_core_at_most(
    spark: SparkSession, postgres_database: str, tmp_path: Path
) -> None:
    assert spark.sparkContext.defaultParallelism == CORES
    rig = FanOutRig(SparkDatabase(postgres_database))
    rig.subscribe()
    for number in range(40):
        rig.publish(500, group=f"key {number}")

    with Counter(postgres_database) as sessions:
        # A batch for each tenth, so that tasks follow on tasks.
        with closing(FanOutJob(rig.database, FanOutSettings(once=True, most_rows=2000, tasks=CORES))) as job:
            assert job.start(spark, str(tmp_path)).awaitTermination(WAIT_S)
        assert rig.waiting() == []
    rig.close()

    assert 0 < sessions.most - sessions.before <= 2 * CORES + OF_DRIVER

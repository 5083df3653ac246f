"""One driver runs a job: a second one stands by, and takes over at once however the first one ends."""

import asyncio
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.spark import driver_lock as module
from penstock.spark.database import SparkDatabase
from penstock.spark.driver_lock import driver_lock, until_acquired, until_lost
from penstock.spark.pipeline import RunSettings, run_pipeline
from penstock.spark.session import SessionSettings
from tests.rigs.job_database import fetch

HOLDER = """
import sys, time
from penstock.spark.database import SparkDatabase
from penstock.spark.driver_lock import driver_lock
lock = driver_lock(SparkDatabase(sys.argv[1], sys.argv[2]), "facts")
print(lock.acquire(), flush=True)
time.sleep(600)
"""
WAIT_S = 60


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)


def test_one_of_two_has_it_and_jobs_do_not_share_it(database: SparkDatabase) -> None:
    with (
        closing(driver_lock(database, "facts")) as first,
        closing(driver_lock(database, "facts")) as second,
        closing(driver_lock(database, "fan-out")) as another,
    ):
        assert [first.acquire(), second.acquire(), another.acquire()] == [True, False, True]
        assert (first.is_held(), second.is_held()) == (True, False)
        first.close()
        assert second.acquire()


def test_a_second_driver_takes_over_when_the_first_is_killed(database: SparkDatabase) -> None:
    command = [sys.executable, "-c", HOLDER, database.url, database.schema]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder,
        closing(driver_lock(database, "facts")) as lock,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert not lock.acquire()
        holder.send_signal(signal.SIGKILL)
        asyncio.run(asyncio.wait_for(until_acquired(lock, "facts"), WAIT_S))
        assert lock.is_held()


async def test_a_lost_connection_is_a_lost_lock(postgres_place: SparkDatabase) -> None:
    with closing(driver_lock(postgres_place, "facts")) as lock:
        assert lock.acquire()
        lost = asyncio.create_task(until_lost(lock))
        holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
        fetch(postgres_place, f"SELECT pg_terminate_backend(pid) FROM ({holders}) AS held")
        async with asyncio.timeout(WAIT_S):
            await lost


async def test_a_run_of_what_another_driver_runs_is_refused(database: SparkDatabase) -> None:
    def never(_: SessionSettings) -> None:
        raise AssertionError("Spark was started")

    with closing(driver_lock(database, "facts")) as first:
        assert first.acquire()
        locks = {"facts": driver_lock(database, "facts")}
        settings = RunSettings(session=SessionSettings(), checkpoint="checkpoint", once=True, port=0, locks=locks)
        with pytest.raises(FailedPrecondition, match="another driver runs facts"):
            await run_pipeline([], settings, never)  # type: ignore[arg-type]

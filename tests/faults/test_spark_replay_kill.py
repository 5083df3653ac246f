"""A direct replay killed in the middle: a worker of a real cluster, and the driver with all that it started."""

import asyncio
from pathlib import Path

import pytest

from penstock.spark.database import SparkDatabase
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.replay_command import ReplayCommand, assert_in_order, jobs_over
from tests.services.spark_cluster import running_cluster

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

GROUPS = 24
JOBS = 2400
ALL = ("--from", "2000-01-01", "--direct", "--yes", "--json")


async def test_a_killed_worker_loses_nothing_and_keeps_the_order(tmp_path: Path, postgres_database: str) -> None:
    with running_cluster(tmp_path) as cluster:
        async with RecordingReceiver(Reply(delay_s=0.02)) as receiver:
            job_ids = await jobs_over(
                SparkDatabase(postgres_database), receiver, [f"k{n % GROUPS}" for n in range(JOBS)]
            )
            options = (*ALL, "--database", postgres_database, *cluster.options)
            async with ReplayCommand(tmp_path, *options) as command:
                await command.delivers(receiver, JOBS // 10)
                await asyncio.to_thread(cluster.kill_worker, 0)
                assert len(receiver.requests) < JOBS, "it was through before the worker was killed: give it more to do"
                code, told, err = await command.ended()
            assert (code, told["done"], told["failed"], told["heldBack"]) == (0, JOBS, 0, 0), err
            came = [request.headers["webhook-id"] for request in receiver.requests]
            # One delivery of a group is under way at a time: no other can come again.
            assert_in_order(came, job_ids, GROUPS, repeats=1)


async def test_a_killed_driver_is_gone_on_with(tmp_path: Path, postgres_database: str) -> None:
    place = ("--database", postgres_database, "--master", "local[2]")
    async with RecordingReceiver(Reply(delay_s=0.02)) as receiver:
        job_ids = await jobs_over(SparkDatabase(postgres_database), receiver, [f"k{n % GROUPS}" for n in range(JOBS)])
        async with ReplayCommand(tmp_path, *ALL, *place) as command:
            await command.delivers(receiver, JOBS // 10)
            await asyncio.to_thread(command.kill)
        assert len(receiver.requests) < JOBS
        (replay_id,) = {request.headers["penstock-replay"] for request in receiver.requests}
        async with ReplayCommand(tmp_path, "--resume", replay_id, "--yes", "--json", *place) as resumed:
            code, told, err = await resumed.ended()
        assert (code, told["done"]) == (0, JOBS), err
        came = [request.headers["webhook-id"] for request in receiver.requests]
        # It did not start over: what comes again was under way when the driver was killed.
        assert_in_order(came, job_ids, GROUPS, repeats=1)

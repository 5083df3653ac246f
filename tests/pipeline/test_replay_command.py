"""`penstock pipeline replay` through the command line: counting, stopping by Ctrl-C, going on, and what is refused."""

import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.cli.pipeline.replay import progress_text
from penstock.domain.replay import ReplayProgress
from penstock.spark.database import SparkDatabase
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.job_database import execute, fetch
from tests.rigs.replay_command import ReplayCommand, assert_in_order, jobs_over

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

GROUPS = 5


async def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    place = ("--data", str(tmp_path), "--master", "local[2]")
    async with RecordingReceiver(Reply(delay_s=0.05)) as receiver:
        keys = [f"k{number % GROUPS}" for number in range(400)]
        job_ids = await jobs_over(SparkDatabase(f"sqlite:///{tmp_path}/jobs.db"), receiver, keys)
        options = ("--from", "2000-01-01", "--direct", "--yes", "--json", *place)
        async with ReplayCommand(tmp_path, *options) as command:
            await command.delivers(receiver, 20)
            command.send(signal.SIGINT)
            code, told, err = await command.ended()
        assert code == 130, err
        # What came is written down, and nothing of it comes again.
        assert 20 <= told["done"] == len(receiver.requests) < 400
        assert f"penstock pipeline replay --resume {told['replay']}" in err
        assert "400 jobs of 5 groups" in err
        async with ReplayCommand(tmp_path, "--resume", told["replay"], "--json", *place) as resumed:
            code, after, err = await resumed.ended()
        assert (code, after["done"], after["stopped"]) == (0, 400, False), err
        came = [request.headers["webhook-id"] for request in receiver.requests]
        assert_in_order(came, job_ids, GROUPS, repeats=0)


async def test_a_dry_run_only_counts(tmp_path: Path) -> None:
    async with RecordingReceiver() as receiver:
        job_ids = await jobs_over(SparkDatabase(f"sqlite:///{tmp_path}/jobs.db"), receiver, ["a", "b", "a"])
        options = ("--key", "a", "--dry-run", "--json", "--data", str(tmp_path), "--master", "local[1]")
        async with ReplayCommand(tmp_path, *options) as command:
            code, told, err = await command.ended()
        assert (code, told) == (0, {"jobs": 2, "groups": 1, "onTheirWay": 0}), err
        assert receiver.requests == []
        assert len(job_ids) == 3


async def test_jobs_are_chosen_by_name_type_and_status(tmp_path: Path) -> None:
    async with RecordingReceiver() as receiver:
        database = SparkDatabase(f"sqlite:///{tmp_path}/jobs.db")
        job_ids = await jobs_over(database, receiver, ["a", "b", "c"])
        execute(database, "UPDATE jobs SET state = 6 WHERE id = ?", [(job_ids[0],)])
        execute(database, "UPDATE jobs SET type = 'orders:paid' WHERE id = ?", [(job_ids[2],)])
        ((name,),) = fetch(database, "SELECT name FROM subscriptions")
        for options, jobs in (
            (("--subscription", name), 3),
            (("--subscription", "another"), 0),
            (("--status", "error"), 1),
            (("--type", "orders:paid"), 1),
        ):
            place = ("--dry-run", "--json", "--data", str(tmp_path), "--master", "local[1]")
            async with ReplayCommand(tmp_path, *options, *place) as command:
                code, told, err = await command.ended()
            assert (code, told["jobs"]) == (0, jobs), (options, err)


async def test_a_direct_replay_is_refused_while_jobs_of_its_keys_are_on_their_way(tmp_path: Path) -> None:
    async with RecordingReceiver() as receiver:
        database = SparkDatabase(f"sqlite:///{tmp_path}/jobs.db")
        job_ids = await jobs_over(database, receiver, ["a", "a", "b"])
        # The second of its key waits for the router.
        execute(database, "UPDATE jobs SET state = 3, finished_at_ms = NULL WHERE id = ?", [(job_ids[1],)])
        options = ("--direct", "--yes", "--json", "--data", str(tmp_path), "--master", "local[1]")
        async with ReplayCommand(tmp_path, "--key", "a", *options) as command:
            code, _, err = await command.ended()
        assert (code, receiver.requests) == (1, [])
        assert "1 of the keys have jobs on their way" in err
        async with ReplayCommand(tmp_path, "--key", "b", *options) as command:
            code, told, err = await command.ended()
        assert (code, told["done"], told["doneMeans"]) == (0, 1, "delivered"), err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "say what to replay"),
        (("--from", "2030-01-02", "--to", "2030-01-01"), "no time between"),
        (("--from", "lately"), "is not a time"),
        (("--resume", "0000000000000", "--direct"), "give --resume alone"),
        (("--resume", "0000000000000"), "Replay not found"),
        (("--key", "a"), "give --yes to deliver"),
        (("--status", "pending", "--yes"), "jobs that are PENDING are not replayed"),
    ],
)
async def test_what_is_refused_before_spark_starts(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    async with ReplayCommand(tmp_path, *options, "--data", str(tmp_path)) as command:
        code, _, err = await command.ended()
    assert code in (1, 2)
    assert told in err
    assert "Traceback" not in err


def test_progress_tells_rows_rate_and_what_is_left() -> None:
    now = datetime(2030, 1, 1, 9, 59, 50, tzinfo=UTC)
    assert (
        progress_text(ReplayProgress(100), 1100, 50.0, now) == "100 of 1100 jobs, 50/s, 0:00:20 left, until 10:00:10Z"
    )
    assert progress_text(ReplayProgress(1, 2, 3), 6, 0.0, now) == "6 of 6 jobs, 0/s, 2 failed, 3 held back"

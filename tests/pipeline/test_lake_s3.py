"""The lake on an object store: moto's S3 server on loopback, through the commands a user types."""

import json
from collections.abc import Mapping
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.history.lake.delta import TableState
from penstock.spark.database import SparkDatabase
from tests.rigs.facts import NOW_MS, FactsRig, attempt
from tests.rigs.job_database import execute
from tests.rigs.lake import add_deliveries, delivery
from tests.rigs.penstock_process import run_penstock

WAIT_S = 300


@pytest.fixture
def bucket(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """An empty bucket, and the environment that leads to it."""
    environment = {
        "AWS_ENDPOINT_URL": moto_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="penstock")
    for entry in client.list_objects_v2(Bucket="penstock").get("Contents", []):
        client.delete_object(Bucket="penstock", Key=entry["Key"])
    return environment


def test_rows_are_added_compacted_forgotten_and_refused(bucket: Mapping[str, str]) -> None:
    lake = "s3://penstock/lake"
    for first in range(0, 40, 10):
        files = add_deliveries(lake, [delivery(place) for place in range(first, first + 10)])
    assert (len(files.files()), files.count("true")) == (4, 40)

    with pytest.raises(FailedPrecondition, match="one facts job at a time"):
        files.commit([], 50, TableState(29))
    assert files.compact() == 4
    assert (len(files.files()), files.count("true")) == (1, 40)
    assert files.forget("key = 'key-1'") == 13
    assert files.count("true") == 27


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_the_commands_write_and_read_it(bucket: Mapping[str, str], tmp_path: Path) -> None:
    rig = FactsRig(SparkDatabase(f"sqlite://{tmp_path / 'jobs.db'}"))
    rig.add_attempts([attempt(job) for job in rig.make_jobs(20)])
    execute(rig.database, "UPDATE jobs SET state = 5, finished_at_ms = ?", [(NOW_MS,)])
    place = ("--lake", "s3://penstock/pipeline", "--data", str(tmp_path))

    written = run_penstock("pipeline", "facts", "--once", "--master", "local[1]", *place, within_s=WAIT_S)
    assert written.returncode == 0, written.stderr
    ask = "SELECT count(*) AS n, count(DISTINCT key) AS keys, min(date) AS day FROM deliveries WHERE was_sent"
    asked = run_penstock("pipeline", "sql", ask, "--json", "--master", "local[1]", *place, within_s=WAIT_S)
    assert json.loads(asked.stdout) == [{"n": 20, "keys": 5, "day": "2025-11-01"}], asked.stderr
    forgotten = run_penstock("pipeline", "forget", "--key", "order-1", "--yes", "--json", *place, within_s=WAIT_S)
    proof = json.loads(forgotten.stdout)
    assert proof["found"]["lake"] == {"deliveries": 4, "jobs": 4, "events": 0}, forgotten.stderr
    assert set(proof["left"]["lake"].values()) == {0}


@pytest.mark.parametrize("lake", ["s3://no-such-bucket/lake", "ftp://elsewhere/lake"])
def test_a_store_that_cannot_be_used_is_a_sentence(bucket: Mapping[str, str], tmp_path: Path, lake: str) -> None:
    done = run_penstock("pipeline", "forget", "--key", "k", "--yes", "--lake", lake, "--data", str(tmp_path))

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {lake}")

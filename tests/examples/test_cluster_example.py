"""The example of a Spark cluster, as a reader runs it: its own master, workers and driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.errors import SparkUnavailable
from penstock.spark.requirements import require_spark
from tests.examples.test_examples import EXAMPLES, accepts
from tests.services import unavailable
from tests.services.server_process import free_port

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

EXAMPLE = EXAMPLES / "pipeline_on_cluster.sh"
WAIT_S = 240
PENDING = [f"orders:{step}" for step in ("packed", "paid", "placed")]


def test_events_become_jobs_on_a_cluster(postgres_database: str, tmp_path: Path) -> None:
    try:
        require_spark()
    except SparkUnavailable as error:
        unavailable("Spark", error.message)
    spark, api = free_port(), free_port()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "DATABASE_URL": postgres_database,
        "SPARK_PORT": str(spark),
        "API_PORT": str(api),
    }
    done = subprocess.run([str(EXAMPLE)], capture_output=True, text=True, timeout=WAIT_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.partition(" PENDING ")[2].split() for line in done.stdout.splitlines() if " PENDING " in line]
    assert [row[0] for row in rows] == PENDING
    assert len({(subscription, key) for _, subscription, key, *_ in rows}) == 1
    assert not accepts(spark)
    assert not accepts(api)


def test_without_a_database_it_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    refused = subprocess.run([str(EXAMPLE)], capture_output=True, text=True, env=environment, check=False)
    assert refused.returncode != 0
    assert "DATABASE_URL: is the PostgreSQL database" in refused.stderr

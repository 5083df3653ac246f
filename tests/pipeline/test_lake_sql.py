"""Questions to the lake: the views say the same in Spark and in DuckDB, and the command prints them."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.history.errors import InvalidQuery
from penstock.history.lake.facts_job import FactsBatch
from penstock.history.lake.lake import open_lake
from penstock.history.lake.schema import TABLES
from penstock.history.lake.views import VIEWS, query, rows
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables
from tests.rigs.facts import NOW_MS, FactsRig, attempt
from tests.rigs.job_database import execute
from tests.rigs.penstock_process import run_penstock

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

HOUR_MS = 60 * 60 * 1000


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two subscriptions and five keys; one job is retried, and of one key two events change places."""
    directory = tmp_path_factory.mktemp("sql")
    rig = FactsRig(SparkDatabase(f"sqlite://{directory / 'jobs.db'}"))
    ids = rig.make_jobs(20)
    execute(rig.database, "UPDATE jobs SET event_id = 'e' || substr(id, 2)")
    rig.add_attempts([attempt(ids[0], outcome="FAILED", status_code=503, duration_ms=900, error="it is closed")])
    swapped = [*ids[:2], ids[12], *ids[3:12], ids[2], *ids[13:]]
    for place, job in enumerate(swapped):
        rig.add_attempts([attempt(job, 2 if job == ids[0] else 1, at_ms=NOW_MS + place % 2 * HOUR_MS)])
    path = str(directory / "lake")
    FactsBatch(rig.database, open_lake(spark, path), rig.clock, counts=False).add(
        Tables(spark, rig.database).attempts().drop("response")
    )
    return path


@pytest.fixture
def duck(lake: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the same tables and views."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in TABLES:
            if DeltaTable.is_deltatable(f"{lake}/{name}"):
                connection.register(name, DeltaTable(f"{lake}/{name}").to_pyarrow_dataset())
        for view in VIEWS:
            connection.execute(f"CREATE VIEW {view.name} AS {view.sql}")
        yield connection


def asked(spark: SparkSession, lake: str, sql: str) -> list[list[Any]]:
    return list(rows(query(open_lake(spark, lake), sql), None))


def comparable(table: list[Any]) -> list[str]:
    def text(cell: object) -> str:
        return f"{cell:.6g}" if isinstance(cell, int | float) and not isinstance(cell, bool) else str(cell)[:10]

    return sorted(str([text(cell) for cell in row]) for row in table)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_view_says_the_same_in_spark_and_in_duckdb(
    spark: SparkSession, lake: str, duck: duckdb.DuckDBPyConnection, view: Any
) -> None:
    in_spark = asked(spark, lake, f"SELECT * FROM {view.name}")

    assert in_spark
    assert comparable(in_spark) == comparable(duck.execute(f"SELECT * FROM {view.name}").fetchall())


def test_views_show_hours_retries_slow_endpoints_and_broken_order(spark: SparkSession, lake: str) -> None:
    assert asked(spark, lake, "SELECT sum(attempts), sum(delivered), count(DISTINCT hour) FROM hourly") == [[21, 20, 2]]
    assert asked(spark, lake, "SELECT job_id, attempts, last_outcome FROM retries") == [["j00000", 2, "DELIVERED"]]
    (slowest, *_) = asked(spark, lake, "SELECT endpoint, response_ms_max, failed FROM slow_endpoints")
    assert slowest == ["https://shop.example/hook/0", 900, 1]
    swapped = asked(spark, lake, "SELECT event_id FROM key_order WHERE NOT in_order ORDER BY event_id")
    assert swapped == [["e00002"], ["e00012"]]


@pytest.mark.parametrize("sql", ["SELECT nothing FROM deliveries", "SELEC 1", "SELECT * FROM elsewhere"])
def test_a_query_that_cannot_run_is_a_sentence(spark: SparkSession, lake: str, sql: str) -> None:
    with pytest.raises(InvalidQuery) as failed:
        asked(spark, lake, sql)

    assert "\n" not in failed.value.message


def test_the_command_prints_a_table_json_or_csv(lake: str, tmp_path: Path) -> None:
    place = ("--lake", lake, "--master", "local[1]")
    of_key = "key, count(*) AS n, min(attempted_at) AS at, max(reason) AS why"
    ask = f"SELECT {of_key} FROM deliveries GROUP BY key ORDER BY key"
    table = run_penstock("pipeline", "sql", ask, "--limit", "2", *place, within_s=300)
    assert table.returncode == 0, table.stderr
    assert table.stdout.splitlines()[0].split() == ["KEY", "N", "AT", "WHY"]
    assert len(table.stdout.splitlines()) == 3
    assert "more than these 2 rows" in table.stderr

    file = tmp_path / "ask.sql"
    file.write_text(f"{ask};\n")
    as_json = run_penstock("pipeline", "sql", "--file", str(file), "--json", *place, within_s=300)
    first = json.loads(as_json.stdout)[0]
    assert first == {"key": "order-0", "n": 5, "at": "2025-11-01T12:26:40Z", "why": "it is closed"}

    as_csv = run_penstock("pipeline", "sql", ask, "--csv", *place, within_s=300)
    parsed = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert [row["n"] for row in parsed] == ["5", "4", "4", "4", "4"]


def test_without_a_query_the_command_lists_what_there_is() -> None:
    done = run_penstock("pipeline", "sql")

    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == {*TABLES, *(view.name for view in VIEWS)}

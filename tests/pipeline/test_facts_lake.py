"""The lake is Delta tables: every reader counts what the database has, whatever is killed in between."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.domain.errors import FailedPrecondition
from penstock.events.statistics import BEFORE_ALL
from penstock.history.errors import LakeNotMigrated
from penstock.history.lake import delta
from penstock.history.lake.delta import LakeFiles, TableState
from penstock.history.lake.facts import FACTS
from penstock.history.lake.facts_job import FactsBatch
from penstock.history.lake.lake import Lake, open_lake
from penstock.history.lake.migration import migrate
from penstock.history.lake.schema import DELIVERIES, EVENTS, JOBS, SUBSCRIPTIONS, TABLES
from penstock.history.lake.sync import LakeSync
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import InvalidPipelineOption
from penstock.spark.tables import Tables
from tests.rigs.facts import NOW_MS, FactsRig, attempt
from tests.rigs.job_database import execute, fetch

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

DAY_MS = 24 * 60 * 60 * 1000


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object, **__: object) -> Any:
    raise Killed


@pytest.fixture
def rig(tmp_path: Path) -> FactsRig:
    return FactsRig(SparkDatabase(f"sqlite://{tmp_path / 'jobs.db'}"))


def add(spark: SparkSession, rig: FactsRig, lake: str) -> int:
    """All attempts as one batch, by a process that has just started."""
    batches = FactsBatch(rig.database, open_lake(spark, lake), rig.clock, counts=False)
    return batches.add(Tables(spark, rig.database).attempts().drop("response"))


def add_events(rig: FactsRig, names: list[str]) -> None:
    columns = (
        "id, tenant, source, external_id, type, time_ms, data, content_type, group_name, attributes, received_ms, "
        "fanned_out"
    )
    rows = [
        (name, "", "shop", name, "order.created", NOW_MS, b"12345", "application/json", "k", "{}", NOW_MS, 1)
        for name in names
    ]
    execute(rig.database, f"INSERT INTO events ({columns}) VALUES ({', '.join('?' * 12)})", rows)


def counts(spark: SparkSession, lake: str, table: str) -> dict[str, int]:
    """The number of rows by each reader."""
    table_now = DeltaTable(f"{lake}/{table}")
    with duckdb.connect() as connection:
        connection.register("rows", table_now.to_pyarrow_dataset())
        found = connection.execute("SELECT count(*) FROM rows").fetchone()
    return {
        "spark": Lake(spark, lake).frame(table).count(),
        "delta-rs": sum(pyarrow.table(table_now.get_add_actions()).column("num_records").to_pylist()),
        "pandas": len(table_now.to_pandas()),
        "duckdb": 0 if found is None else found[0],
    }


def check(spark: SparkSession, rig: FactsRig, lake: str) -> None:
    """Compare every reader with the database."""
    ((attempts,),) = fetch(rig.database, "SELECT count(*) FROM attempts")
    assert set(counts(spark, lake, "deliveries").values()) == {attempts}
    # With a condition readers look at the statistics of files first.
    table = DeltaTable(f"{lake}/deliveries")
    assert len(table.to_pandas(filters=[("outcome", "=", "DELIVERED")])) == attempts
    with duckdb.connect() as connection:
        connection.register("rows", table.to_pyarrow_dataset())
        delivered = "SELECT count(*) FROM rows WHERE outcome = 'DELIVERED' AND key IS NOT NULL"
        assert connection.execute(delivered).fetchone() == (attempts,)


def test_every_reader_counts_what_the_database_has(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "a lake")
    monkeypatch.setattr(delta, "LEAST_FILES", 2)
    ids = rig.make_jobs(12)
    for number in range(1, 5):
        rig.add_attempts([attempt(job, number, at_ms=NOW_MS - number % 2 * DAY_MS) for job in ids])
        assert add(spark, rig, lake) == 12
    check(spark, rig, lake)

    open_before = DeltaTable(f"{lake}/deliveries").to_pyarrow_dataset()
    with monkeypatch.context() as patch:
        patch.setattr(LakeFiles, "vacuum", killed)
        with pytest.raises(Killed):
            Lake(spark, lake).tidy()
    check(spark, rig, lake)
    # Who opened the table before the compaction reads on.
    assert open_before.count_rows() == 48

    Lake(spark, lake).tidy()
    assert len(DeltaTable(f"{lake}/deliveries").file_uris()) == 2
    check(spark, rig, lake)
    rig.add_attempts([attempt(ids[0], 99)])
    with monkeypatch.context() as patch:
        patch.setattr(LakeFiles, "commit", killed)
        with pytest.raises(Killed):
            add(spark, rig, lake)
    assert set(counts(spark, lake, "deliveries").values()) == {48}
    assert add(spark, rig, lake) == 1
    assert add(spark, rig, lake) == 0
    check(spark, rig, lake)
    assert Lake(spark, lake).tables["deliveries"].vacuum(now=True) > 0
    check(spark, rig, lake)


@pytest.mark.parametrize("opened", [1, 3], ids=["before it writes", "before it commits"])
def test_of_two_processes_that_add_the_same_rows_one_is_refused(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: int
) -> None:
    lake = str(tmp_path / "lake")
    rig.add_attempts([attempt(job) for job in rig.make_jobs(3)])
    original, calls = LakeFiles.current, list[str]()

    def overtaken(files: LakeFiles) -> DeltaTable:
        calls.append(files.uri)
        found = original(files)
        if len(calls) == opened:
            add(spark, rig, lake)
        return found

    monkeypatch.setattr(LakeFiles, "current", overtaken)
    with pytest.raises(FailedPrecondition, match="one facts job at a time"):
        add(spark, rig, lake)

    check(spark, rig, lake)


def test_a_row_has_names_times_and_sizes(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    add_events(rig, ["e1"])
    definition = json.dumps(
        {"id": "sub-0", "tenant": "", "name": "billing", "pattern": "orders:**", "target": "https://a"}
    )
    execute(rig.database, "INSERT INTO subscriptions (id, tenant, name, paused, definition) VALUES (?, ?, ?, ?, ?)",
            [("sub-0", "", "billing", 0, definition)])  # fmt: skip
    rig.make_jobs(1, event_id="e1")
    rig.add_attempts([attempt("j00000", outcome="FAILED", status_code=503, duration_ms=7), attempt("j00000", 2)])
    execute(
        rig.database,
        "UPDATE jobs SET state = 5, attempt_count = 2, finished_at_ms = ? WHERE id = ?",
        [(NOW_MS, "j00000")],
    )
    add(spark, rig, lake)

    first, last = DeltaTable(f"{lake}/deliveries").to_pyarrow_table().sort_by([("attempt", "ascending")]).to_pylist()
    assert (first["subscription"], first["key"], first["event_bytes"]) == ("billing", "order-0", 5)
    assert (first["endpoint"], first["endpoint_host"]) == ("https://shop.example/hook/0", "shop.example")
    assert (first["status"], first["response_ms"], first["waited_ms"]) == (503, 7, 1000)
    assert str(first["attempted_at"]) == "2025-11-01 12:26:40+00:00"
    assert str(first["date"]) == "2025-11-01"
    assert (last["outcome"], last["waited_ms"]) == ("DELIVERED", None)
    (job,) = DeltaTable(f"{lake}/jobs").to_pyarrow_table().to_pylist()
    assert (job["job_id"], job["final_status"], job["attempts"]) == ("j00000", "COMPLETED", 2)
    assert job["finished_at"] == last["attempted_at"]


def test_a_table_of_an_earlier_build_is_read_with_conditions(tmp_path: Path) -> None:
    files = LakeFiles(str(tmp_path), DELIVERIES)
    DeltaTable.create(files.uri, DELIVERIES.arrow, partition_by=["date"])
    row = {**dict.fromkeys(DELIVERIES.names), "outcome": "DELIVERED", "position": 1, "date": date(2025, 11, 1)}
    files.current()
    files.commit(files.write(pyarrow.Table.from_pylist([row], DELIVERIES.arrow), "part"), 1, TableState())

    assert len(DeltaTable(files.uri).to_pandas(filters=[("outcome", "=", "DELIVERED")])) == 1


def test_what_is_unknown_is_null(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    rig.make_jobs(1)
    rig.add_attempts([attempt("j00000")])
    add(spark, rig, str(tmp_path / "lake"))

    (row,) = DeltaTable(str(tmp_path / "lake/deliveries")).to_pyarrow_table().to_pylist()
    assert (row["event_time"], row["subscription"], row["event_bytes"]) == (None, None, None)


def test_a_job_has_one_row_when_its_last_attempt_was_read(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    rig.make_jobs(2)
    rig.add_attempts([attempt("j00000", outcome="FAILED")])
    add(spark, rig, lake)
    assert counts(spark, lake, "jobs")["spark"] == 0
    rig.add_attempts([attempt("j00000", 2)])
    execute(rig.database, "UPDATE jobs SET state = 5, finished_at_ms = ? WHERE id = ?", [(NOW_MS, "j00000")])
    add(spark, rig, lake)
    add(spark, rig, lake)

    assert set(counts(spark, lake, "jobs").values()) == {1}


def test_a_job_that_ended_without_an_attempt_has_a_row(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    rig.make_jobs(4)
    rig.add_attempts([attempt("j00000")])
    ended = "UPDATE jobs SET state = ?, delivery_count = ?, finished_at_ms = ? WHERE id = ?"
    execute(rig.database, ended, [(5, 1, NOW_MS, "j00000"), (8, 0, NOW_MS, "j00001"), (7, 0, NOW_MS, "j00002")])
    add(spark, rig, lake)

    def sync() -> int:
        return LakeSync(spark, rig.database, Lake(spark, lake), rig.clock).add()

    # What ended this moment may not be visible yet.
    assert sync() == 0
    rig.clock.advance(61)
    with monkeypatch.context() as patch:
        patch.setattr(LakeFiles, "commit", killed)
        with pytest.raises(Killed):
            sync()
    assert sync() == 2
    assert sync() == 0
    rig.add_attempts([attempt("j00003")])
    execute(rig.database, ended, [(5, 1, NOW_MS + 1, "j00003")])
    assert add(spark, rig, lake) == 1

    assert set(counts(spark, lake, "jobs").values()) == {4}
    rows = {row["job_id"]: row for row in DeltaTable(f"{lake}/jobs").to_pyarrow_table().to_pylist()}
    assert {name: row["final_status"] for name, row in rows.items()} == {
        "j00000": "COMPLETED", "j00001": "EXPIRED", "j00002": "CANCELLED", "j00003": "COMPLETED",
    }  # fmt: skip
    untried, tried = rows["j00001"], rows["j00000"]
    assert (untried["attempts"], untried["position"], untried["key"]) == (0, -1, "order-1")
    assert (untried["endpoint"], untried["endpoint_host"]) == ("https://shop.example/hook/1", "shop.example")
    assert (untried["finished_at"], untried["date"]) == (tried["finished_at"], tried["date"])


def test_events_and_subscriptions_follow_the_database(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    sync = LakeSync(spark, rig.database, lake, rig.clock)
    insert = "INSERT INTO subscriptions (id, tenant, name, paused, definition) VALUES (?, ?, ?, ?, ?)"
    definition = {"id": "s1", "tenant": "", "name": "billing", "pattern": "orders:**", "target": "https://u:p@a/x?q"}
    execute(rig.database, insert, [("s1", "", "billing", 0, json.dumps(definition))])
    add_events(rig, ["e1", "e2"])

    assert sync.add() == 3
    assert sync.add() == 0
    add_events(rig, ["e3"])
    execute(rig.database, "UPDATE subscriptions SET paused = ?", [(1,)])
    assert LakeSync(spark, rig.database, Lake(spark, lake.path), rig.clock).add() == 2
    execute(rig.database, "DELETE FROM subscriptions WHERE id = ?", [("s1",)])
    assert sync.add() == 1
    assert sync.add() == 0

    assert set(counts(spark, lake.path, EVENTS.name).values()) == {3}
    versions = DeltaTable(f"{lake.path}/{SUBSCRIPTIONS.name}").to_pyarrow_table().sort_by("position").to_pylist()
    assert [(row["name"], row["paused"], row["deleted"]) for row in versions] == [
        ("billing", False, False), ("billing", True, False), ("billing", True, True),
    ]  # fmt: skip
    assert versions[0]["endpoint"] == "https://a/x"


def test_an_empty_lake_has_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = open_lake(spark, str(tmp_path / "lake"))

    assert (lake.place(DELIVERIES.name), lake.days(), lake.facts().count()) == (BEFORE_ALL, [], 0)
    assert lake.facts().schema == FACTS
    assert lake.compact() == dict.fromkeys(TABLES, 0)
    assert not (tmp_path / "lake").exists()


def test_places_that_the_lake_cannot_be_in(spark: SparkSession) -> None:
    with pytest.raises(InvalidPipelineOption, match="write s3://bucket/lake"):
        Lake(spark, "s3a://bucket/lake")
    with pytest.raises(InvalidPipelineOption, match="contains %"):
        Lake(spark, "/tmp/100%")


def test_a_column_of_a_later_version_is_added(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    older = pyarrow.schema([field for field in JOBS.arrow if field.name != "endpoint_host"])
    DeltaTable.create(f"{lake}/jobs", older, partition_by=["date"])
    rig.make_jobs(1)
    rig.add_attempts([attempt("j00000")])
    execute(rig.database, "UPDATE jobs SET state = 5, finished_at_ms = ? WHERE id = ?", [(NOW_MS, "j00000")])

    add(spark, rig, lake)

    (row,) = Lake(spark, lake).frame("jobs").collect()
    assert row["endpoint_host"] == "shop.example"


def old_lake(root: Path, batches: dict[str, tuple[str, int, list[str]]]) -> None:
    """A lake as older versions wrote it: each batch has a day, its number of rows, and the batches it replaces."""
    (root / "_log").mkdir(parents=True)
    position = 0
    for name, (day, count, replaces) in batches.items():
        rows = []
        for number in range(count):
            position += 1
            row = {
                "job_id": f"{name}-{number}",
                "number": 1,
                "outcome": "DELIVERED",
                "at_ms": NOW_MS,
                "position": position,
            }
            rows.append({**dict.fromkeys(FACTS.names), **row})
        directory = root / f"day={day}" / f"batch={name}"
        directory.mkdir(parents=True)
        stored = pyarrow.Table.from_pylist(rows, to_arrow_schema(FACTS)).drop_columns(["day"])
        pyarrow.parquet.write_table(stored, directory / "part-0.parquet")
        commit = {"batch": name, "upto": [position, rows[-1]["job_id"], 1, NOW_MS], "days": {day: count}}
        (root / "_log" / f"{name}.json").write_text(json.dumps({**commit, "replaces": replaces}))


@pytest.fixture
def first_day_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the second commit of a migration kill it."""
    commit, done = LakeFiles.commit, list[int]()

    def commit_once(files: LakeFiles, *args: Any, **options: Any) -> None:
        if done:
            raise Killed
        done.append(1)
        commit(files, *args, **options)

    monkeypatch.setattr(LakeFiles, "commit", commit_once)
    return monkeypatch.undo


def test_a_lake_of_an_older_version_is_migrated_once(
    spark: SparkSession, tmp_path: Path, first_day_only: Callable[[], None]
) -> None:
    root, lake = tmp_path / "lake", str(tmp_path / "lake")
    old_lake(root, {"a": ("2025-10-31", 2, []), "b": ("2025-11-01", 3, []), "compacted-c": ("2025-11-01", 3, ["b"])})
    with pytest.raises(LakeNotMigrated, match="migrate-lake"):
        open_lake(spark, lake)

    with pytest.raises(Killed):
        list(migrate(spark, lake))
    first_day_only()
    assert [(done.day, done.rows) for done in migrate(spark, lake)] == [("2025-10-31", 2), ("2025-11-01", 3)]

    assert set(counts(spark, lake, "deliveries").values()) == {5}
    assert open_lake(spark, lake).place("deliveries").position == 8
    with pytest.raises(FailedPrecondition, match="already"):
        list(migrate(spark, lake))


def test_a_damaged_day_is_not_migrated(spark: SparkSession, tmp_path: Path) -> None:
    old_lake(tmp_path / "lake", {"a": ("2025-10-31", 2, [])})
    next(tmp_path.glob("lake/day=*/batch=*/*.parquet")).unlink()

    with pytest.raises(FailedPrecondition, match="0 of the 2 facts of 2025-10-31"):
        list(migrate(spark, str(tmp_path / "lake")))

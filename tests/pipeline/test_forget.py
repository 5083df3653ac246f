"""What is forgotten is gone for every reader of the lake, in its files, and does not come back."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.events.store import Subject
from penstock.history.forget import Forgetting
from penstock.history.lake.delta import LakeFiles, NewFile, TableState
from penstock.history.lake.facts_job import FactsBatch
from penstock.history.lake.lake import open_lake
from penstock.history.lake.schema import DELIVERIES
from penstock.history.lake.sync import LakeSync
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables
from tests.pipeline.test_facts_lake import add, add_events, check, counts
from tests.rigs.facts import NOW_MS, FactsRig, attempt
from tests.rigs.job_database import execute
from tests.rigs.penstock_process import run_penstock

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
ANNA = Subject(key="order-1")


@pytest.fixture
def rig(tmp_path: Path) -> FactsRig:
    rig = FactsRig(SparkDatabase(f"sqlite://{tmp_path / 'jobs.db'}"))
    ids = rig.make_jobs(20)
    rig.add_attempts([attempt(job) for job in ids])
    execute(rig.database, "UPDATE jobs SET state = 5, finished_at_ms = ?", [(NOW_MS,)])
    add_events(rig, ["e1"])
    return rig


def stored(lake: str) -> str:
    """All that is in the lake, in its tables or not: rows and logs."""
    parts = []
    for file in Path(lake).rglob("*"):
        if file.suffix == ".parquet":
            parts.append(str(pyarrow.parquet.read_table(file, partitioning=None).to_pylist()))
        elif file.is_file():
            parts.append(file.read_text(encoding="utf-8"))
    return "".join(parts)


def test_a_key_is_gone_for_every_reader_and_from_all_files(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    add(spark, rig, lake)
    LakeSync(spark, rig.database, open_lake(spark, lake), rig.clock).add()
    open_lake(spark, lake).compact()
    forgetting = Forgetting(rig.database, lake, rig.clock)
    assert "order-1" in stored(lake)
    found = forgetting.count(ANNA)
    assert (found.database.jobs, found.database.attempts, dict(found.lake)) == (
        4, 4, {"deliveries": 4, "jobs": 4, "events": 0},
    )  # fmt: skip

    forgetting.forget(ANNA)

    assert not forgetting.count(ANNA).any
    check(spark, rig, lake)
    assert set(counts(spark, lake, "jobs").values()) == {16}
    assert set(counts(spark, lake, "events").values()) == {1}
    assert "order-1" not in stored(lake)
    assert add(spark, rig, lake) == 0
    rig.add_attempts([attempt("j00000", 2)])
    assert add(spark, rig, lake) == 1
    check(spark, rig, lake)


def test_rows_that_were_read_before_do_not_come_back(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is forgotten after the tasks have written its rows and before they are committed."""
    lake = str(tmp_path / "lake")
    commit, tries = LakeFiles.commit, list[int]()

    def overtaken(files: LakeFiles, new: Any, upto: int, before: TableState) -> None:
        written: list[NewFile] = list(new)
        tries.append(sum(file.rows for file in written))
        if len(tries) == 1:
            Forgetting(rig.database, lake, rig.clock).forget(ANNA)
        commit(files, written, upto, before)

    monkeypatch.setattr(LakeFiles, "commit", overtaken)
    batches = FactsBatch(rig.database, open_lake(spark, lake), rig.clock, counts=False)

    assert batches.add(Tables(spark, rig.database).attempts().drop("response")) == 16
    assert tries == [20, 16, 16]
    check(spark, rig, lake)


def test_a_commit_at_the_same_time_is_refused_or_forgotten(tmp_path: Path) -> None:
    files = LakeFiles(str(tmp_path), DELIVERIES)
    files.current()
    before = files.state()
    row = {**dict.fromkeys(DELIVERIES.names), "key": "anna", "position": 1, "date": NOW_MS // 86_400_000}
    new = files.write(pyarrow.Table.from_pylist([row], DELIVERIES.arrow), "part")
    opened = files.current()
    files.forget("key = 'anna'")
    files.current = lambda: opened  # type: ignore[method-assign]

    with pytest.raises(Exception, match="meanwhile"):
        files.commit(new, 1, before)
    assert files.count("key = 'anna'") == 0


def test_versions_of_a_subscription_stay_while_it_exists(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    definition = json.dumps({"id": "sub-0", "tenant": "", "name": "it's", "pattern": "**", "target": "https://a"})
    insert = "INSERT INTO subscriptions (id, tenant, name, paused, definition) VALUES (?, ?, ?, ?, ?)"
    execute(rig.database, insert, [("sub-0", "", "it's", 0, definition)])
    sync = LakeSync(spark, rig.database, open_lake(spark, lake), rig.clock)
    sync.add()
    forgetting = Forgetting(rig.database, lake, rig.clock)
    assert forgetting.subscription_id("it's") == "sub-0"

    forgetting.forget(Subject(subscription_id="sub-0"))
    assert DeltaTable(f"{lake}/subscriptions").to_pyarrow_table().num_rows == 1
    execute(rig.database, "DELETE FROM subscriptions")
    sync.add()
    forgetting.forget(Subject(subscription_id="sub-0"))

    assert DeltaTable(f"{lake}/subscriptions").to_pyarrow_table().num_rows == 0
    assert sync.add() == 0


def test_days_beyond_those_to_keep_leave_the_lake(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = open_lake(spark, str(tmp_path / "lake"))
    rig.add_attempts([attempt("j00000", 2, at_ms=NOW_MS - 3 * 86_400_000), attempt("j00000", 3)])
    add(spark, rig, lake.path)
    assert lake.days() == ["2025-10-29", "2025-11-01"]

    lake.tidy(before="2025-10-31")

    assert lake.days() == ["2025-11-01"]
    assert set(counts(spark, lake.path, "deliveries").values()) == {21}
    assert add(spark, rig, lake.path) == 0


def test_the_command_counts_asks_and_proves(rig: FactsRig, tmp_path: Path) -> None:
    base = ("pipeline", "forget", "--data", str(tmp_path))
    counted = run_penstock(*base, "--key", "order-1", "--dry-run", "--json")
    assert json.loads(counted.stdout)["found"]["database"]["jobs"] == 4, counted.stderr

    refused = run_penstock(*base, "--key", "order-1")
    assert refused.returncode == 2
    assert "give --yes" in refused.stderr
    done = run_penstock(*base, "--key", "order-1", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    proof = json.loads(done.stdout)
    assert (proof["found"]["database"]["attempts"], proof["left"]["database"]["attempts"]) == (4, 0)
    nothing = run_penstock(*base)
    assert nothing.returncode == 1
    assert "say whom to forget" in nothing.stderr

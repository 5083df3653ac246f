"""The lake: readers see whole batches only, and a compaction may be killed anywhere."""

from collections import Counter
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.domain.errors import FailedPrecondition
from penstock.events.statistics.minutes import BEFORE_ALL, StatisticsPlace
from penstock.history.lake import parquet_lake
from penstock.history.lake.facts import FACTS
from penstock.history.lake.lake import Compacted, DeltaLake, LakeFormat, open_lake
from penstock.history.lake.parquet_lake import HadoopFiles, ParquetLake
from penstock.spark.errors import SparkUnavailable

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

ONE, TWO = "2026-11-01", "2026-11-02"


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object, **__: object) -> Any:
    raise Killed


def frame(spark: SparkSession, position: int, days: list[str]) -> DataFrame:
    rows = [
        {"job_id": f"j{position}", "number": number, "at_ms": 5, "position": position, "day": day}
        for number, day in enumerate(days)
    ]
    return spark.createDataFrame([tuple(row.get(name) for name in FACTS.names) for row in rows], FACTS)


def place(position: int) -> StatisticsPlace:
    return StatisticsPlace(position, f"j{position}", 0, 5)


def fill(spark: SparkSession, path: str, batches: int, days: list[str]) -> Counter[tuple[str, int]]:
    """Batches one after the other; what is in the lake afterwards."""
    lake = ParquetLake(spark, path)
    first = lake.upto().position + 1
    for position in range(first, first + batches):
        lake.add(frame(spark, position, days), Counter(days), place(position))
    return contents(spark, path)


def contents(spark: SparkSession, path: str) -> Counter[tuple[str, int]]:
    return Counter((row["job_id"], row["number"]) for row in ParquetLake(spark, path).facts().collect())


def files(path: Path, day: str) -> int:
    return len(list(path.glob(f"day={day}/batch=*/*.parquet")))


def test_an_empty_lake_has_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = ParquetLake(spark, str(tmp_path / "lake"))

    assert (lake.upto(), lake.days(), lake.facts().count()) == (BEFORE_ALL, [], 0)
    assert lake.facts().schema == FACTS
    assert lake.compact(ONE) is None


def test_a_day_is_read_alone_and_the_last_place_is_known_again(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    fill(spark, path, 2, [ONE, TWO, TWO])
    again = ParquetLake(spark, path)

    assert again.upto() == place(1)
    assert again.days() == [ONE, TWO]
    assert again.facts([TWO]).count() == 4
    assert again.facts(["2026-11-03"]).count() == 0


def test_compacting_one_day_after_the_other_keeps_every_fact_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    fill(spark, path, 3, [ONE, TWO])
    lake = ParquetLake(spark, path)

    assert lake.compact(ONE) == Compacted(ONE, 3, 3)
    assert lake.compact(ONE) is None
    assert files(tmp_path / "lake", ONE) == 1
    assert files(tmp_path / "lake", TWO) == 3
    before = fill(spark, path, 1, [ONE, TWO])
    assert lake.compact(ONE) == Compacted(ONE, 4, 2)
    # The first compaction is gone, and must not come back with the day of its batches that was never compacted.
    assert lake.compact(TWO) == Compacted(TWO, 4, 4)

    assert contents(spark, path) == before == Counter((f"j{batch}", day) for batch in range(4) for day in range(2))
    lake.compact(TWO)
    assert contents(spark, path) == before
    assert (files(tmp_path / "lake", ONE), files(tmp_path / "lake", TWO)) == (1, 1)
    assert len(list((tmp_path / "lake" / "_log").glob("[!.]*.json"))) == 2
    assert ParquetLake(spark, path).upto() == place(3)


@pytest.fixture(scope="module")
def two_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two batches of one day, to be copied."""
    path = tmp_path_factory.mktemp("facts") / "lake"
    fill(spark, str(path), 2, [ONE])
    return path


@pytest.mark.parametrize("step", ["write", "write_commit"])
def test_a_compaction_killed_before_it_counts(
    spark: SparkSession, two_batches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = str(copytree(two_batches, tmp_path / "lake"))
    before = Counter({("j0", 0): 1, ("j1", 0): 1})
    with monkeypatch.context() as patch:
        patch.setattr(parquet_lake, step, killed)
        with pytest.raises(Killed):
            ParquetLake(spark, path).compact(ONE)
    assert contents(spark, path) == before

    assert ParquetLake(spark, path).compact(ONE) == Compacted(ONE, 2, 2)

    assert contents(spark, path) == before


@pytest.mark.parametrize("deletions", [1, 2, 3])
def test_a_compaction_killed_while_it_deletes_what_the_last_one_replaced(
    spark: SparkSession, two_batches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletions: int
) -> None:
    path = str(copytree(two_batches, tmp_path / "lake"))
    before = Counter({("j0", 0): 1, ("j1", 0): 1})
    ParquetLake(spark, path).compact(ONE)
    delete, done = HadoopFiles.delete, list[str]()

    def delete_some(files: HadoopFiles, name: str) -> None:
        if len(done) == deletions:
            raise Killed
        done.append(name)
        delete(files, name)

    with monkeypatch.context() as patch:
        patch.setattr(HadoopFiles, "delete", delete_some)
        with pytest.raises(Killed):
            ParquetLake(spark, path).compact(ONE)
    assert contents(spark, path) == before

    ParquetLake(spark, path).compact(ONE)

    assert contents(spark, path) == before
    assert files(tmp_path / "lake", ONE) == 1


def test_a_compaction_stops_when_data_is_missing(spark: SparkSession, two_batches: Path, tmp_path: Path) -> None:
    path = str(copytree(two_batches, tmp_path / "lake"))
    next(tmp_path.glob(f"lake/day={ONE}/batch=*/*.parquet")).unlink()

    with pytest.raises(FailedPrecondition, match="1 of the 2 facts of 2026-11-01"):
        ParquetLake(spark, path).compact(ONE)

    assert files(tmp_path / "lake", ONE) == 2


def test_delta_says_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="delta-spark"):
        open_lake(spark, str(tmp_path), LakeFormat.DELTA)


def test_a_table_that_has_a_log_of_its_own_tells_how_far_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    # Delta's package is not here: Parquet stands in for it, whose appends are whole as long as nothing crashes.
    lake = DeltaLake(spark, str(tmp_path / "lake"), source="parquet")
    assert lake.upto() == BEFORE_ALL
    lake.add(frame(spark, 7, [ONE, TWO]), {ONE: 1, TWO: 1}, StatisticsPlace(7, "j7", 1, 5))

    assert lake.upto() == StatisticsPlace(7, "j7", 1, 5)
    assert lake.days() == [ONE, TWO]
    assert lake.facts([TWO]).count() == 1

"""The facts job: every attempt is in the lake once and counted once, whatever breaks between the two."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from penstock.events.statistics import inline
from penstock.events.statistics.minutes import Dimension
from penstock.history.lake.delta import LakeFiles
from penstock.history.lake.facts_job import FactsBatch, FactsJob, FactsSettings
from penstock.history.lake.lake import Lake
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables
from tests.rigs.facts import NOW_MS, FactsRig, attempt

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object, **__: object) -> Any:
    raise Killed


@pytest.fixture
def rig(tmp_path: Path) -> FactsRig:
    return FactsRig(SparkDatabase(f"sqlite://{tmp_path / 'jobs.db'}"))


@pytest.fixture(params=["sqlite", "postgres"])
def either_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], FactsRig]]:
    """Makes a rig on one and the same kind of database, each time an empty one."""
    if request.param == "sqlite":
        yield lambda: FactsRig(SparkDatabase(f"sqlite://{tmp_path / uuid4().hex}.db"))
        return
    url = str(request.getfixturevalue("postgres_url"))
    schemas: list[str] = []

    def make() -> FactsRig:
        schemas.append(f"facts_{uuid4().hex}")
        return FactsRig(SparkDatabase(url, schema=schemas[-1]))

    yield make
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in schemas:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def history(ids: list[str]) -> list[tuple[Any, ...]]:
    """Each job delivered, every third one at its second attempt."""
    failed = [
        attempt(job, outcome="FAILED", status_code=503, error="answered 503", at_ms=NOW_MS - 90_000) for job in ids[::3]
    ]
    return [*failed, *(attempt(job, 2 if job in ids[::3] else 1, at_ms=NOW_MS - len(job) * 7) for job in ids)]


def take_in(spark: SparkSession, rig: FactsRig, lake: str) -> int:
    """All attempts as one batch, by a process that has just started."""
    batches = FactsBatch(rig.database, Lake(spark, lake), rig.clock)
    return batches.add(Tables(spark, rig.database).attempts().drop("response"))


def in_lake(spark: SparkSession, lake: str) -> Counter[tuple[str, int]]:
    return Counter((row["job_id"], row["number"]) for row in Lake(spark, lake).facts().collect())


def counted(rig: FactsRig) -> int:
    return sum(minute.attempts for minute in rig.minutes(Dimension.POOL))


def run_once(spark: SparkSession, rig: FactsRig, lake: str, checkpoint: Path, most_rows: int = 1000) -> None:
    settings = FactsSettings(lake=lake, once=True, most_rows=most_rows)
    query = FactsJob(rig.database, settings, rig.clock).start(spark, str(checkpoint))
    query.awaitTermination(120)
    assert query.exception() is None


def test_on_one_machine_the_driver_counts_and_the_lake_gets_what_has_waited(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline, "EVERY_S", 0.1)
    rig.add_attempts(history(rig.make_jobs(30)))
    lake = str(tmp_path / "lake")
    settings = FactsSettings(lake=lake, trigger_ms=100, least_rows=1000, longest_wait_s=1)
    query = FactsJob(rig.database, settings, rig.clock).start(spark, str(tmp_path / "checkpoint"))
    try:
        until(lambda: rig.progress().counted == 40 and sum(in_lake(spark, lake).values()) == 40)
        rig.add_attempts([attempt("j00001", 9, at_ms=NOW_MS - 2)])
        until(lambda: counted(rig) == 41 and sum(in_lake(spark, lake).values()) == 41)
    finally:
        query.stop()
    assert query.exception() is None


def test_a_full_batch_does_not_wait_for_more_than_it_takes(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    rig.add_attempts(history(rig.make_jobs(30)))
    lake = str(tmp_path / "lake")
    settings = FactsSettings(lake=lake, trigger_ms=100, most_rows=10, least_rows=1000, longest_wait_s=3600)
    query = FactsJob(rig.database, settings, rig.clock).start(spark, str(tmp_path / "checkpoint"))
    try:
        until(lambda: sum(in_lake(spark, lake).values()) == 40)
    finally:
        query.stop()
    assert query.exception() is None


def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 120
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


def test_the_stream_fills_the_lake_and_counts_what_the_inline_engine_counts(
    spark: SparkSession, either_rig: Callable[[], FactsRig], tmp_path: Path
) -> None:
    by_spark, by_inline = either_rig(), either_rig()
    for rig in (by_spark, by_inline):
        rows = history(rig.make_jobs(30))
        rig.add_attempts(rows[:15])
        rig.add_attempts([*rows[15:], attempt("forgotten-job", at_ms=NOW_MS - 5)])
    lake = str(tmp_path / "lake")

    run_once(spark, by_spark, lake, tmp_path / "checkpoint", most_rows=25)
    by_inline.count_inline()

    assert in_lake(spark, lake) == Counter((row[0], row[1]) for row in rows) + Counter([("forgotten-job", 1)])
    for by in Dimension:
        assert by_spark.minutes(by) == by_inline.minutes(by)
    assert by_spark.leaders() == by_inline.leaders()
    assert by_spark.progress().counted == by_inline.progress().counted == 41

    # A lost checkpoint makes the stream begin again.
    by_spark.add_attempts([attempt("j00001", 9, at_ms=NOW_MS - 2)])
    run_once(spark, by_spark, lake, tmp_path / "another checkpoint")

    assert sum(in_lake(spark, lake).values()) == 42
    assert counted(by_spark) == by_spark.progress().counted == 42


def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, rig: FactsRig, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    rig.add_attempts(history(rig.make_jobs(6)))
    assert take_in(spark, rig, lake) == 8
    before = [rig.minutes(by) for by in Dimension], rig.leaders(), in_lake(spark, lake)

    assert take_in(spark, rig, lake) == 0

    assert ([rig.minutes(by) for by in Dimension], rig.leaders(), in_lake(spark, lake)) == before


def test_killed_between_the_lake_and_the_statistics(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    rig.add_attempts(history(rig.make_jobs(6)))
    with monkeypatch.context() as patch:
        patch.setattr(FactsBatch, "_count", killed)
        with pytest.raises(Killed):
            take_in(spark, rig, lake)
    assert (sum(in_lake(spark, lake).values()), counted(rig)) == (8, 0)
    rig.add_attempts([attempt("j00001", 7)])

    take_in(spark, rig, lake)

    assert (sum(in_lake(spark, lake).values()), counted(rig)) == (9, 9)
    assert max(in_lake(spark, lake).values()) == 1


def test_killed_before_the_lake_has_the_whole_batch(
    spark: SparkSession, rig: FactsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    rig.add_attempts(history(rig.make_jobs(6)))
    with monkeypatch.context() as patch:
        patch.setattr(LakeFiles, "commit", killed)
        with pytest.raises(Killed):
            take_in(spark, rig, lake)
    assert list(tmp_path.glob("lake/deliveries/date=*/*.parquet"))
    assert in_lake(spark, lake) == Counter()

    take_in(spark, rig, lake)

    assert (sum(in_lake(spark, lake).values()), counted(rig)) == (8, 8)


def test_rows_that_cannot_be_true_are_set_aside_or_brought_into_bounds(
    spark: SparkSession, rig: FactsRig, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    rig.make_jobs(2)
    rig.add_attempts(
        [
            attempt("j00000", at_ms=2**62),
            attempt("j00000", at_ms=-5),
            attempt("j00000", outcome="LOST"),
            attempt("j00001", duration_ms=-(2**63), error="\U0001f600" * 100_000, outcome="FAILED"),
            attempt("\U0001f4a5 '); DROP TABLE attempts; --", 1, duration_ms=2**62),
            attempt("j00000", 2),
        ]
    )

    take_in(spark, rig, lake)

    progress = rig.progress()
    assert (progress.counted, progress.set_aside, progress.repaired) == (3, 3, 2)
    assert counted(rig) == sum(in_lake(spark, lake).values()) == 3
    aside = Tables(spark, rig.database).attempts().count()
    assert aside == 6
    assert rig.set_aside() == {
        ("attempts", f"j00000:1:{2**62}", "it is more than a day in the future"),
        ("attempts", "j00000:1:-5", "it is from before the year 2000"),
        ("attempts", f"j00000:1:{NOW_MS}", "its outcome is unknown"),
    }

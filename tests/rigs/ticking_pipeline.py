"""A process that supervises streaming jobs made for tests; run by test_supervision_run."""

import asyncio
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cli.failures import FAILURE
from penstock.domain.errors import PenstockError
from penstock.ops.telemetry.logs import configure_logging
from penstock.spark.pipeline import RunSettings, run_pipeline
from penstock.spark.session import SessionSettings

SLOW_S = 3.0


class Ticks:
    """Rows that come by the clock, and what is done with each batch of them."""

    def __init__(self, name: str, directory: Path, *, once: bool) -> None:
        self.name = name
        self._directory = directory
        self._once = once

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = ticks.writeStream.queryName(self.name).option("checkpointLocation", checkpoint)
        trigger = {"availableNow": True} if self._once else {"processingTime": "100 milliseconds"}
        query: StreamingQuery = writer.trigger(**trigger).foreachBatch(self.take).start()
        return query

    def take(self, batch: DataFrame, number: int) -> None:
        """One micro-batch."""
        batch.count()

    def lag(self) -> int | None:
        return 7

    def handled(self) -> int:
        return 0

    def note(self, text: str) -> None:
        """Write a line that the test reads."""
        with (self._directory / f"{self.name}.txt").open("a") as out:
            out.write(f"{time.monotonic():.3f} {text}\n")


class SlowTicks(Ticks):
    """Batches that take a while: a stop must not break one off."""

    def take(self, batch: DataFrame, number: int) -> None:
        self.note(f"begin {number}")
        batch.count()
        time.sleep(SLOW_S)
        self.note(f"end {number}")


class FailingTicks(Ticks):
    """Every batch fails until the test says that it may go on."""

    def take(self, batch: DataFrame, number: int) -> None:
        self.note("try")
        if not (self._directory / "mended").exists():
            raise RuntimeError("the pipe is broken")

    def lag(self) -> int | None:
        raise OSError("nobody knows")


KINDS = {"steady": Ticks, "slow": SlowTicks, "failing": FailingTicks}


def main() -> None:
    """DIRECTORY once|on NAME…"""
    directory, once, names = Path(sys.argv[1]), sys.argv[2] == "once", sys.argv[3:]
    jobs = [KINDS[name](name, directory, once=once) for name in names]
    session = SessionSettings(app_name="supervision", master="local[2]")
    settings = RunSettings(session=session, checkpoint=str(directory / "checkpoint"), once=once, port=0)
    configure_logging("json", "info")
    try:
        asyncio.run(run_pipeline(jobs, settings))
    except PenstockError as error:
        sys.stderr.write(f"error: {error.message}\n")
        sys.exit(FAILURE)


if __name__ == "__main__":
    main()

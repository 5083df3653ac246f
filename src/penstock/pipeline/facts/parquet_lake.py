"""A lake of Parquet files: `day=…/batch=…/*.parquet`, and the log of the batches that count (lake_log.py).

A batch's directory has the batch's name, made from its last attempt: to write it again replaces what a crash left.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.events.statistics.minutes import Place
from penstock.pipeline.facts.columns import DAY
from penstock.pipeline.facts.compaction import compact, sweep
from penstock.pipeline.facts.hadoop_files import HadoopFiles
from penstock.pipeline.facts.lake import Compacted
from penstock.pipeline.facts.lake_files import read, write
from penstock.pipeline.facts.lake_log import Commit, read_log, write_commit

BATCHES_PER_DAY = 200


class ParquetLake:
    """Facts in a directory that any file system of Hadoop's can hold. One process adds, any number read."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark, self._path)
        self._upto: Place | None = None

    def upto(self) -> Place:
        """The last attempt in the lake; looked up once, for only this process adds."""
        if self._upto is None:
            self._upto = read_log(self._files).upto
        return self._upto

    def add(self, facts: DataFrame, days: dict[str, int], upto: Place) -> None:
        """Write the data, then the file that makes it count."""
        batch = batch_name(upto)
        if days:
            # All of a day in one file: batches are small, and many small files make slow reads.
            write(facts.coalesce(1) if len(days) == 1 else facts.repartition(f.col(DAY)), self._path, batch)
        write_commit(self._files, Commit(batch=batch, upto=upto, days=days))
        self._upto = upto

    def days(self) -> list[str]:
        """The days that have facts."""
        return list(read_log(self._files).live())

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """The facts of committed batches."""
        live = read_log(self._files).live()
        wanted = [(day, batch) for day in (live if days is None else days) for batch in live.get(day, ())]
        return read(self._spark, self._path, wanted)

    def compact(self, day: str) -> Compacted | None:
        """Write a day's facts into few files; what earlier compactions have replaced is deleted first."""
        sweep(self._files)
        return compact(self._spark, self._path, self._files, day)

    def tidy(self) -> None:
        """Compact the days of many batches."""
        for day, batches in read_log(self._files).live().items():
            if len(batches) >= BATCHES_PER_DAY:
                self.compact(day)


def batch_name(upto: Place) -> str:
    """The name of the batch that ends at a place: the same for the same batch, and in the order of batches."""
    rest = blake2b(msgspec.json.encode(upto), digest_size=6).hexdigest()
    return f"{max(upto.position, 0):020}-{rest}"

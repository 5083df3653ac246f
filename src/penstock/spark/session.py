"""The Spark session: one place for its settings, tuned for one machine and left to the cluster elsewhere."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.limits import MIB
from penstock.spark.errors import SparkUnavailable, reason_of
from penstock.spark.jvm import class_sharing, keep_loss_quiet, start_jvm
from penstock.spark.packaging import packed, tell_driver
from penstock.spark.requirements import require_spark
from penstock.spark.workers import start_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = "spark.pyspark.python"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows that are a plan of megabytes each (dispatch) must not wait in memory until there are ten thousand of them.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * MIB),
    # Several streaming queries share one application: a large batch of one must not hold up the others.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A query that does not stop by itself must not keep the others, and the process, from ending.
    "spark.sql.streaming.stopTimeout": "15s",
    "spark.ui.showConsoleProgress": "false",
    # To say of every expression from which of our lines it comes, Spark asks the JVM several times for each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
ONE_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    # The default manager costs 35 ms for each of a micro-batch's two log commits on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # With checksums each file of a log is two, and Hadoop starts a process to set the permissions of each.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # A busy machine may take longer than the default 15 s until a new Python worker answers.
    "spark.python.authenticate.socketTimeout": "60s",
    # By TCP, what Java and a worker tell each other waits for an acknowledgement now and then: 40 ms each time.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}
# One collecting thread: on few cores and a small heap more of them take more than they give.
ONE_MACHINE_JAVA = ("-XX:+UseSerialGC",)
# Streams on one machine do a little again and again: to compile for speed takes longer than it ever saves.
STREAMING_JAVA = ("-XX:TieredStopAtLevel=1",)
# The JVM's own warnings would go to stdout, which belongs to the command.
EVERYWHERE_JAVA = ("-Xlog:disable", "-Xlog:all=error:stderr")


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Spark, and what it is told; `conf` goes before the defaults."""

    app_name: str = "penstock"
    master: str = "local[*]"
    conf: Mapping[str, str] = {}
    ui: bool = False
    streams: bool = False
    """Whether it is for small batches all the time, not for a large one."""

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are this machine's one JVM."""
        return self.master.partition("[")[0] == "local"


@contextmanager
def spark_session(settings: SessionSettings) -> Iterator["SparkSession"]:
    """A session for as long as the block runs."""
    spark = open_session(settings)
    try:
        yield spark
    finally:
        close_session(spark)


def close_session(spark: "SparkSession") -> None:
    """Stop Spark, as far as it still runs."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # What ended the JVM was told already.
    with suppress(Py4JError, OSError):
        spark.stop()


def open_session(settings: SessionSettings) -> "SparkSession":
    """Start Spark, or connect to the cluster; SparkUnavailable says what to do if that fails."""
    java = require_spark()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with as_file(files("penstock.spark") / "log4j2.properties") as log_file:
        settled = configuration(settings, (f"-Dlog4j2.configurationFile={log_file.as_uri()}", *class_sharing(java)))
        # Spark takes the workers' Python from the environment alone.
        if python := settled.get(PYTHON):
            os.environ["PYSPARK_PYTHON"] = python
        archive = None if settings.is_local else packed()
        if archive is not None:
            tell_driver(archive)
        conf = SparkConf().setAll(list(settled.items()))
        running = SparkContext._gateway
        try:
            context = SparkContext(conf=conf, gateway=running or start_jvm(conf))
        except (Py4JError, PySparkException) as error:
            raise SparkUnavailable(f"Spark does not start on {settings.master}: {reason_of(error)}") from error
    keep_loss_quiet(context)
    if archive is not None:
        context.addPyFile(str(archive))
    spark = SparkSession(context)
    if settings.streams and settings.is_local:
        start_workers(spark)
    return spark


def configuration(settings: SessionSettings, java_options: Sequence[str] = ()) -> dict[str, str]:
    """All that Spark is told, the caller's own settings last."""
    conf = {
        "spark.app.name": settings.app_name,
        "spark.master": settings.master,
        "spark.ui.enabled": str(settings.ui).lower(),
        **EVERYWHERE,
    }
    options = [*EVERYWHERE_JAVA, *java_options]
    if settings.is_local:
        conf |= {**ONE_MACHINE, PYTHON: os.environ.get("PYSPARK_PYTHON", sys.executable)}
        options += [*ONE_MACHINE_JAVA, *(STREAMING_JAVA if settings.streams else ())]
    given = dict(settings.conf)
    # Java lets the last of several options hold, so the caller's go after ours instead of in their place.
    options.append(given.pop(JAVA_OPTIONS, ""))
    return {**conf, JAVA_OPTIONS: " ".join(options).strip(), **given}

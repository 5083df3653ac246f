"""The Spark session: all settings in one place, tuned for one machine and left to the cluster elsewhere."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.limits import MIB
from penstock.spark.errors import InvalidPipelineOption, SparkUnavailable, reason_of
from penstock.spark.jvm import shared_class_options, silence_accumulator_errors, start_jvm
from penstock.spark.package_archive import add_to_python_path, package_archive
from penstock.spark.requirements import require_spark
from penstock.spark.workers import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = "spark.pyspark.python"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Dispatch has rows of megabytes, of which ten thousand must not be collected in memory.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * MIB),
    # Several streaming queries share one application: a large batch of one must not delay the others.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A query that hangs must not prevent the others, and the process, from ending.
    "spark.sql.streaming.stopTimeout": "15s",
    "spark.ui.showConsoleProgress": "false",
    # Recording the source line of every expression costs several calls to the JVM each.
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
    # Checksums double the files of a log, and Hadoop starts a process to set the permissions of each.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # On a busy machine, a new Python worker may need longer than the default 15 s to answer.
    "spark.python.authenticate.socketTimeout": "60s",
    # Over TCP, messages between Java and a worker sometimes wait 40 ms for an acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}

# One GC thread: on few cores and a small heap, more threads cost more than they gain. The heap starts small, not with a
# share of the machine's memory, and shrinks again.
ONE_MACHINE_JAVA = ("-XX:+UseSerialGC", "-Xms96m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
# Small batches on one machine never repay the cost of optimizing compilation.
STREAMING_JAVA = ("-XX:TieredStopAtLevel=1",)
# The JVM would write its warnings to stdout, which belongs to the command.
EVERYWHERE_JAVA = ("-Xlog:disable", "-Xlog:all=error:stderr")


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Spark to use, and its settings; `conf` overrides the defaults."""

    app_name: str = "penstock"
    master: str = "local[*]"
    conf: Mapping[str, str] = {}
    ui: bool = False
    streams: bool = False
    """Whether it runs many small batches rather than a large one."""

    @property
    def is_local(self) -> bool:
        """Return whether driver and executors run in one local JVM."""
        return self.master.partition("[")[0] == "local"


@contextmanager
def spark_session(settings: SessionSettings) -> Iterator["SparkSession"]:
    """Open a session for as long as the block runs."""
    spark = open_session(settings)
    try:
        yield spark
    finally:
        close_session(spark)


def close_session(spark: "SparkSession") -> None:
    """Stop Spark if it still runs."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # The reason why the JVM ended was reported already.
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
        settled = configuration(
            settings, (f"-Dlog4j2.configurationFile={log_file.as_uri()}", *shared_class_options(java))
        )
        # Spark reads the workers' Python only from the environment.
        if python := settled.get(PYTHON):
            os.environ["PYSPARK_PYTHON"] = python
        archive = None if settings.is_local else package_archive()
        if archive is not None:
            add_to_python_path(archive)
        conf = SparkConf().setAll(list(settled.items()))
        running = SparkContext._gateway
        try:
            context = SparkContext(conf=conf, gateway=running or start_jvm(conf))
        except (Py4JError, PySparkException) as error:
            raise SparkUnavailable(f"Spark does not start on {settings.master}: {reason_of(error)}") from error
    silence_accumulator_errors(context)
    if archive is not None:
        context.addPyFile(str(archive))
    return SparkSession(context)


_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION",
}


def require_file_system(spark: "SparkSession", url: str) -> None:
    """Raise InvalidPipelineOption, which names the package to add, if Spark cannot use a place for checkpoints."""
    from py4j.protocol import Py4JJavaError

    jvm = spark._jvm
    assert jvm is not None
    scheme = url.partition("://")[0] if "://" in url else "file"
    try:
        jvm.org.apache.hadoop.fs.Path(url).getFileSystem(spark._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        if scheme == "s3":
            raise InvalidPipelineOption(f"{url}: Hadoop calls this store s3a: write s3a://{url[5:]}") from error
        package = _PACKAGES.get(scheme)
        if package is None:
            raise InvalidPipelineOption(f"Spark cannot use {url}: {reason_of(error)}") from error
        named = package.format(hadoop=jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise InvalidPipelineOption(
            f"Spark has no package for {scheme}://, where {url} is: add --conf spark.jars.packages={named}, "
            "or put its jars into the directory of Spark's own"
        ) from error


def release_start_up_memory(spark: "SparkSession") -> None:
    """Collect the garbage of the start, after which the JVM returns most of its heap to the system."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()


def configuration(settings: SessionSettings, java_options: Sequence[str] = ()) -> dict[str, str]:
    """Return Spark's configuration, in which the caller's settings come last."""
    conf = {
        "spark.app.name": settings.app_name,
        "spark.master": settings.master,
        "spark.ui.enabled": str(settings.ui).lower(),
        **EVERYWHERE,
    }
    options = [*EVERYWHERE_JAVA, *java_options]
    if settings.is_local:
        conf |= {**ONE_MACHINE, PYTHON: worker_python(os.environ.get("PYSPARK_PYTHON", sys.executable))}
        options += [*ONE_MACHINE_JAVA, *(STREAMING_JAVA if settings.streams else ())]
    given = dict(settings.conf)
    # Java uses the last of repeated options, so the caller's are appended to ours.
    options.append(given.pop(JAVA_OPTIONS, ""))
    return {**conf, JAVA_OPTIONS: " ".join(options).strip(), **given}

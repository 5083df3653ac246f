"""A real Spark cluster on loopback: a standalone master and workers of the installed package, each its own process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from penstock.spark.errors import SparkUnavailable
from penstock.spark.jvm import shared_class_options
from penstock.spark.requirements import require_spark
from tests.rigs.penstock_process import descendants
from tests.services import unavailable

SPARK_CLASS = Path(pyspark.__path__[0], "bin", "spark-class")
START_S = 240
STOP_S = 120
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"(Successfully registered with master)")


class Daemon:
    """A master or a worker."""

    def __init__(self, directory: Path, name: str, arguments: Sequence[str]) -> None:
        self._log = directory / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
        }
        # Executors must not find this checkout by the way.
        environment.pop("PYTHONPATH", None)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [str(SPARK_CLASS), *arguments], stdout=log, stderr=log, env=environment, cwd=directory
            )

    def await_line(self, pattern: re.Pattern[str]) -> str:
        """Wait until it has said so; what it said."""
        deadline_s = time.monotonic() + START_S
        while (found := pattern.search(self._log.read_text())) is None:
            if time.monotonic() > deadline_s or self.process.poll() is not None:
                unavailable("Spark's cluster", self._log.read_text()[-2000:])
            time.sleep(0.1)
        return found[1]

    def kill(self) -> None:
        """End it and all it started, as a power cut would."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(STOP_S)


class SparkCluster:
    """A master and two workers of one core each, whose executors have the packages penstock needs, but not penstock."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self._python = _python_without_penstock(directory)
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._master = Daemon(directory, "master", ("org.apache.spark.deploy.master.Master", *arguments))
        self._workers: list[Daemon] = []
        self._count = workers
        self.url = ""

    def start(self) -> None:
        """Wait until all of it works together."""
        self.url = self._master.await_line(_MASTER_AT)
        self._workers = [self._worker(index) for index in range(self._count)]
        for worker in self._workers:
            worker.await_line(_REGISTERED)

    def kill_worker(self, index: int) -> None:
        """Kill a worker, its executors and their Python, all at once."""
        self._workers[index].kill()

    def restart_worker(self, index: int) -> None:
        """Start it again; an application that waits for cores gets an executor there."""
        self._workers[index] = self._worker(index)
        self._workers[index].await_line(_REGISTERED)

    def stop(self) -> None:
        """Leave nothing behind."""
        for daemon in (*self._workers, self._master):
            daemon.kill()

    @property
    def conf(self) -> dict[str, str]:
        """What a driver on this machine tells Spark, beside the master."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.pyspark.python": str(self._python),
            "spark.sql.shuffle.partitions": "2",
        }

    @property
    def options(self) -> list[str]:
        """The same for the command line: --master and --conf."""
        conf = [word for key, value in self.conf.items() for word in ("--conf", f"{key}={value}")]
        return ["--master", self.url, *conf]

    def _worker(self, index: int) -> Daemon:
        work = self.directory / f"work-{index}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        name = "org.apache.spark.deploy.worker.Worker"
        return Daemon(self.directory, f"worker-{index}", (name, *size, *where, self.url))


@contextmanager
def running_cluster(directory: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster for as long as the block runs."""
    try:
        require_spark()
    except SparkUnavailable as error:
        unavailable("Spark", error.message)
    cluster = SparkCluster(directory, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def java_options() -> str:
    """Small and quick, with the archive of Spark's classes if this machine has one."""
    return " ".join(("-XX:+UseSerialGC", "-Xlog:disable", *shared_class_options(require_spark())))


def _python_without_penstock(directory: Path) -> Path:
    """Python with the installed packages on its path, without the .pth files by which a checkout is installed."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    script = directory / "executor-python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script

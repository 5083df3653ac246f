"""Spark's JVM as a child process, whose output goes to Penstock's log and whose class archive speeds up the start."""

import logging
import os
import re
import sys
from collections import deque
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkUnavailable
from penstock.spark.requirements import Java, spark_version
from penstock.spark.workers import cache_directory

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

log = logging.getLogger("penstock.spark")
# The format of log4j2.properties; other lines come from the JVM itself or from Python workers.
_LOGGED = re.compile(r"(WARN|ERROR|FATAL) (\S+: .*)")
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR}
_IGNORED = ("WARNING: Using incubator modules",)
_KEPT_LINES = 20
_LAST_LINES_S = 5.0


def start_jvm(conf: "SparkConf") -> Any:  # py4j is not typed
    """Start the JVM and connect to it; SparkUnavailable, with its output, if it ends instead."""
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    # py4j logs every call, and errors that also reach us as exceptions; partly through the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)
    reader, writer = os.pipe()
    relay = LogRelay(reader)
    try:
        # In its own session, so that Ctrl-C reaches only Penstock, which lets running batches finish.
        options = {"stderr": writer, "start_new_session": True}
        return launch_gateway(conf, popen_kwargs=options)  # type: ignore[no-untyped-call]
    except PySparkException as error:
        os.close(writer)
        writer = -1
        raise SparkUnavailable(f"Spark's JVM does not start: {relay.reason() or error}") from error
    finally:
        if writer != -1:
            os.close(writer)


def silence_accumulator_errors(context: "SparkContext") -> None:
    """Log the loss of the JVM at debug level instead of a stack trace on stderr; others report it."""

    def handle_error(*_: object) -> None:
        log.debug("the connection for accumulators ended: %r", sys.exc_info()[1])

    context._accumulatorServer.handle_error = handle_error  # type: ignore[assignment, method-assign]


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


class LogRelay:
    """Writes what the JVM prints to stderr to the log."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._in_trace = False
        self._thread = Thread(target=self._run, name="penstock-spark-log", daemon=True)
        self._thread.start()

    def reason(self) -> str:
        """Return why the JVM ended, as far as its output says."""
        self._thread.join(_LAST_LINES_S)
        errors = [line for line in self._last_lines if re.search(r"(?i)exception|error", line)]
        return errors[0] if errors else " ".join(self._last_lines)

    def _run(self) -> None:
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if (text := line.rstrip()) and not text.startswith(_IGNORED):
                    self._last_lines.append(text)
                    self.log_line(text)

    def log_line(self, text: str) -> None:
        """Log one line at its own level. A worker's stack trace is debug output: it also arrives as an exception."""
        in_trace = self._in_trace or text.startswith("Traceback ")
        if logged := _LOGGED.match(text):
            log.log(_LEVELS[logged[1]], "%s", logged[2])
        else:
            log.log(logging.DEBUG if in_trace else logging.INFO, "%s", text)
        self._in_trace = in_trace and text.startswith((" ", "Traceback "))


def archive_path(java: Java) -> Path:
    """Return the path of the class archive for this Java and this Spark, whether it exists or not."""
    spec = find_spec("pyspark")
    place = sha256(f"{java.command}|{spec.origin if spec else ''}".encode()).hexdigest()[:8]
    return cache_directory() / f"spark-{spark_version()}-java-{java.version}-{place}.jsa"


def shared_class_options(java: Java) -> tuple[str, ...]:
    """Return the JVM options that use the class archive, if it exists.

    The JVM checks an archive against its version and every jar, and ignores one that does not match.
    """
    try:
        archive = archive_path(java)
        return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()
    except (OSError, RuntimeError):  # the user has no home directory
        return ()


def archive_option(archive: Path) -> str:
    """Return the JVM option that writes a class archive when the JVM ends."""
    return f"-XX:ArchiveClassesAtExit={archive}"

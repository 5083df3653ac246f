"""Spark's JVM as a child process: out of the terminal's reach, and what it says is part of penstock's log.

Spark's classes as the JVM wants them, kept in the user's cache: with them Spark starts faster.

The JVM checks an archive against its own version and every jar, and does without one that does not fit.
"""

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

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

log = logging.getLogger("penstock.spark")

# As log4j2.properties writes it; anything else is the JVM's own word, or a Python worker's.
_LOGGED = re.compile(r"(WARN|ERROR|FATAL) (\S+: .*)")
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR}
_OF_NO_USE = ("WARNING: Using incubator modules",)
_KEPT_LINES = 20
_LAST_WORDS_S = 5.0


def start_jvm(conf: "SparkConf") -> Any:  # py4j is not typed
    """Start the JVM and connect to it; SparkUnavailable, with what it said, if it ends instead."""
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    # The bridge tells of every call, and of errors that reach us as exceptions; in part by the root's logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_the_bridge)
    reader, writer = os.pipe()
    relay = Relay(reader)
    try:
        # A session of its own: Ctrl-C is for penstock alone, which lets the running batches finish.
        options = {"stderr": writer, "start_new_session": True}
        return launch_gateway(conf, popen_kwargs=options)  # type: ignore[no-untyped-call]
    except PySparkException as error:
        os.close(writer)
        writer = -1
        raise SparkUnavailable(f"Spark's JVM does not start: {relay.reason() or error}") from error
    finally:
        if writer != -1:
            os.close(writer)


def keep_loss_quiet(context: "SparkContext") -> None:
    """Let Spark's accumulators take the loss of the JVM without a stack trace on stderr; others tell of it."""

    def handle_error(*_: object) -> None:
        log.debug("the connection for accumulators ended: %r", sys.exc_info()[1])

    context._accumulatorServer.handle_error = handle_error  # type: ignore[assignment, method-assign]


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


class Relay:
    """Takes what the JVM writes to its stderr into the log."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._in_trace = False
        self._thread = Thread(target=self._run, name="penstock-spark-log", daemon=True)
        self._thread.start()

    def reason(self) -> str:
        """Why the JVM ended, as far as it told."""
        self._thread.join(_LAST_WORDS_S)
        told = [line for line in self._last_lines if re.search(r"(?i)exception|error", line)]
        return told[0] if told else " ".join(self._last_lines)

    def _run(self) -> None:
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if (text := line.rstrip()) and not text.startswith(_OF_NO_USE):
                    self._last_lines.append(text)
                    self.tell(text)

    def tell(self, text: str) -> None:
        """Log one line at the level it was meant; a worker's stack trace reaches us as an exception too."""
        in_trace = self._in_trace or text.startswith("Traceback ")
        if logged := _LOGGED.match(text):
            log.log(_LEVELS[logged[1]], "%s", logged[2])
        else:
            log.log(logging.DEBUG if in_trace else logging.INFO, "%s", text)
        self._in_trace = in_trace and text.startswith((" ", "Traceback "))


def archive_path(java: Java) -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    spec = find_spec("pyspark")
    place = sha256(f"{java.command}|{spec.origin if spec else ''}".encode()).hexdigest()[:8]
    return cache / "penstock" / f"spark-{spark_version()}-java-{java.version}-{place}.jsa"


def class_sharing(java: Java) -> tuple[str, ...]:
    """The JVM's options to use the archive, if there is one."""
    try:
        archive = archive_path(java)
        return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()
    except (OSError, RuntimeError):  # nobody's home
        return ()


def class_archiving(archive: Path) -> str:
    """The JVM's option to write an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive}"

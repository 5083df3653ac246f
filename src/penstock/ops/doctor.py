"""The checks of `penstock doctor`: one function each, which returns what it found and what to do."""

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from penstock.edge.disk_space import LEAST_FREE_BYTES, free_bytes
from penstock.http.auth import read_keys
from penstock.ops.config import Config, ConfigError, load
from penstock.ops.telemetry import mask_secrets, mask_whole_url
from penstock.queues.sqs.request import find_key
from penstock.spark.errors import SparkUnavailable
from penstock.spark.jvm import shared_class_options
from penstock.spark.requirements import LEAST_JAVA, find_java, spark_version

PYTHON_LEAST = (3, 11)
DISK_NEEDED_BYTES = LEAST_FREE_BYTES
DISK_WANTED_BYTES = 5 * 2**30

_ANSWER_S = 2.0


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Diagnosis:
    """What one check found, and what to do about it."""

    name: str
    status: Status
    detail: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """Return detail and remedy on one line."""
        return f"{self.detail}; {self.remedy}" if self.remedy else self.detail


def examine(config_file: Path | None) -> list[Diagnosis]:
    """Run all checks; if the settings are invalid, the other checks use the defaults."""
    try:
        config, findings = load(config_file), [Diagnosis("configuration", Status.OK, "valid")]
    except ConfigError as error:
        config = Config()
        remedy = "correct it; the checks below use the defaults"
        findings = [Diagnosis("configuration", Status.FAILED, str(problem), remedy) for problem in error.problems]
    return [*findings, *_examine_machine(config)]


def _examine_machine(config: Config) -> Iterator[Diagnosis]:
    yield python_version()
    yield java()
    yield spark()
    yield data_directory(config.data.dir)
    yield disk_space(config.data.dir)
    runs = is_ours(config.http.port)
    yield port_free("HTTP", config.http.port, "set PENSTOCK_HTTP__PORT", beside=runs)
    yield port_free("SQS", config.ports.sqs, "set PENSTOCK_PORTS__SQS", beside=runs)
    yield port_free("Pub/Sub", config.ports.pubsub, "set PENSTOCK_PORTS__PUBSUB", beside=runs)
    yield port_free("the router", config.ports.router, "set PENSTOCK_PORTS__ROUTER", beside=runs)
    yield port_free("the pipeline", config.ports.pipeline, "set PENSTOCK_PORTS__PIPELINE", beside=runs)
    yield database(config.data.database)
    yield api_keys(config)
    yield aws_credentials(config.scheduler.queue)


def python_version(found: tuple[int, ...] = sys.version_info[:3]) -> Diagnosis:
    """Check that this Python is new enough."""
    text, least = ".".join(map(str, found)), ".".join(map(str, PYTHON_LEAST))
    if found >= PYTHON_LEAST:
        return Diagnosis("Python", Status.OK, text)
    return Diagnosis("Python", Status.FAILED, text, f"install Python {least} or newer")


def java() -> Diagnosis:
    """Check for a Java that Spark can use."""
    remedy = f"the inline engine will be used; for Spark install Java {LEAST_JAVA} or newer and set JAVA_HOME"
    try:
        found = find_java()
    except SparkUnavailable as error:
        return Diagnosis("Java", Status.WARNING, error.message, remedy)
    return Diagnosis("Java", Status.OK, f"{found.version} ({found.command})")


def spark() -> Diagnosis:
    """Check for Spark, its Python packages, and the archive that makes it start quickly."""
    remedy = "the inline engine will be used; for Spark run `pip install 'penstock-events[spark]'`"
    try:
        version = spark_version()
    except SparkUnavailable as error:
        return Diagnosis("Spark", Status.WARNING, error.message.partition(";")[0], remedy)
    with suppress(SparkUnavailable):
        if not shared_class_options(find_java()):
            return Diagnosis("Spark", Status.OK, version, "`penstock pipeline warm-up` makes it start faster")
    return Diagnosis("Spark", Status.OK, version)


def data_directory(path: Path) -> Diagnosis:
    """Check that messages can be stored there."""
    remedy = "give this user the right to write there, or set PENSTOCK_DATA__DIR to another directory"
    place = _nearest_existing(path)
    if not place.is_dir():
        return Diagnosis("data directory", Status.FAILED, f"{place} is not a directory", remedy)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = error.strerror or error
        return Diagnosis("data directory", Status.FAILED, f"{place} cannot be written ({reason})", remedy)
    return Diagnosis(
        "data directory",
        Status.OK,
        f"{path} is writable" if place == path.absolute() else f"{path} can be created",
    )


def disk_space(path: Path) -> Diagnosis:
    """Check that the disk has room for messages."""
    try:
        found_bytes = free_bytes(_nearest_existing(path))
    except OSError as error:
        reason = error.strerror or error
        return Diagnosis("disk space", Status.WARNING, f"cannot be read ({reason})", "check the disk by hand")
    status = Status.OK
    if found_bytes < DISK_WANTED_BYTES:
        status = Status.FAILED if found_bytes < DISK_NEEDED_BYTES else Status.WARNING
    remedy = "" if status is Status.OK else "free some, or set PENSTOCK_DATA__DIR to a larger disk"
    return Diagnosis("disk space", status, f"{found_bytes / 2**30:.1f} GiB free", remedy)


def port_free(part: str, port: int, how_to_change: str, *, beside: bool = False) -> Diagnosis:
    """Check that a service could listen on the port, or is a part of a Penstock that runs here (`beside`)."""
    name = f"port {port}"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if beside or is_ours(port):
                return Diagnosis(name, Status.OK, f"{part} of a running Penstock; `penstock status` says how it is")
            detail = f"not free for {part} ({error.strerror or error})"
            return Diagnosis(name, Status.FAILED, detail, f"stop the program that listens there, or {how_to_change}")
    return Diagnosis(name, Status.OK, f"free for {part}")


def is_ours(port: int) -> bool:
    """Return whether a part of Penstock answers on a port of this machine."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/health/live", timeout=_ANSWER_S) as answer:
            return bool(answer.read(100) == b'{"status":"live"}')
    except (OSError, HTTPException):
        return False


def database(url: str) -> Diagnosis:
    """Check that the configured database answers."""
    if not url:
        return Diagnosis("database", Status.OK, "embedded SQLite in the data directory")
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        reason = " ".join(mask_secrets(str(error)).split())
        remedy = "start it, or correct data.database (PENSTOCK_DATA__DATABASE)"
        return Diagnosis("database", Status.FAILED, f"{mask_whole_url(url)} does not answer ({reason})", remedy)
    return Diagnosis(
        "database", Status.OK, f"PostgreSQL {version // 10_000}.{version % 10_000} at {mask_whole_url(url)}"
    )


def api_keys(config: Config) -> Diagnosis:
    """Check that the API requires credentials if other machines can reach it."""
    name, host = "API keys", config.http.host
    try:
        keys = () if config.api.key_file is None else read_keys(config.api.key_file)
    except ConfigError as error:
        return Diagnosis(
            name, Status.FAILED, str(error.problems[0]), "correct it, or create another: `penstock keys create`"
        )
    if config.api.token or config.api.keys:
        return Diagnosis(name, Status.OK, f"{len(keys)} in api.keys, {'a' if config.api.token else 'no'} token")
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return Diagnosis(name, Status.OK, "none: the API answers this machine only")
    remedy = (
        "create one with `penstock keys create` and set PENSTOCK_API__KEYS, or set PENSTOCK_HTTP__HOST to 127.0.0.1"
    )
    return Diagnosis(name, Status.FAILED, f"none, and the API would listen on {host}", remedy)


def aws_credentials(queue: str) -> Diagnosis:
    """Check for an access key, if the queue is on AWS."""
    name = "AWS credentials"
    if ".amazonaws.com" not in queue:
        return Diagnosis(name, Status.OK, "not needed: scheduler.queue is not AWS's")
    if find_key() is None:
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        return Diagnosis(name, Status.FAILED, f"none for {mask_whole_url(queue)}", remedy)
    return Diagnosis(name, Status.OK, "found")


def _nearest_existing(path: Path) -> Path:
    absolute = path.absolute()
    return next((place for place in (absolute, *absolute.parents) if place.exists()), absolute)

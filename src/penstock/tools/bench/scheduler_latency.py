"""Measures the latency from the creation of a job to the POST at its subscriber, through all processes."""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from penstock.domain.job import NewJob
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.store import JobRepository
from penstock.events.store.postgres import postgres_repository
from penstock.tools.bench.scheduler_backlog import opened
from penstock.tools.bench.servers import server_process, sqs_queue

_JOBS = 200
_WARM_UP = 20
# Longer than the router's pause between polls after a partial batch, so that the system is unloaded.
_BETWEEN_S = 0.15
_ENVIRONMENT = {
    "PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8",
    "PENSTOCK_JOBS__AUTH_SECRET": "a secret of the benchmark",
    "PENSTOCK_LOG__LEVEL": "warning",
}
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Latencies(msgspec.Struct, frozen=True):
    """Latencies in milliseconds."""

    p50_ms: float
    p99_ms: float


async def latencies(database_url: str, directory: str) -> Latencies:
    """Measure the chain of PostgreSQL, scheduler, SQS server, router, process endpoint and subscriber."""
    with _chain(database_url, directory):
        async with opened(postgres_repository(database_url)) as jobs, _subscriber() as (target, arrived):
            for _ in range(_WARM_UP):
                await _one(jobs, target, arrived)
            taken_ms = [await _one(jobs, target, arrived) for _ in range(_JOBS)]
    return Latencies(statistics.median(taken_ms), statistics.quantiles(taken_ms, n=100)[98])


async def _one(jobs: JobRepository, target: str, arrived: asyncio.Event) -> float:
    await asyncio.sleep(_BETWEEN_S)
    arrived.clear()
    now_ms = SystemClock().now_ms()
    job = NewJob(id=process_ids().next_id(now_ms), target=target, created_at_ms=now_ms, payload=b'{"order":1}')
    started_s = time.perf_counter()
    await jobs.create_jobs([job], now_ms)
    async with asyncio.timeout(30):
        await arrived.wait()
    return (time.perf_counter() - started_s) * 1000


@contextmanager
def _chain(database_url: str, directory: str) -> Iterator[None]:
    os.environ.update(_ENVIRONMENT)
    database = ("--database", database_url, "--port", "0")
    with ExitStack() as stack:
        queue_url = stack.enter_context(sqs_queue(f"{directory}/sqs", "latency.fifo"))
        api_url = stack.enter_context(server_process("-m", "penstock", "serve", "api", *database))
        endpoint = f"{api_url}/api/dispatch/process"
        route = {
            "processingPools": [{"code": "DISPATCH-POOL", "concurrency": 10}],
            "queues": [{"queueName": "latency", "queueUri": queue_url}],
        }
        configuration = Path(directory) / "router.json"
        configuration.write_bytes(msgspec.json.encode(route))
        router = ("serve", "router", "--config", str(configuration), "--port", "0")
        stack.enter_context(server_process("-m", "penstock", *router))
        scheduler = ("serve", "scheduler", *database, "--queue", queue_url, "--endpoint", endpoint)
        stack.enter_context(server_process("-m", "penstock", *scheduler))
        yield


@asynccontextmanager
async def _subscriber() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Run a receiver that answers every request; provide its URL, and an event that each request sets."""
    arrived = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                arrived.set()
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(length)
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", arrived
    finally:
        server.close()

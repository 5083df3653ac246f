"""Measures the SQS server, durable on SQLite with fsync, with a minimal client in its own process."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from penstock.tools.bench.servers import create_queue, port_of, server_process
from penstock.tools.bench.sqs_load import SqsLoadOutcome, SqsLoadRequest

_FIFO = {"FifoQueue": "true"}
_GROUPS = 1_000
_TURNS = 160
"""Turns per round: many short ones show a difference of a few per cent although the machine's speed varies by more."""


class SqsFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench sqs`."""

    send_per_s: float
    """SendMessage; like the next two, with 32 or 64 connections, whichever is better."""
    batch_msgs_per_s: float
    """Messages by SendMessageBatch of 10."""
    receive_delete_msgs_per_s: float
    """Messages by ReceiveMessage of 10 and DeleteMessageBatch."""
    fifo_ratio: float
    """The lowest of the three ratios of a FIFO queue with 1,000 groups to a standard queue, measured alternately."""
    partitions_send_ratio: float
    """SendMessage with 8 partitions over the same with 1."""
    partitions_receive_ratio: float
    """Receive and delete with 32 partitions over the same with 1."""
    throttle_ratio: float
    """SendMessage with a throttle that never applies over the same without."""
    wake_p99_ms: float
    """From a send to a waiting receiver, at 1,000 messages per second."""
    deep_receive_ratio: float
    """Receive and delete with 1,000,000 waiting messages over the same with few."""
    noop_req_per_s: float
    """A no-op handler on the same server stack."""
    send_to_noop_ratio: float
    """`send_per_s` over `noop_req_per_s`."""


def bench_sqs(rounds: int, deep: int, report: Callable[[str], None]) -> SqsFigures:
    """Measure everything; `report` is called with each step."""
    with load_client() as client:
        report("a no-op handler on the same server stack")
        with server_process("-m", "penstock.tools.bench.noop_server") as url:
            idle = SqsLoadRequest(work="noop", port=port_of(url), operations=30_000)
            noop = statistics.median(client.rate(idle) for _ in range(rounds))
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            serve = ("-m", "penstock", "--log-level", "warning", "serve", "sqs", "--port", "0", "--data", directory)
            with server_process(*serve) as url:
                return _measure(client, port_of(url), rounds, deep, noop, report)


class LoadClient:
    """The client process, which runs during the whole benchmark, so that turns can be short."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, request: SqsLoadRequest) -> SqsLoadOutcome:
        """Run one request."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode(request) + b"\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError("the load failed; its process printed the reason above")
        return msgspec.json.decode(answer, type=SqsLoadOutcome)

    def rate(self, request: SqsLoadRequest) -> float:
        """Return messages per second."""
        outcome = self.run(request)
        return outcome.messages / outcome.seconds

    def side_by_side(self, rounds: int, plain: SqsLoadRequest, other: SqsLoadRequest) -> tuple[float, float]:
        """Return the rate of `plain` with the better number of connections, and the ratio of `other` to it."""
        rates, ratios = [], []
        for connections in (32, 64):
            turns = [
                [self.rate(msgspec.structs.replace(request, connections=connections)) for request in (plain, other)]
                for _ in range(rounds)
            ]
            rates.append(statistics.median(rate for rate, _ in turns))
            ratios += [other_rate / rate for rate, other_rate in turns]
        return max(rates), statistics.median(ratios)

    def alternate_ratio(
        self, turns: int, plain: SqsLoadRequest, other: SqsLoadRequest, before: SqsLoadRequest | None = None
    ) -> float:
        """Return the ratio of `other` to `plain`, measured alternately, as the machine's speed changes."""
        ratios = []
        for turn in range(turns):
            if before is not None:
                self.run(before)
            first_rate, second_rate = [
                self.rate(request) for request in ((plain, other) if turn % 2 else (other, plain))
            ]
            ratios.append(second_rate / first_rate if turn % 2 else first_rate / second_rate)
        return statistics.median(ratios)


@contextmanager
def load_client() -> Iterator[LoadClient]:
    """Start the client process, and end it afterwards."""
    command = [sys.executable, "-m", "penstock.tools.bench.sqs_load"]
    # In a group of its own, so that Ctrl-C is answered by the benchmark alone.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            yield LoadClient(process)
        finally:
            process.terminate()


def _measure(
    client: LoadClient, port: int, rounds: int, deep: int, noop: float, report: Callable[[str], None]
) -> SqsFigures:
    def queue(name: str, **attributes: str) -> str:
        return create_queue(f"http://127.0.0.1:{port}", name, attributes)

    report(f"send, batch, receive and delete: a standard queue and a FIFO queue with {_GROUPS:,} groups, alternately")
    standard, fifo = _basic_rates(client, port, queue("standard"), queue("ordered.fifo", **_FIFO), rounds)
    turns = rounds * _TURNS
    report("8 and 32 partitions")
    split = {**_FIFO, "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    one, some, many = (queue(f"split-{count}.fifo", **split, PartitionCount=str(count)) for count in (1, 8, 32))
    unsplit = SqsLoadRequest(work="send", port=port, queue_url=one, operations=500, groups=_GROUPS)
    send_ratio = client.alternate_ratio(turns // 4, unsplit, msgspec.structs.replace(unsplit, queue_url=some))
    for url in (one, many):
        client.run(
            SqsLoadRequest(work="send_batch", port=port, queue_url=url, operations=120 * turns // 4, groups=_GROUPS)
        )
    partitions = client.alternate_ratio(turns // 4, _receives(port, one, 100), _receives(port, many, 100))
    report("a throttle that never applies")
    throttle = {"ThrottleSendCapacity": "100000", "ThrottleSendRefillPerSecond": "100000"}
    sends = SqsLoadRequest(work="send", port=port, queue_url=queue("plain"), operations=500)
    throttled = msgspec.structs.replace(sends, queue_url=queue("throttled", **throttle))
    ratio = client.alternate_ratio(turns, sends, throttled)
    report("from a send to a waiting receiver at 1,000 messages per second")
    wake = client.run(SqsLoadRequest(work="wake", port=port, queue_url=queue("wake"), operations=5_000, connections=8))
    report(f"{deep:,} waiting messages")
    few, many = queue("shallow"), queue("deep")
    client.run(SqsLoadRequest(work="send_batch", port=port, queue_url=many, operations=deep // 10))
    refill = SqsLoadRequest(work="send_batch", port=port, queue_url=few, operations=2_000)
    depth = client.alternate_ratio(rounds, _receives(port, few, 2_000), _receives(port, many, 2_000), refill)
    return SqsFigures(
        send_per_s=standard[0],
        batch_msgs_per_s=standard[1],
        receive_delete_msgs_per_s=standard[2],
        fifo_ratio=min(fifo),
        partitions_send_ratio=send_ratio,
        partitions_receive_ratio=partitions,
        throttle_ratio=ratio,
        wake_p99_ms=statistics.quantiles(wake.latencies_ms, n=100)[98],
        deep_receive_ratio=depth,
        noop_req_per_s=noop,
        send_to_noop_ratio=standard[0] / noop,
    )


def _basic_rates(
    client: LoadClient, port: int, standard_url: str, fifo_url: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Return the three rates of the standard queue, and the ratio of the FIFO queue to each."""
    rates, ratios = [], []
    for work, operations in (("send", 20_000), ("send_batch", 8_000), ("receive_delete", 4_000)):
        standard = SqsLoadRequest(work=work, port=port, queue_url=standard_url, operations=operations)
        fifo = msgspec.structs.replace(standard, queue_url=fifo_url, groups=_GROUPS)
        rate, ratio = client.side_by_side(rounds, standard, fifo)
        rates.append(rate)
        ratios.append(ratio)
    return rates, ratios


def _receives(port: int, url: str, operations: int) -> SqsLoadRequest:
    return SqsLoadRequest(work="receive_delete", port=port, queue_url=url, operations=operations)

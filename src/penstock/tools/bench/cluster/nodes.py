"""The nodes of a benchmark, each in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import msgspec

from penstock.client.types import ClusterView
from penstock.edge.clock import SystemClock
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint
from penstock.tools.bench.end_to_end.processor_time import usage
from penstock.tools.bench.servers import listening_address, port_of

_COMMAND = (sys.executable, "-m", "penstock", "--log-level", "error", "serve", "sqs", "--port", "0")
# One queue is measured, so that what is passed on and what is not is known.
_ONE_SHARD = {"PENSTOCK_CLUSTER__SHARDS": "1"}
_PATIENCE_S = 30.0


class BenchNode:
    """One node."""

    def __init__(self, name: str, database: str, options: Sequence[str], settings: Mapping[str, str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [*_COMMAND, "--database", database, "--node", name, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ONE_SHARD, **settings},
            # So that Ctrl-C is answered by the benchmark alone.
            process_group=0,
        )
        self.url = ""

    def wait(self) -> None:
        """Wait until it listens."""
        assert self.process.stdout is not None
        self.url = listening_address(iter(self.process.stdout))
        self.client = BlockingSqsClient(SqsEndpoint.parse(self.url), SystemClock())

    @property
    def port(self) -> int:
        """Where it listens."""
        return port_of(self.url)

    def owner(self) -> str | None:
        """Return the name of the node that owns the queues, as this one sees it."""
        with urlopen(f"{self.url}/cluster", timeout=_PATIENCE_S) as answer:
            view = msgspec.json.decode(answer.read(), type=ClusterView)
        return next((shard.owner for shard in view.shards if shard.part == "sqs"), None)

    def end(self, *, kill: bool) -> None:
        """End the process."""
        (self.process.kill if kill else self.process.terminate)()

    def close(self) -> None:
        """End the process if it runs, and wait for it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def bench_nodes(
    count: int, database: str, options: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> Iterator[list[BenchNode]]:
    """Start nodes; the first one owns the queues."""
    with ExitStack() as stack:
        nodes: list[BenchNode] = []
        for number in range(count):
            nodes.append(BenchNode(f"node-{number}", database, options, settings or {}))
            stack.callback(nodes[-1].close)
            nodes[-1].wait()
            wait_until(lambda: nodes[0].owner() == "node-0")
        yield nodes


def cpu_s(nodes: Sequence[BenchNode]) -> float:
    """Return the processor time that nodes have used."""
    return sum(usage({node.process.pid: "node" for node in nodes}).cpu_s.values())


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    until_s = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError(f"the nodes did not reach an expected state within {_PATIENCE_S:.0f} s")
        time.sleep(0.01)

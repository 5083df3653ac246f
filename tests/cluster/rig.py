"""Nodes in processes of their own on one database."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import Answer, SqsServer

TTL_S = 3


class ClusterNode(SqsServer):
    """`penstock serve sqs --node NAME`."""

    def __init__(self, directory: Path, name: str, database: str, *options: str) -> None:
        self.name = name
        super().__init__(
            directory / name,
            "--database",
            database,
            "--node",
            name,
            *options,
            environment={"PENSTOCK_CLUSTER__TTL_S": str(TTL_S)},
        )

    def cluster(self) -> Any:
        """How this node sees the cluster."""
        return self.http("GET", "/cluster").json

    def owner(self) -> str | None:
        """The name of the node that owns the queues, as this one sees it."""
        (shard,) = self.cluster()["shards"]
        return shard["owner"]  # type: ignore[no-any-return]

    def ask(self, action: str, **parameters: object) -> Answer:
        """One plain request of the JSON protocol."""
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        return self.http("POST", "/", json.dumps(parameters), headers)


@contextmanager
def nodes(directory: Path, databases: Sequence[str]) -> Iterator[list[ClusterNode]]:
    """Start one node per URL of the same database; the first owns the queues."""
    started: list[ClusterNode] = []
    try:
        for index, database in enumerate(databases):
            node = ClusterNode(directory, f"node-{index}", database)
            started.append(node)
            node.start()
            wait_until(lambda: started[0].owner() is not None)
        wait_until(lambda: all(len(node.cluster()["nodes"]) == len(started) for node in started))
        yield started
    finally:
        for node in started:
            if node.process is not None:
                node.kill()

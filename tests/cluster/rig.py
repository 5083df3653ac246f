"""Nodes in processes of their own on one database."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rigs.penstock_process import PenstockProcess, wait_until
from tests.services.sqs_server import Answer, SqsServer


class ClusterNode(SqsServer):
    """`penstock serve sqs --node NAME`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        database: str,
        *options: str,
        shards: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        super().__init__(
            directory / name,
            "--database",
            database,
            "--node",
            name,
            *options,
            environment={"PENSTOCK_CLUSTER__SHARDS": str(shards), **(settings or {})},
        )

    def cluster(self) -> Any:
        """How this node sees the cluster."""
        return self.http("GET", "/cluster").json

    def owners(self) -> dict[str, str | None]:
        """The name of the node that owns each shard, as this one sees it."""
        return {shard["name"]: shard["owner"] for shard in self.cluster()["shards"]}

    def owner(self) -> str | None:
        """The name of the node that owns the only shard, as this one sees it."""
        (owner,) = self.owners().values()
        return owner

    def ask(self, action: str, **parameters: object) -> Answer:
        """One plain request of the JSON protocol."""
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        return self.http("POST", "/", json.dumps(parameters), headers)


@contextmanager
def started_pair(first: PenstockProcess, second: PenstockProcess, first_leads: Callable[[], bool]) -> Iterator[None]:
    """Start the second node once the first leads; kill what still runs at the end."""
    try:
        first.start()
        wait_until(first_leads)
        second.start()
        yield
    finally:
        for node in (first, second):
            if node.process is not None:
                node.kill()


@contextmanager
def nodes(
    directory: Path, databases: Sequence[str], *options: str, shards: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[list[ClusterNode]]:
    """Start one node per URL of the same database; the first owns the only shard."""
    started: list[ClusterNode] = []
    try:
        for index, database in enumerate(databases):
            node = ClusterNode(directory, f"node-{index}", database, *options, shards=shards, settings=settings)
            started.append(node)
            node.start()
            wait_until(lambda: None not in started[0].owners().values())
        wait_until(lambda: all(len(node.cluster()["nodes"]) == len(started) for node in started))
        yield started
    finally:
        for node in started:
            if node.process is not None:
                node.kill()

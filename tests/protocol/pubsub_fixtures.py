"""Pub/Sub servers of ours, started once for a session, and rigs of one test; a plugin of the modules that need it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.protocol.pubsub_rig import Rig
from tests.services.pubsub_server import Clients, PubsubServer, clients_of, running


@pytest.fixture(scope="session")
def memory_pubsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubsubServer]:
    """A server that keeps nothing."""
    with running(tmp_path_factory.mktemp("pubsub-memory"), "--memory") as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_pubsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubsubServer]:
    """A server on SQLite."""
    directory = tmp_path_factory.mktemp("pubsub-sqlite")
    with running(directory, "--data", str(directory / "data")) as server:
        yield server


@pytest.fixture(scope="session")
def memory_clients(memory_pubsub: PubsubServer) -> Iterator[Clients]:
    """Clients of the server that keeps nothing."""
    with clients_of(memory_pubsub) as clients:
        yield clients


@pytest.fixture(scope="session")
def sqlite_clients(sqlite_pubsub: PubsubServer) -> Iterator[Clients]:
    """Clients of the server on SQLite."""
    with clients_of(sqlite_pubsub) as clients:
        yield clients


SERVERS = pytest.mark.xdist_group("pubsub servers")


@pytest.fixture(params=[pytest.param("memory", marks=SERVERS), pytest.param("sqlite", marks=SERVERS)])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A rig on a server in memory and on one with SQLite."""
    with ExitStack() as clean_up:
        yield Rig(request.getfixturevalue(f"{request.param}_clients"), clean_up)


@pytest.fixture
def memory_rig(memory_clients: Clients) -> Iterator[Rig]:
    """A rig on a server in memory, for what the store has no part in."""
    with ExitStack() as clean_up:
        yield Rig(memory_clients, clean_up)


@pytest.fixture
def own_pubsub(tmp_path: Path) -> Iterator[PubsubServer]:
    """A durable server of this test alone, which it may stop and start."""
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        yield server


@pytest.fixture
def postgres_rig(tmp_path: Path, postgres_database: str) -> Iterator[Rig]:
    """A rig on a server with PostgreSQL."""
    with (
        running(tmp_path, "--database", postgres_database) as server,
        clients_of(server) as clients,
        ExitStack() as clean_up,
    ):
        yield Rig(clients, clean_up)

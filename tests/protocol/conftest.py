"""Servers of ours, started once for a session, and queues of one test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.services.sqs_server import SqsServer, credentials_file, running

MakeQueue = Callable[..., str]
Call = Callable[[], object]


@pytest.fixture(scope="session")
def memory_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """A server that keeps nothing; everyone is admin."""
    with running(tmp_path_factory.mktemp("sqs-memory"), "--memory") as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """A server on SQLite."""
    directory = tmp_path_factory.mktemp("sqs-sqlite")
    with running(directory, "--data", str(directory / "data")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_sqs(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[SqsServer]:
    """A server on PostgreSQL; its database goes with the session's PostgreSQL."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create database sqs_of_the_session")
    database = urlsplit(postgres_url)._replace(path="/sqs_of_the_session").geturl()
    with running(tmp_path_factory.mktemp("sqs-postgres"), "--database", database) as server:
        yield server


@pytest.fixture(scope="session")
def secured_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """A server with a credentials file: an admin and a client principal."""
    directory = tmp_path_factory.mktemp("sqs-secured")
    with running(directory, "--memory", "--credentials", str(credentials_file(directory))) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def sqs(request: pytest.FixtureRequest) -> SqsServer:
    """A server on each kind of store."""
    server: SqsServer = request.getfixturevalue(f"{request.param}_sqs")
    return server


@pytest.fixture(params=["sqlite", "postgres"])
def own_sqs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqsServer]:
    """A durable server of this test alone, which it may stop and start."""
    if request.param == "postgres":
        options = ("--database", str(request.getfixturevalue("postgres_database")))
    else:
        options = ("--data", str(tmp_path / "data"))
    with running(tmp_path, *options) as server:
        yield server


@pytest.fixture
def make_queue() -> Iterator[MakeQueue]:
    """Makes queues under names of their own and removes them after the test; `fifo` ones may be given settings."""
    with ExitStack() as clean_up:

        def make(client: Any, *, fifo: bool = False, name: str | None = None, **attributes: object) -> str:
            name = name or f"q-{uuid4().hex}{'.fifo' if fifo else ''}"
            texts = {key: str(value) for key, value in attributes.items()}
            if fifo:
                texts["FifoQueue"] = "true"
            url: str = client.create_queue(QueueName=name, Attributes=texts)["QueueUrl"]
            clean_up.callback(remove, client, url)
            return url

        yield make


def remove(client: Any, url: str) -> None:
    """Delete a queue unless the test did."""
    try:
        client.delete_queue(QueueUrl=url)
    except (client.exceptions.QueueDoesNotExist, OSError):
        return
    except Exception as error:
        if "Could not connect" not in str(error):
            raise

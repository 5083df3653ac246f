from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


def test_postgres_answers(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_each_test_has_an_empty_database_of_its_own(postgres_url: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        assert tables == (0,)
    assert postgres_database != postgres_url


@pytest.fixture(scope="module")
def forgotten() -> "Iterator[list[psycopg.Connection[Any]]]":
    """Connections that are still open when their database goes to the next test."""
    connections: list[psycopg.Connection[Any]] = []
    yield connections
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.xdist_group("what tests leave behind")
def test_what_a_test_leaves_behind_is_gone(
    postgres_database: str, forgotten: "list[psycopg.Connection[Any]]", turn: int
) -> None:
    connection = psycopg.connect(postgres_database, autocommit=True)
    forgotten.append(connection)
    connection.execute("create table t ()")
    connection.execute("create schema of_a_test")
    connection.execute("create table of_a_test.t ()")
    assert connection.execute("select pg_try_advisory_lock(1)").fetchone() == (True,)


def test_the_server_does_not_wait_for_the_disk(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("show fsync").fetchone() == ("off",)

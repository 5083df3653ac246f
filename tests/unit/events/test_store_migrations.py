"""Migrations: which are still to be applied, and when a database must be left alone."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from penstock.events.errors import MigrationChanged, SchemaTooNew
from penstock.events.store.migrations import Applied, Migration, migrations, missing, parsed
from penstock.events.store.sqlite import sqlite_repository
from penstock.events.store.statements import Dialect

FIRST = parsed("0001_jobs.sql", "-- works with code from version 1\nCREATE TABLE a (b);")
SECOND = parsed("0002_more.sql", "-- works with code from version 1\nALTER TABLE a ADD c;")
KNOWN = (FIRST, SECOND)
NOW_MS = 1_700_000_000_000


def applied(migration: Migration, **changes: int | str) -> Applied:
    record = Applied(migration.version, migration.name, migration.checksum, migration.works_with)
    return msgspec.structs.replace(record, **changes)


def test_what_was_not_applied_is_missing_in_order() -> None:
    assert missing(KNOWN, []) == [FIRST, SECOND]
    assert missing(KNOWN, [applied(FIRST)]) == [SECOND]
    assert missing(KNOWN, [applied(FIRST), applied(SECOND)]) == []


def test_old_code_goes_on_beside_a_newer_schema_that_says_so() -> None:
    assert missing((FIRST,), [applied(FIRST), applied(SECOND)]) == []


def test_old_code_leaves_a_schema_alone_that_needs_newer_code() -> None:
    with pytest.raises(SchemaTooNew, match=r"has version 2 .* up to 1"):
        missing((FIRST,), [applied(FIRST), applied(SECOND, works_with=2)])


def test_a_migration_that_was_edited_after_it_was_applied_is_refused() -> None:
    with pytest.raises(MigrationChanged, match="0001_jobs"):
        missing(KNOWN, [applied(FIRST, checksum="other")])


def test_a_migration_must_say_which_code_it_works_with() -> None:
    with pytest.raises(ValueError, match=r"0003_x\.sql"):
        parsed("0003_x.sql", "CREATE TABLE x (y);")


def test_both_databases_have_the_same_history() -> None:
    histories = [[step.name for step in migrations(dialect)] for dialect in Dialect]

    assert histories[0] == histories[1]
    versions = [step.version for step in migrations(Dialect.SQLITE)]
    assert versions == sorted(set(versions))


async def test_an_applied_migration_is_recorded_with_its_checksum(tmp_path: Path) -> None:
    repository = sqlite_repository(tmp_path / "jobs.db")
    await repository.open(NOW_MS)
    await repository.close()

    connection = sqlite3.connect(tmp_path / "jobs.db")
    recorded = connection.execute("SELECT name, checksum FROM migrations").fetchall()
    connection.close()
    assert recorded == [(step.name, step.checksum) for step in migrations(Dialect.SQLITE)]


async def test_a_database_with_an_edited_migration_is_not_opened(tmp_path: Path) -> None:
    repository = sqlite_repository(tmp_path / "jobs.db")
    await repository.open(NOW_MS)
    await repository.close()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.execute("UPDATE migrations SET checksum = 'other'")
    connection.commit()
    connection.close()

    again = sqlite_repository(tmp_path / "jobs.db")
    with pytest.raises(MigrationChanged):
        await again.open(NOW_MS)
    await again.close()

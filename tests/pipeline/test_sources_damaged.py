"""Rows that are not what their columns promise are set aside with the reason, and all others are read."""

from typing import Any

import pyarrow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import SUBSCRIPTIONS
from penstock.spark.sources.statements import STORED
from penstock.spark.sources.table_source import SubscriptionReader, TableReader
from penstock.spark.sources.valid_rows import SetAside, set_aside
from tests.rigs.job_database import add_attempts, add_jobs, execute, fetch
from tests.rigs.search import examples

EVENT = """
INSERT INTO events (
    id, tenant, source, external_id, type, subject, time_ms, data, content_type, attributes, received_ms, fanned_out
) VALUES (?, '', 's', ?, ?, ?, ?, ?, 'c', ?, ?, 0)
"""
ASIDE = "SELECT source, row_id, reason FROM set_aside ORDER BY source, row_id"
FAR_FUTURE_MS = 2**63 - 1


def rows(place: SparkDatabase, table: str, *columns: str) -> list[dict[str, Any]]:
    stored = STORED[table]
    schema = type(stored.schema)([stored.schema[name] for name in columns]) if columns else stored.schema
    reader = TableReader(place, stored, schema, None)
    batches: list[pyarrow.RecordBatch] = [batch for part in reader.partitions() for batch in reader.read(part)]
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_strange_but_whole_rows_are_read_as_they_are(database: SparkDatabase) -> None:
    big = b"\x00\xff" * 500_000
    execute(database, EVENT, [("e1", "x1", "t\U0001f600", "{no json", FAR_FUTURE_MS, big, "{no json", -5)])

    (row,) = rows(database, "events")

    assert (row["type"], row["attributes"], row["time_ms"], row["received_ms"]) == (
        "t\U0001f600",
        "{no json",
        FAR_FUTURE_MS,
        -5,
    )
    assert row["data"] == big
    assert fetch(database, ASIDE) == []


def test_values_that_no_column_promises_set_only_their_row_aside(sqlite_place: SparkDatabase) -> None:
    good = [(f"e{n}", f"x{n}", "t", None, None, b"{}", "{}", n) for n in range(20)]
    execute(sqlite_place, EVENT, good)
    execute(sqlite_place, "UPDATE events SET type = CAST(x'ff41' AS TEXT) WHERE id = 'e3'")
    execute(sqlite_place, "UPDATE events SET received_ms = 'soon' WHERE id = 'e5'")
    execute(sqlite_place, "UPDATE events SET time_ms = 1.5 WHERE id = 'e7'")
    execute(sqlite_place, "UPDATE events SET data = 12 WHERE id = 'e9'")
    execute(sqlite_place, "UPDATE events SET subject = 'a' || char(0) || 'b' WHERE id = 'e11'")
    execute(sqlite_place, "UPDATE events SET received_ms = 9e18 * 3 WHERE id = 'e13'")
    execute(sqlite_place, "UPDATE events SET id = CAST(x'65ff' AS TEXT) WHERE id = 'e15'")

    found = rows(sqlite_place, "events")

    bad = {3, 5, 7, 9, 13, 15}
    assert sorted(row["id"] for row in found) == sorted(f"e{n}" for n in range(20) if n not in bad)
    assert {row["id"]: row["subject"] for row in found}["e11"] == "a\0b"
    aside = {row_id: reason for source, row_id, reason in fetch(sqlite_place, ASIDE) if source == "events"}
    assert set(aside) == {"e3", "e5", "e7", "e9", "e13", "e\N{REPLACEMENT CHARACTER}"}
    assert {key: reason.split()[0] for key, reason in aside.items() if key.startswith("e1")} == {"e13": "received_ms"}
    assert aside["e3"].startswith("type cannot be read")

    # Read again, nothing is recorded twice; and a column that is not asked for does no harm.
    assert len(rows(sqlite_place, "events")) == 14
    assert len(fetch(sqlite_place, ASIDE)) == 6
    assert len(rows(sqlite_place, "events", "position", "tenant")) == 20


def test_a_status_that_nobody_knows_sets_the_job_aside(database: SparkDatabase) -> None:
    add_jobs(database, [("good", "g", 2, 1, 1, None), ("bad", "g", 2, 77, 1, None), ("worse", "g", 9, 77, 1, None)])

    assert [row["id"] for row in rows(database, "jobs")] == ["good"]
    assert fetch(database, ASIDE) == [
        ("jobs", "bad", "status is unknown"),
        ("jobs", "worse", fetch(database, ASIDE)[1][2]),
    ]
    # Without its identity among the columns too, and a read that needs no status has all of them.
    assert rows(database, "jobs", "status") == [{"status": "PENDING"}]
    assert len(rows(database, "jobs", "group_key")) == 3


def test_an_attempt_is_named_by_its_job_and_number(sqlite_place: SparkDatabase) -> None:
    add_attempts(sqlite_place, "j1", "j2")
    execute(sqlite_place, "UPDATE attempts SET duration_ms = 'long' WHERE job_id = 'j2'")

    assert [row["job_id"] for row in rows(sqlite_place, "attempts")] == ["j1"]
    assert [row[:2] for row in fetch(sqlite_place, ASIDE)] == [("attempts", "j2:1")]


def test_a_subscription_that_cannot_be_understood_is_set_aside(database: SparkDatabase) -> None:
    definitions = [
        ("s1", "n1", '{"id":"s1","name":"n1","pattern":"a:*","target":"https://a.example","mode":"IMMEDIATE"}'),
        ("s2", "n2", "{"),
        ("s3", "n3", '{"id":"s3","name":"n3","pattern":"::","target":""}'),
    ]
    insert = "INSERT INTO subscriptions (id, tenant, name, paused, definition) VALUES (?, '', ?, true, ?)"
    execute(database, insert, definitions)

    (batch,) = SubscriptionReader(database, SUBSCRIPTIONS).read(InputPartition(None))

    assert batch.to_pylist() == [
        {
            "id": "s1",
            "tenant": "",
            "name": "n1",
            "pattern": "a:*",
            "filter": "{}",
            "target": "https://a.example",
            "pool": "n1",
            "mode": "IMMEDIATE",
            "paused": True,
        }
    ]
    assert [row[:2] for row in fetch(database, ASIDE)] == [("subscriptions", "s2"), ("subscriptions", "s3")]


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), st.text()), max_size=3))
def test_anything_can_be_set_aside(database: SparkDatabase, given_rows: list[tuple[str, str, str]]) -> None:
    set_aside(database, [SetAside(*row) for row in given_rows])
    kept = {row[:2] for row in fetch(database, ASIDE)}

    assert all((_kept(source), _kept(row_id)) in kept for source, row_id, _ in given_rows)


def _kept(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def test_a_database_that_takes_no_record_does_not_end_the_read(database: SparkDatabase) -> None:
    add_jobs(database, [("good", "g", 2, 1, 1, None), ("bad", "g", 2, 77, 1, None)])
    execute(database, "DROP TABLE set_aside")

    assert [row["id"] for row in rows(database, "jobs")] == ["good"]

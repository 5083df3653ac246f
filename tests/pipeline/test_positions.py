"""Streams by position: every row once, in batches that can be read again, however commits overlap."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.events.store import JobRepository
from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import PositionsAhead
from penstock.spark.horizon import OpenTransaction, oldest_transaction, warn_of_long_transaction
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import STORED
from penstock.spark.sources.stream_source import (
    START,
    STREAMED,
    TASK_ROWS,
    Outlook,
    StreamPlace,
    StreamReader,
    rows_per_task,
)
from penstock.spark.sources.table_source import TableSource
from tests.rigs.job_database import NOW_MS, add_attempts, events, execute, fetch, with_repository
from tests.rigs.job_schemas import postgres
from tests.rigs.search import examples

Offset = dict[str, Any]
EVERYTHING = ReadAllAvailable()


class Stream:
    """A streaming query's dealings with its source, without Spark."""

    def __init__(self, database: SparkDatabase, table: str, task_rows: int = TASK_ROWS) -> None:
        self.key = STREAMED[table].key
        self.reader = StreamReader(database, table, STORED[table].schema, task_rows=task_rows)
        self.offset: Offset = self.reader.initialOffset()

    def read(self, start: Offset, end: Offset) -> list[str]:
        """The keys of a batch, in the order of its tasks."""
        return [
            key
            for share in self.reader.partitions(start, end)
            for batch in self.reader.read(share)
            for key in batch.column(self.key).to_pylist()
        ]

    def batch(self, most_rows: int | None = None) -> list[str]:
        """The next batch; empty when there is none."""
        start = self.offset
        self.offset = self.reader.latestOffset(start, EVERYTHING if most_rows is None else ReadMaxRows(most_rows))
        return self.read(start, self.offset)


@pytest.fixture
def attempts(database: SparkDatabase) -> Iterator[Stream]:
    stream = Stream(database, "attempts")
    yield stream
    stream.reader.stop()


def test_what_is_new_is_read_once_and_in_order(database: SparkDatabase, attempts: Stream) -> None:
    add_attempts(database, "b", "a")
    assert sorted(attempts.batch()) == ["a", "b"]
    assert attempts.batch() == []

    add_attempts(database, "c")
    add_attempts(database, "0")
    assert attempts.batch() == ["c", "0"]


def test_without_news_the_offset_stays_and_no_batch_is_made(database: SparkDatabase, attempts: Stream) -> None:
    add_attempts(database, "a")
    attempts.batch()
    before = attempts.offset
    # Other transactions go on; they are none of this stream's business.
    execute(database, "INSERT INTO pools (code, concurrency) VALUES ('p', 1)")

    assert attempts.batch() == []
    assert attempts.offset == before
    assert attempts.reader.partitions(before, before) == []


def test_few_rows_wait_for_more_or_until_they_have_waited_long_enough(database: SparkDatabase) -> None:
    now_s = [100.0]
    table = STORED["attempts"].schema
    reader = StreamReader(database, "attempts", table, least_rows=3, longest_wait_s=60, seconds=lambda: now_s[0])
    start = reader.initialOffset()
    assert reader.latestOffset(start, EVERYTHING) == start
    now_s[0] += 1000
    add_attempts(database, "a", "b")
    assert reader.latestOffset(start, EVERYTHING) == start
    now_s[0] += 59
    assert reader.latestOffset(start, EVERYTHING) == start
    now_s[0] += 1
    after_two = reader.latestOffset(start, EVERYTHING)
    assert after_two != start
    add_attempts(database, "c")
    assert reader.latestOffset(after_two, EVERYTHING) == after_two
    add_attempts(database, "d", "e")
    assert reader.latestOffset(after_two, EVERYTHING) != after_two
    reader.stop()


def test_a_batch_has_at_most_the_rows_it_is_limited_to_even_of_one_transaction(
    database: SparkDatabase, attempts: Stream
) -> None:
    names = [f"{number:03}" for number in range(25)]
    add_attempts(database, *names)

    batches = [attempts.batch(10) for _ in range(4)]

    assert [len(batch) for batch in batches] == [10, 10, 5, 0]
    assert sorted(name for batch in batches for name in batch) == names


@pytest.mark.parametrize(("task_rows", "tasks"), [(None, 1), (10, 3), (26, 1)])
def test_how_a_batch_is_divided_among_tasks_is_the_readers_to_say(
    database: SparkDatabase, task_rows: int | None, tasks: int
) -> None:
    add_attempts(database, *(f"{number:03}" for number in range(25)))
    options = {"table": "attempts"} | ({} if task_rows is None else {"task_rows": str(task_rows)})
    source = type("Tables", (TableSource,), {"database": database})(options)
    reader = source.streamReader(source.schema())

    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)

    assert len(reader.partitions(reader.initialOffset(), end)) == tasks
    reader.stop()


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    transactions=st.lists(st.integers(1, 7), max_size=6),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    task_rows=st.integers(1, 8),
)
def test_any_limits_and_shares_read_every_row_once_and_again_the_same(
    database: SparkDatabase, transactions: list[int], limits: list[int], task_rows: int
) -> None:
    execute(database, "DELETE FROM attempts")
    stream = Stream(database, "attempts", task_rows)
    # The rows that other examples left behind are gone; what they counted is not.
    stream.batch()
    written = []
    for number, size in enumerate(transactions):
        names = [f"{number}-{row}" for row in range(size)]
        add_attempts(database, *names)
        written.extend(names)

    seen: list[tuple[Offset, Offset, list[str]]] = []
    for turn in range(len(written) + 1):
        start = stream.offset
        batch = stream.batch(limits[turn % len(limits)])
        seen.append((start, stream.offset, batch))
        assert len(batch) <= limits[turn % len(limits)]
    add_attempts(database, "later")

    assert [name for _, _, batch in seen for name in batch] == written
    assert all(stream.read(start, end) == batch for start, end, batch in seen)
    stream.reader.stop()


def test_a_transaction_that_commits_late_is_not_passed(postgres_place: SparkDatabase) -> None:
    stream = Stream(postgres_place, "attempts")
    insert = "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) VALUES (%s, 1, 'DELIVERED', %s, 1)"
    with postgres(postgres_place) as early, postgres(postgres_place) as late:
        early.execute(insert, ("early", NOW_MS))
        late.execute(insert, ("late", NOW_MS))
        late.commit()

        # "late" is there to be seen, but behind it an older transaction may still bring something.
        assert [row for (row,) in fetch(postgres_place, "SELECT job_id FROM attempts")] == ["late"]
        assert stream.batch() == []

        early.commit()
    assert stream.batch() == ["early", "late"]
    assert stream.batch() == []
    stream.reader.stop()


def test_what_is_below_a_running_transaction_is_read_meanwhile(postgres_place: SparkDatabase) -> None:
    stream = Stream(postgres_place, "attempts")
    insert = "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) VALUES (%s, 1, 'DELIVERED', %s, 1)"
    add_attempts(postgres_place, "before")
    with postgres(postgres_place) as running, postgres(postgres_place) as failing:
        running.execute(insert, ("running", NOW_MS))
        failing.execute(insert, ("never", NOW_MS))
        failing.rollback()

        assert stream.batch() == ["before"]
        running.execute(insert, ("running on", NOW_MS))
        running.commit()
    assert stream.batch() == ["running", "running on"]
    stream.reader.stop()


def test_a_stream_that_reads_what_is_there_now_ends(database: SparkDatabase, attempts: Stream) -> None:
    add_attempts(database, "a", "b")
    attempts.reader.prepareForTriggerAvailableNow()
    add_attempts(database, "later")

    assert [attempts.batch(1), attempts.batch(1), attempts.batch(1)] == [["a"], ["b"], []]


def test_events_are_read_until_they_are_fanned_out(database: SparkDatabase) -> None:
    stream = Stream(database, "events")
    with_repository(database, lambda jobs: jobs.add_events(events("e1", "e2", "e3")))
    with_repository(database, lambda jobs: jobs.publish(events("inline"), [], NOW_MS))
    start = stream.offset

    assert stream.batch() == ["e1", "e2", "e3"]

    with_repository(database, lambda jobs: jobs.fan_out(["e1", "e3"], [], NOW_MS))
    assert stream.read(start, stream.offset) == ["e2"]
    assert stream.batch() == []
    stream.reader.stop()


async def fan_out(event_ids: list[str], jobs: JobRepository) -> None:
    await jobs.fan_out(event_ids, [], NOW_MS)


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_transaction_that_stays_open_holds_no_event_back(database: SparkDatabase) -> None:
    stream = Stream(database, "events")
    add = "INSERT INTO pools (code, concurrency) VALUES ('p', 1)"
    with postgres(database) as idle:
        idle.execute(add)
        with_repository(database, lambda jobs: jobs.add_events(events("e1", "e2", "e3")))
        for expected in (["e1", "e2"], ["e3"]):
            batch = stream.batch(2)
            assert batch == expected
            with_repository(database, partial(fan_out, batch))
        before = stream.offset
        assert (stream.batch(), stream.offset) == ([], before)
    stream.reader.stop()


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_whoever_holds_facts_back_is_named(
    database: SparkDatabase, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(postgres_url) as idle:
        name = idle.info.dbname
        idle.execute("SELECT pg_current_xact_id()")
        # Other tests may have transactions of their own meanwhile.
        oldest = wait_for_oldest(database, idle.info.backend_pid)
        with caplog.at_level("WARNING"):
            warn_of_long_transaction(database, long_s=0)
    assert (oldest.database, oldest.state) == (name, "idle in transaction")
    assert f"process {oldest.pid} of {oldest.user} in database {oldest.database}" in caplog.text


def wait_for_oldest(database: SparkDatabase, pid: int) -> OpenTransaction:
    while (oldest := oldest_transaction(database)) is None or oldest.pid != pid:
        continue
    return oldest


def test_sqlite_has_no_such_transactions(sqlite_place: SparkDatabase) -> None:
    assert oldest_transaction(sqlite_place) is None


@pytest.mark.parametrize(("most_rows", "cores", "rows"), [(100_000, 2, 50_000), (100_000, 32, 5_000), (10, 4, 5_000)])
def test_a_full_batch_keeps_all_cores_busy(most_rows: int, cores: int, rows: int) -> None:
    assert rows_per_task(most_rows, cores) == rows


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_what_became_visible_after_the_end_was_set_does_not_keep_a_run_going(database: SparkDatabase) -> None:
    stream = Stream(database, "events")
    with postgres(database) as idle:
        idle.execute("INSERT INTO pools (code, concurrency) VALUES ('p', 1)")
        with_repository(database, lambda jobs: jobs.add_events(events("e1")))
        stream.reader.prepareForTriggerAvailableNow()
        with_repository(database, lambda jobs: jobs.add_events(events("e2")))
        assert stream.batch() == ["e1"]
        with_repository(database, lambda jobs: jobs.fan_out(["e1"], [], NOW_MS))
        before = stream.offset
        assert (stream.batch(), stream.offset) == ([], before)
    stream.reader.stop()


def test_a_checkpoint_of_an_earlier_version_is_gone_on_with(database: SparkDatabase) -> None:
    stream = Stream(database, "events")
    with_repository(database, lambda jobs: jobs.add_events(events("e1", "e2")))
    ends = fetch(database, "SELECT position, id FROM events ORDER BY position, id")
    start, end = START.offset, StreamPlace(*ends[0]).offset

    assert stream.read(start, end) == ["e1"]
    stream.offset = end
    assert stream.batch() == ["e2"]
    stream.reader.stop()


def test_rows_from_before_the_migration_come_first(postgres_place: SparkDatabase) -> None:
    execute(postgres_place, "ALTER TABLE attempts ALTER COLUMN position SET DEFAULT 0")
    add_attempts(postgres_place, "old 1", "old 2", "old 3")
    base = fetch(postgres_place, "SELECT base FROM position_base")[0][0]
    execute(
        postgres_place, f"ALTER TABLE attempts ALTER position SET DEFAULT {base} + pg_current_xact_id()::text::bigint"
    )
    add_attempts(postgres_place, "new")

    stream = Stream(postgres_place, "attempts")

    assert [stream.batch(2), stream.batch(2), stream.batch(2)] == [["old 1", "old 2"], ["old 3", "new"], []]
    stream.reader.stop()


def test_the_position_of_a_deleted_row_is_not_given_again(sqlite_place: SparkDatabase) -> None:
    stream = Stream(sqlite_place, "attempts")
    add_attempts(sqlite_place, "a", "b")
    stream.batch()
    execute(sqlite_place, "DELETE FROM attempts WHERE job_id = 'b'")
    add_attempts(sqlite_place, "c")

    assert stream.batch() == ["c"]
    stream.reader.stop()


def test_on_another_server_positions_go_on_growing(postgres_place: SparkDatabase) -> None:
    add_attempts(postgres_place, "before")
    stream = Stream(postgres_place, "attempts")
    stream.batch()
    before = fetch(postgres_place, "SELECT max(position) FROM attempts")[0][0]
    # As after a restore: the counter of transactions began again, and rows brought the old numbers along.
    execute(postgres_place, "UPDATE position_base SET server = 'another'")
    with_repository(postgres_place, lambda jobs: jobs.list_pools())
    add_attempts(postgres_place, "after")

    assert fetch(postgres_place, "SELECT max(position) FROM attempts")[0][0] >= before + 2**41
    assert stream.batch() == ["after"]
    bases = [fetch(postgres_place, "SELECT base FROM position_base")[0][0]]
    with_repository(postgres_place, lambda jobs: jobs.list_pools())
    bases.append(fetch(postgres_place, "SELECT base FROM position_base")[0][0])
    assert bases[0] == bases[1]
    stream.reader.stop()


def test_a_checkpoint_of_a_later_state_of_the_database_is_refused(database: SparkDatabase, attempts: Stream) -> None:
    add_attempts(database, "a")
    attempts.batch()
    attempts.offset = StreamPlace(int(attempts.offset["position"]) + 100_000).offset

    with pytest.raises(PositionsAhead, match=r"delete this job's checkpoint directory"):
        attempts.batch()


def test_a_lost_connection_is_made_anew(postgres_place: SparkDatabase) -> None:
    stream = Stream(postgres_place, "attempts")
    add_attempts(postgres_place, "a")
    assert stream.batch() == ["a"]
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%{}%'"
    )
    assert fetch(postgres_place, others.format(postgres_place.schema))
    add_attempts(postgres_place, "b")

    assert stream.batch() == ["b"]
    stream.reader.stop()


def test_an_idle_poll_is_a_lookup_in_the_index(postgres_place: SparkDatabase) -> None:
    execute(
        postgres_place,
        "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) "
        f"SELECT n, 1, 'DELIVERED', {NOW_MS}, 1 FROM generate_series(1, 5000) AS n",
    )
    execute(
        postgres_place,
        "INSERT INTO events (id, tenant, source, external_id, type, data, content_type, attributes, received_ms, "
        "fanned_out) SELECT n, '', '', n, 't', '', 'c', '{}', 1, 1 FROM generate_series(1, 5000) AS n",
    )
    execute(postgres_place, "ANALYZE")
    reading = reader_for(postgres_place)
    for name, most_rows in (("attempts", None), ("attempts", 1000), ("events", None), ("events", 1000)):
        table = STREAMED[name]
        horizon = reading.rows(table.outlook(START, None, Dialect.POSTGRES, reading.prefix))[0][0]
        asked = table.outlook(StreamPlace(horizon), most_rows, Dialect.POSTGRES, reading.prefix)
        plan = [line for (line,) in reading.rows(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {asked}")]

        touched = [line for line in plan if "Buffers" in line]
        assert any("Index" in line for line in plan), (name, plan)
        assert sum(int(word.split("=")[1]) for line in touched[:1] for word in line.split() if "hit=" in word) < 30
    reading.close()


def test_an_outlook_never_ends_a_batch_before_its_start() -> None:
    start, row = StreamPlace(5, "k"), StreamPlace(7, "r")

    assert Outlook(9, 9, False, None).end(start, None) == start
    assert Outlook(9, 9, True, None).end(start, None) == StreamPlace(9)
    assert Outlook(9, 9, True, row).end(start, None) == row
    assert Outlook(9, 9, True, row).end(start, StreamPlace(6)) == StreamPlace(6)
    assert Outlook(9, 9, True, row).end(start, StreamPlace(4)) == start


def test_places_are_ordered_as_both_databases_order_rows() -> None:
    ordered = [START, StreamPlace(0), StreamPlace(0, "a"), StreamPlace(0, "b"), StreamPlace(1), StreamPlace(1, "a")]

    assert all(before < after for before, after in pairwise(ordered))
    assert all(msgspec.convert(place.offset, StreamPlace) == place for place in ordered)


WRITER = """
import asyncio, sys
from penstock.spark.database import SparkDatabase
from tests.rigs.job_database import NOW_MS, events

async def write() -> None:
    repository = SparkDatabase(sys.argv[1]).repository()
    await repository.open(NOW_MS)
    for number in range(60):
        await repository.add_events(events(f"{sys.argv[2]}-{number:03}"))
    await repository.close()

asyncio.run(write())
"""


def test_two_processes_write_one_sqlite_file_while_a_stream_reads_it(sqlite_place: SparkDatabase) -> None:
    stream = Stream(sqlite_place, "events")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, sqlite_place.url, name]) for name in ("a", "b")]
    seen: list[str] = []
    while any(writer.poll() is None for writer in writers):
        seen.extend(stream.batch(7))
    while batch := stream.batch():
        seen.extend(batch)

    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(seen) == [f"{name}-{number:03}" for name in ("a", "b") for number in range(60)]
    assert [name for name in seen if name.startswith("a")] == sorted(name for name in seen if name.startswith("a"))
    stream.reader.stop()

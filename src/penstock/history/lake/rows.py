"""Rows of the lake from facts and events, and facts from rows of the lake: one column each way."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.history.lake.facts import DAY, FACTS, FLAW
from penstock.history.lake.schema import DATE, DELIVERIES, EVENTS, JOBS, POSITION

JOB = "of_job_"
"""The prefix of columns that a row of `jobs` has in place of those of its attempt."""

ENDED = "job_has_ended"
PLACE = ("place_position", "place_job_id", "place_number", "place_at_ms")
HOST = r"^[^:/?#]+://([^/?#]*)"
# The last millisecond of the year 9999: Python and Parquet have no later time.
LATEST_MS = 253_402_300_799_999
_RENAMED = {
    "attempt": "number",
    "status": "status_code",
    "response_ms": "duration_ms",
    "was_repaired": "repaired",
    "event_type": "type",
}
_TIMES = {"attempted_at": "at_ms", "created_at": "created_at_ms", "event_time": "event_time_ms"}


def lake_rows(facts: DataFrame) -> DataFrame:
    """Return the columns of `deliveries`, those that `jobs` has beside, each row's place, and its flaw."""
    sound = f.col(FLAW).isNull()
    shape = {
        **{name: f.col(column) for name, column in _RENAMED.items()},
        **{name: moment(f.col(column)) for name, column in _TIMES.items()},
        "attempted_at": f.when(sound, moment(f.col("at_ms"))),
        "endpoint_host": f.regexp_extract("endpoint", HOST, 1),
        DATE: f.col(DAY).cast("date"),
    }
    of_job = {
        "final_status": f.col("job_status"),
        "attempts": f.col("job_attempts"),
        "finished_at": moment(f.col("job_finished_ms")),
    }
    # Only the job's last attempt says how it ended; an earlier one may be read after the end.
    ended = f.col("job_finished_ms").isNotNull() & (f.col(POSITION) == f.col("job_position"))
    return facts.select(
        *(shape.get(name, f.col(name)).alias(name) for name in DELIVERIES.names),
        *(of_job[name].alias(f"{JOB}{name}") for name in JOBS.names if name in of_job),
        f.coalesce(ended, f.lit(False)).alias(ENDED),
        *(
            f.coalesce(f.col(name), f.lit(default)).alias(place)
            for place, name, default in zip(PLACE, (POSITION, "job_id", "number", "at_ms"), (0, "", 0, 0), strict=True)
        ),
        FLAW,
    )


def lake_facts(deliveries: DataFrame) -> DataFrame:
    """Return rows of `deliveries` as facts."""
    shape = {
        **{column: f.col(name) for name, column in _RENAMED.items()},
        **{column: f.unix_millis(name) for name, column in _TIMES.items()},
        DAY: f.col(DATE).cast("string"),
    }
    return deliveries.select(*(shape.get(name, f.col(name)).alias(name) for name in FACTS.names))


def event_rows(events: DataFrame) -> DataFrame:
    """Return stored events as rows of `events`."""
    received_at = moment(f.col("received_ms"))
    shape = {
        "event_id": f.col("id"),
        "source_event_id": f.col("external_id"),
        "event_type": f.col("type"),
        "key": f.col("group_name"),
        "event_bytes": f.col("data_bytes"),
        "event_time": moment(f.col("time_ms")),
        "received_at": received_at,
        DATE: received_at.cast("date"),
    }
    return events.select(*(shape.get(name, f.col(name)).alias(name) for name in EVENTS.names))


def moment(millis: Column) -> Column:
    """Return a time in milliseconds as a timestamp, or null; one outside the calendar is brought into it."""
    bounded = f.least(f.greatest(millis, f.lit(0)), f.lit(LATEST_MS))
    return f.when(millis.isNotNull(), f.timestamp_millis(bounded))

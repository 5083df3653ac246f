"""Made-up subscriptions and events for tests of fan-out, and events as the pipeline's sources hand them out."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import msgspec
import pyarrow
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.domain.event import StoredEvent
from penstock.domain.matching import ONE_SEGMENT, REST, SEPARATOR, Comparison, Condition, EventFilter
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import DataOf
from penstock.spark.schemas import EVENTS

EVENT_ROWS = StructType([EVENTS[name] for name in EVENT_COLUMNS])
TENANTS = ("", "acme", "other")
NAMES = ("highpriority", "tier", "region", "id", "source", "type", "subject", "ключ", "")
VALUES = ("", "true", "eu", "eu-west", "gold", "shop", "a:b", "naïve \N{SNOWMAN}", "with \x00 and \n")
_numbers = count(1)


def _segments(*more: str) -> st.SearchStrategy[str]:
    return st.sampled_from(("a", "b", "ü", "orders", *more))


patterns = st.builds(
    lambda segments, rest: SEPARATOR.join([*segments, *rest]),
    st.lists(_segments(ONE_SEGMENT), min_size=1, max_size=4),
    st.sampled_from(((), (REST,))),
) | st.just(REST)
types = st.builds(SEPARATOR.join, st.lists(_segments("", "*", "**"), min_size=1, max_size=5))
conditions = st.builds(
    lambda attribute, comparison, values: Condition(
        attribute, comparison, () if comparison in (Comparison.PRESENT, Comparison.ABSENT) else tuple(values)
    ),
    st.sampled_from(NAMES[:-1]),
    st.sampled_from(Comparison),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
)
EXPRESSIONS = ("data.total >= 100", "data.lines[0] == 'a' or region == 'eu'", "subject exists", "data not exists")
DATA = (b"", b"{", b'{"total": 100}', b'{"total": 99.5, "lines": ["a"]}', b"[1]")
filters = (
    st.just(EventFilter())
    | st.builds(EventFilter, st.lists(conditions, min_size=1, max_size=3).map(tuple))
    | st.builds(EventFilter, st.lists(conditions, max_size=1).map(tuple), st.sampled_from(EXPRESSIONS))
)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    """One that no one else has."""
    number = next(_numbers)
    return Subscription(
        id=f"S{number}",
        name=f"n{number}",
        pattern=draw(patterns),
        filter=draw(filters),
        target=f"https://{number}.example",
        pool=draw(st.sampled_from(("FAST", "SLOW"))),
        mode=draw(st.sampled_from(DispatchMode)),
        high_priority=draw(st.booleans()),
        paused=draw(st.booleans()),
        tenant=draw(st.sampled_from(TENANTS)),
    )


@st.composite
def events(draw: st.DrawFn) -> StoredEvent:
    """One that no one else has."""
    return StoredEvent(
        id=f"E{next(_numbers)}",
        source=draw(st.sampled_from(VALUES)),
        type=draw(types),
        received_ms=draw(st.integers(0, 2**53)),
        external_id=draw(st.sampled_from(("", "eu", "order 1"))),
        subject=draw(st.none() | st.sampled_from(VALUES)),
        data=draw(st.sampled_from(DATA)),
        content_type=draw(st.sampled_from(("application/json", "text/plain"))),
        group=draw(st.none() | st.sampled_from(VALUES)),
        tenant=draw(st.sampled_from(TENANTS)),
        attributes=draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4)),
    )


def data_of(told: Sequence[StoredEvent]) -> DataOf:
    """The data of events as fan-out reads them for filters: by their ids."""
    data = {event.id: event.data for event in told}
    return lambda ids: {each: data[each] for each in ids}


def row_of(event: StoredEvent, **instead: object) -> dict[str, Any]:
    """An event as its table has it; `instead` are columns that are damaged."""
    return {
        "id": event.id,
        "tenant": event.tenant,
        "source": event.source,
        "external_id": event.cloud_id,
        "type": event.type,
        "subject": event.subject,
        "content_type": event.content_type,
        "group_name": event.group,
        "attributes": msgspec.json.encode(dict(event.attributes)).decode(),
        "received_ms": event.received_ms,
        **instead,
    }


def batch_of(rows: Iterable[dict[str, Any]]) -> pyarrow.RecordBatch:
    """Events as a task gets them."""
    return pyarrow.RecordBatch.from_pylist(list(rows), to_arrow_schema(EVENT_ROWS))


def frame_of(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Events as a DataFrame."""
    return spark.createDataFrame([tuple(row[name] for name in EVENT_COLUMNS) for row in rows], EVENT_ROWS)

"""What fan-out reads of an event and writes of a job, and the check that sets damaged events aside."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow
import pyarrow.compute
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.domain.message import NO_ATTRIBUTES

_decode = msgspec.json.Decoder(dict[str, str]).decode
_NO_ATTRIBUTES = b"{}"

EVENT_COLUMNS = (
    "id", "tenant", "source", "external_id", "type", "subject", "content_type", "group_name", "attributes",
    "received_ms",
)  # fmt: skip
"""Without the data, which may be large: the delivery of the job reads it."""

REQUIRED = ("id", "tenant", "source", "external_id", "type", "content_type", "attributes", "received_ms")


def _text(name: str, *, nullable: bool = False) -> StructField:
    return StructField(name, StringType(), nullable)


PLANNED_JOBS = StructType(
    [
        _text("id"),
        _text("tenant"),
        _text("type"),
        _text("event_id"),
        _text("subscription_id"),
        _text("group_name", nullable=True),
        _text("group_key"),
        _text("mode"),
        StructField("high_priority", BooleanType(), nullable=False),
        _text("target"),
        _text("pool"),
        _text("content_type"),
        StructField("created_at_ms", LongType(), nullable=False),
    ]
)
"""A job before it is stored. Its sequence, payload and times are those of every job of an event."""

PLANNED_JOBS_ARROW = to_arrow_schema(PLANNED_JOBS)


class SetAsideEvents(NamedTuple):
    """A damaged event; even its id may be missing."""

    event_id: str | None
    reason: str


class Examined(NamedTuple):
    """The valid events of a batch with the attributes of each, and the damaged ones."""

    events: pyarrow.RecordBatch
    attributes: Sequence[Mapping[str, str]]
    set_aside: Sequence[SetAsideEvents]


def examined(events: pyarrow.RecordBatch) -> Examined:
    """Separate valid events from damaged ones."""
    reasons = _missing(events)
    attributes: list[Mapping[str, str]] = []
    # As bytes, so that one value that is not valid UTF-8 does not fail the batch.
    for place, text in enumerate(events.column("attributes").cast(pyarrow.binary()).to_pylist()):
        found: Mapping[str, str] = NO_ATTRIBUTES
        if text != _NO_ATTRIBUTES and place not in reasons:
            try:
                found = _decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                reasons[place] = f"its attributes are not a JSON object of strings: {error}"
        attributes.append(found)
    if not reasons:
        return Examined(events, attributes, ())
    ids = events.column("id")
    places = [place for place in range(len(events)) if place not in reasons]
    return Examined(
        events.take(pyarrow.array(places, pyarrow.int64())),
        [attributes[place] for place in places],
        [SetAsideEvents(ids[place].as_py(), reason) for place, reason in sorted(reasons.items())],
    )


def _missing(events: pyarrow.RecordBatch) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for name in REQUIRED:
        column = events.column(name)
        if column.null_count:
            for place in pyarrow.compute.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(place, f"it has no {name}")
    return reasons

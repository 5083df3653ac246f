"""Events that nothing can be delivered of: fan-out sets them aside, says why, and goes on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow
import pyarrow.compute

from penstock.domain.message import NO_ATTRIBUTES
from penstock.pipeline.fan_out.columns import REQUIRED

_decode = msgspec.json.Decoder(dict[str, str]).decode
_NO_ATTRIBUTES = b"{}"


class SetAside(NamedTuple):
    """An event that is damaged; not even its id is sure to be there."""

    event_id: str | None
    reason: str


class Examined(NamedTuple):
    """The sound events of a batch with the attributes of each, and the others."""

    events: pyarrow.RecordBatch
    attributes: Sequence[Mapping[str, str]]
    set_aside: Sequence[SetAside]


def examined(events: pyarrow.RecordBatch) -> Examined:
    """Tell sound events from damaged ones."""
    reasons = _missing(events)
    attributes: list[Mapping[str, str]] = []
    # As bytes: a text that is no Unicode must not take the others along.
    for place, text in enumerate(events.column("attributes").cast(pyarrow.binary()).to_pylist()):
        found: Mapping[str, str] = NO_ATTRIBUTES
        if text != _NO_ATTRIBUTES and place not in reasons:
            try:
                found = _decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                reasons[place] = f"its attributes are no JSON object of texts: {error}"
        attributes.append(found)
    if not reasons:
        return Examined(events, attributes, ())
    ids = events.column("id")
    places = [place for place in range(len(events)) if place not in reasons]
    return Examined(
        events.take(pyarrow.array(places, pyarrow.int64())),
        [attributes[place] for place in places],
        [SetAside(ids[place].as_py(), reason) for place, reason in sorted(reasons.items())],
    )


def _missing(events: pyarrow.RecordBatch) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for name in REQUIRED:
        column = events.column(name)
        if column.null_count:
            for place in pyarrow.compute.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(place, f"it has no {name}")
    return reasons

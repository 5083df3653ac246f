"""Rows of the database as values."""

from collections.abc import Mapping

import msgspec

from penstock.domain.event import Event
from penstock.domain.job import DispatchJob
from penstock.domain.message import NO_ATTRIBUTES
from penstock.jobs.queries import JOB_COLUMNS
from penstock.jobs.stored_state import MODE_OF, STATUS_OF
from penstock.jobs.transaction import Row

_decode = msgspec.json.Decoder(dict[str, str]).decode
_MODE, _STATE, _HEADERS = (JOB_COLUMNS.index(name) for name in ("mode", "state", "headers"))
_FIELDS = tuple({"group_name": "group", "state": "status"}.get(name, name) for name in JOB_COLUMNS)


def job_of(row: Row) -> DispatchJob:
    """A row of `{job columns}`."""
    values = dict(zip(_FIELDS, row, strict=True))
    values["mode"] = MODE_OF[row[_MODE]]
    values["status"] = STATUS_OF[row[_STATE]]
    values["headers"] = mapping_of(row[_HEADERS])
    return DispatchJob(**values)


def event_of(row: Row) -> Event:
    """A row of the statement `event`."""
    event_id, tenant, source, external_id, kind, subject, time_ms, data, content_type, group, attributes, received = row
    return Event(
        id=event_id,
        tenant=tenant,
        source=source,
        external_id=external_id,
        type=kind,
        subject=subject,
        time_ms=time_ms,
        data=data,
        content_type=content_type,
        group=group,
        attributes=mapping_of(attributes),
        received_ms=received,
    )


def mapping_of(text: str) -> Mapping[str, str]:
    """Names and values kept as JSON."""
    return NO_ATTRIBUTES if text == "{}" else _decode(text)

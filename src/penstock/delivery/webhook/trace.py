"""The W3C trace context of a delivery: continues the trace of its event, or starts one with the event.

Ids are derived from names, so that all deliveries of an event are one trace, across nodes and attempts, without storing
anything in a job.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.ops.telemetry import Spans, Trace

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_PARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = "01"
_NOT_SAMPLED = "00"


def trace_of_event(event: StoredEvent, spans: Spans) -> Trace:
    """Return the trace of an event."""
    return _trace(event.attributes, event.id, spans)


def trace_of_job(job: DispatchJob, event: StoredEvent | None, spans: Spans) -> Trace:
    """Return the trace of a job's deliveries: that of its event, if it has one."""
    attributes = job.headers if event is None or TRACEPARENT not in event.attributes else event.attributes
    return _trace(attributes, job.event_id or job.id, spans)


def span_of_event(event_id: str) -> str:
    """Return the id of the span in which an event was published."""
    return _digest(f"event {event_id}", 16)


def span_of_delivery(job: DispatchJob) -> str:
    """Return the id of the span of the current delivery."""
    return _digest(f"{job.id}:{job.delivery_count}", 16)


def trace_headers(trace: Trace, span_id: str, attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that pass the trace to a subscriber."""
    # The state belongs to the trace it came with.
    state = attributes.get(TRACESTATE) if trace.parent_id is not None else None
    headers = {TRACEPARENT: f"00-{trace.trace_id}-{span_id}-{trace.flags}"}
    if state:
        headers[TRACESTATE] = state
    return headers


def _trace(attributes: Mapping[str, str], root: str, spans: Spans) -> Trace:
    parent = attributes.get(TRACEPARENT)
    given = None if parent is None else _PARENT.fullmatch(parent)
    if given is not None:
        return Trace(given[1], given[2], given[3])
    trace_id = _digest(root, 32)
    return Trace(trace_id, None, _SAMPLED if spans.samples(trace_id) else _NOT_SAMPLED)


def _digest(name: str, characters: int) -> str:
    return sha256(name.encode()).hexdigest()[:characters]

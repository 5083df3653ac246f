"""The W3C trace context of a delivery: the trace of its event goes on, or begins with the event.

The ids are made from names: all deliveries of an event are one trace, also across nodes and attempts, and nothing has
to be carried along with a job for it.
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
    """The trace an event belongs to."""
    return _trace(event.attributes, event.id, spans)


def trace_of_job(job: DispatchJob, event: StoredEvent | None, spans: Spans) -> Trace:
    """The trace a job's deliveries belong to: its event's, if it has one."""
    attributes = {**job.headers, **({} if event is None else event.attributes)}
    return _trace(attributes, job.event_id or job.id, spans)


def span_of_event(event_id: str) -> str:
    """The id of the span in which an event was published."""
    return _digest(f"event {event_id}", 16)


def span_of_delivery(job: DispatchJob) -> str:
    """The id of the span of the delivery that has begun."""
    return _digest(f"{job.id}:{job.delivery_count}", 16)


def trace_headers(trace: Trace, span_id: str, attributes: Mapping[str, str]) -> dict[str, str]:
    """The headers that tell a subscriber of the trace."""
    # What the state says is about the trace it came with.
    state = attributes.get(TRACESTATE) if trace.parent_id is not None else None
    parent = f"00-{trace.trace_id}-{span_id}-{trace.flags}"
    return {TRACEPARENT: parent, **({TRACESTATE: state} if state else {})}


def _trace(attributes: Mapping[str, str], root: str, spans: Spans) -> Trace:
    given = _PARENT.fullmatch(attributes.get(TRACEPARENT, ""))
    if given is not None:
        return Trace(given[1], given[2], given[3])
    trace_id = _digest(root, 32)
    return Trace(trace_id, None, _SAMPLED if spans.samples(trace_id) else _NOT_SAMPLED)


def _digest(name: str, characters: int) -> str:
    return sha256(name.encode()).hexdigest()[:characters]

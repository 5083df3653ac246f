"""Trace spans of an event: published, waited for its turn, delivered."""

from collections.abc import Sequence

from penstock.delivery import span_of_delivery, span_of_event, trace_of_event, trace_of_job
from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.outcome import AttemptOutcome
from penstock.ops.telemetry import NoSpans, Span, Spans


def record_published(spans: Spans, events: Sequence[StoredEvent], ids: Sequence[str], now_ms: int) -> None:
    """Record spans of published events; those known before have spans already."""
    if isinstance(spans, NoSpans):
        return
    for event, kept_id in zip(events, ids, strict=True):
        trace = trace_of_event(event, spans)
        if event.id == kept_id and trace.is_sampled:
            spans.record(
                Span(
                    name=f"publish {event.type}",
                    trace_id=trace.trace_id,
                    span_id=span_of_event(event.id),
                    parent_id=trace.parent_id,
                    start_ms=event.received_ms,
                    end_ms=now_ms,
                    attributes={"penstock.event": event.id, "penstock.group": event.group or ""},
                )
            )


def record_delivery(spans: Spans, job: DispatchJob, event: StoredEvent | None, attempt: Attempt) -> None:
    """Record a delivery: how long it took, and how long its job had waited since it was due."""
    if isinstance(spans, NoSpans):
        return
    trace = trace_of_job(job, event, spans)
    if not trace.is_sampled:
        return
    delivery_id = span_of_delivery(job)
    named: dict[str, str | int] = {
        "penstock.job": job.id,
        "penstock.group": job.group_key,
        "penstock.attempt": attempt.number,
        "penstock.outcome": attempt.outcome.value,
        "url.full": job.target,
    }
    if attempt.status_code is not None:
        named["http.response.status_code"] = attempt.status_code
    failed = attempt.outcome in (AttemptOutcome.FAILED, AttemptOutcome.REFUSED)
    published_id = trace.parent_id if job.event_id is None else span_of_event(job.event_id)
    spans.record(
        Span(
            name="deliver",
            trace_id=trace.trace_id,
            span_id=delivery_id,
            parent_id=published_id,
            # From when the job was due, because the wait is what people look for first.
            start_ms=min(job.due_at_ms, attempt.at_ms),
            end_ms=attempt.at_ms + attempt.duration_ms,
            attributes={**named, "penstock.waited_ms": max(attempt.at_ms - job.due_at_ms, 0)},
            error=(attempt.error or attempt.outcome.value) if failed else None,
        )
    )

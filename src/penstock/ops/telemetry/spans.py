"""Spans of traces: the steps that deliver an event to a subscriber, and the port that takes them to a collector."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.ops.telemetry.errors import TracesUnavailable


class Trace(msgspec.Struct, frozen=True):
    """The trace that something belongs to; `parent_id` is the span outside Penstock that it came from, if any."""

    trace_id: str
    parent_id: str | None
    flags: str

    @property
    def is_sampled(self) -> bool:
        """Return whether its spans are kept."""
        return int(self.flags, 16) & 1 == 1


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A finished piece of work. Ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    error: str | None = None


class Spans(Protocol):
    """Records spans."""

    def samples(self, trace_id: str) -> bool:
        """Return whether a trace that begins here is kept."""
        ...

    def record(self, span: Span) -> None:
        """Record a span; never wait and never fail."""

    def close(self) -> None:
        """Send what was not sent yet."""


class NoSpans:
    """Records nothing, if traces are off."""

    def samples(self, trace_id: str) -> bool:
        """Return False."""
        return False

    def record(self, span: Span) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_otlp_spans(endpoint: str, ratio: float, service: str) -> Spans:
    """Return the spans of a service, sent to a collector's URL; TracesUnavailable without OpenTelemetry."""
    try:
        from penstock.ops.telemetry.otlp import OtlpSpans
    except ImportError as error:
        raise TracesUnavailable(
            f"traces require OpenTelemetry, which is not installed ({error}): pip install 'penstock-events[traces]', "
            "or unset traces.endpoint"
        ) from None
    return OtlpSpans(endpoint, ratio, service)

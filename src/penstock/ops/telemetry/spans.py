"""Spans of traces: what took part in bringing an event to a subscriber, and how long. Where they go is a port.

Opens the way to a collector of spans; the extra it needs may not be installed.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.ops.telemetry.errors import TracesUnavailable


class Trace(msgspec.Struct, frozen=True):
    """A trace that something belongs to; `parent_id` is the span outside Penstock that it came from, if any."""

    trace_id: str
    parent_id: str | None
    flags: str

    @property
    def is_sampled(self) -> bool:
        """Whether its spans are kept."""
        return int(self.flags, 16) & 1 == 1


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work that is over. Ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    error: str | None = None


class Spans(Protocol):
    """Takes spans to where people look at them."""

    def samples(self, trace_id: str) -> bool:
        """Whether a trace that begins here is kept."""
        ...

    def record(self, span: Span) -> None:
        """Hand over a span; never waits and never fails."""

    def close(self) -> None:
        """Send what was not sent yet."""


class NoSpans:
    """For whoever wants no traces."""

    def samples(self, trace_id: str) -> bool:
        """No."""
        return False

    def record(self, span: Span) -> None:
        """Nothing happens."""

    def close(self) -> None:
        """Nothing happens."""


def open_otlp_spans(endpoint: str, ratio: float, service: str) -> Spans:
    """Spans of one service, sent to a collector's URL; TracesUnavailable without OpenTelemetry."""
    try:
        from penstock.ops.telemetry.otlp_spans import OtlpSpans
    except ImportError as error:
        raise TracesUnavailable(
            f"traces need OpenTelemetry, which is not installed ({error}): pip install 'penstock-events[traces]', "
            "or unset traces.endpoint"
        ) from None
    return OtlpSpans(endpoint, ratio, service)

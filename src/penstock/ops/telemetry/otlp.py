"""Spans for an OpenTelemetry collector, sent by OTLP over HTTP; requires the extra `penstock-events[traces]`."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from penstock import __version__
from penstock.ops.telemetry.spans import Span

_MS_NS = 1_000_000
_HALF_BITS = 64


class OtlpSpans:
    """Sends spans in batches from its own thread; spans that cannot be sent are dropped and logged."""

    def __init__(self, endpoint: str, ratio: float, service: str) -> None:
        self._bound = round(ratio * (1 << _HALF_BITS))
        self._ids = _GivenIds()
        # Report only the service: the collector need not know this machine.
        resource = Resource({"service.name": service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("penstock", __version__)

    def samples(self, trace_id: str) -> bool:
        """Return whether a trace that begins here is kept, which its id decides, so that all nodes agree."""
        return int(trace_id[16:], 16) < self._bound

    def record(self, span: Span) -> None:
        """Queue a span."""
        self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        context = None
        if span.parent_id is not None:
            parent = SpanContext(
                self._ids.trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
            )
            context = trace.set_span_in_context(NonRecordingSpan(parent))
        recorded = self._tracer.start_span(
            span.name, context, attributes=dict(span.attributes), start_time=span.start_ms * _MS_NS
        )
        if span.error is not None:
            recorded.set_status(Status(StatusCode.ERROR, span.error))
        recorded.end(span.end_ms * _MS_NS)

    def close(self) -> None:
        """Send queued spans and stop."""
        self._provider.shutdown()


class _GivenIds(IdGenerator):
    """Provides the ids of the span being recorded; spans are recorded one at a time, by the loop's thread."""

    trace_id = 0
    span_id = 0

    def generate_span_id(self) -> int:
        return self.span_id

    def generate_trace_id(self) -> int:
        return self.trace_id

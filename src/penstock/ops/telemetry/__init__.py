"""Telemetry of served parts: logs, metrics and traces."""

from penstock.ops.telemetry.logs import configure_logging
from penstock.ops.telemetry.metrics import DELAY_BUCKETS_S, Metrics
from penstock.ops.telemetry.redaction import MASK, is_secret_name, mask_json_secrets, mask_secrets, mask_whole_url
from penstock.ops.telemetry.spans import NoSpans, Span, Spans, Trace, open_otlp_spans

__all__ = [
    "DELAY_BUCKETS_S",
    "MASK",
    "Metrics",
    "NoSpans",
    "Span",
    "Spans",
    "Trace",
    "configure_logging",
    "is_secret_name",
    "mask_json_secrets",
    "mask_secrets",
    "mask_whole_url",
    "open_otlp_spans",
]

"""Opens the way to a collector of spans; the extra it needs may not be installed."""

from penstock.telemetry.errors import TracesUnavailable
from penstock.telemetry.spans import Spans


def otlp_spans(endpoint: str, ratio: float, service: str) -> Spans:
    """Spans of one service, sent to a collector's URL; TracesUnavailable without OpenTelemetry."""
    try:
        from penstock.telemetry.otlp_spans import OtlpSpans
    except ImportError as error:
        raise TracesUnavailable(
            f"traces need OpenTelemetry, which is not installed ({error}): pip install 'penstock[traces]', or unset "
            "traces.endpoint"
        ) from None
    return OtlpSpans(endpoint, ratio, service)

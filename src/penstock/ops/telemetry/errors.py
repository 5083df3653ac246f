"""Errors of telemetry.

Unavailable
└── TracesUnavailable             traces are enabled, but OpenTelemetry is not installed
"""

from penstock.domain.errors import Unavailable


class TracesUnavailable(Unavailable):
    """Traces are enabled, but OpenTelemetry is not installed."""

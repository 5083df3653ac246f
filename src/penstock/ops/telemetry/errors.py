"""Errors of telemetry.

Unavailable
└── TracesUnavailable             traces are wanted, but OpenTelemetry is not installed
"""

from penstock.domain.errors import Unavailable


class TracesUnavailable(Unavailable):
    """Traces are wanted, but OpenTelemetry is not installed."""

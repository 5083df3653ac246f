"""Errors of dispatch on Spark.

Unavailable
└── DispatchFailed    what may go could not be published
"""

from penstock.domain.errors import Unavailable


class DispatchFailed(Unavailable):
    """What may go could not be published."""

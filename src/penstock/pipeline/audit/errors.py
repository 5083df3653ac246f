"""Errors of the audit.

Unavailable
└── AuditFailed    an audit could not be made
"""

from penstock.core.errors import Unavailable


class AuditFailed(Unavailable):
    """An audit could not be made."""

"""Errors of the audit.

Unavailable
└── AuditFailed    an audit could not be made
"""

from penstock.domain.errors import Unavailable


class AuditFailed(Unavailable):
    """An audit could not be made."""

"""Errors of calls to other parts.

Unavailable
├── PartNotConfigured     the part's address is not set
└── PartUnreachable       the part does not answer, or not as that part does
"""

from penstock.domain.errors import Unavailable


class PartNotConfigured(Unavailable):
    """The part's address is not set."""

    def __init__(self, part: str, setting: str) -> None:
        super().__init__(f"the API does not know where the {part} is; set {setting} to its address")


class PartUnreachable(Unavailable):
    """The part does not answer, or not as that part does."""

    def __init__(self, part: str, url: str, reason: str, setting: str) -> None:
        super().__init__(
            f"the {part} at {url} cannot be reached: {reason}; check that it runs, or set {setting} to its address"
        )

"""Errors of the ways to other parts.

Unavailable
├── PartNotConfigured     nobody said where the part is
└── PartUnreachable       it does not answer, or not in the way that part does
"""

from penstock.domain.errors import Unavailable


class PartNotConfigured(Unavailable):
    """Nobody said where the part is."""

    def __init__(self, part: str, setting: str) -> None:
        super().__init__(f"the API does not know where the {part} is; set {setting} to its address")


class PartUnreachable(Unavailable):
    """A part does not answer, or not in the way that part does."""

    def __init__(self, part: str, url: str, reason: str, setting: str) -> None:
        super().__init__(
            f"the {part} at {url} cannot be reached: {reason}; see that it runs, or set {setting} to its address"
        )

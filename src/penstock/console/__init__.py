"""The web page: static files that use the API of their own origin."""

from penstock.console.front import WebFront
from penstock.console.upstream import Sign

__all__ = [
    "Sign",
    "WebFront",
]

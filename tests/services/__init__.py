"""Real services for tests, one module each, and the one rule for a service that is not there."""

import os
from typing import NoReturn

import pytest


def unavailable(service: str, reason: str) -> NoReturn:
    """Skip the test for want of a service; in CI, where every service must be there, fail it."""
    message = f"{service} is not available: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)

"""Fixtures and settings of all tests."""

import os

from hypothesis import settings

pytest_plugins = ["tests.services.postgres"]

# No deadline: a busy machine is not a bug. The blob lets a failure be replayed on another machine.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), max_examples=500, derandomize=False)
profile = "ci" if os.environ.get("CI") == "true" else "default"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or profile)

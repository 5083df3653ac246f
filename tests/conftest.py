"""Fixtures and settings of all tests."""

import os

from hypothesis import settings

# NATS's first: others import from it, and pytest rewrites assertions only before a module is imported.
pytest_plugins = [
    "tests.services.nats",
    "tests.services.activemq",
    "tests.services.moto_server",
    "tests.services.postgres",
    "tests.services.redis",
    "tests.sources.servers",
]

# No deadline: a busy machine is not a bug. The blob lets a failure be replayed on another machine.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), max_examples=500, derandomize=False)
profile = "ci" if os.environ.get("CI") == "true" else "default"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or profile)

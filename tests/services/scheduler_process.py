"""A real scheduler in its own process."""

from collections.abc import Mapping
from pathlib import Path

from tests.services.served_part import ServedPart

SECRET = "a secret that all nodes share"


class SchedulerProcess(ServedPart):
    """`penstock serve scheduler`."""

    def __init__(self, directory: Path, name: str, *options: str, settings: Mapping[str, str] | None = None) -> None:
        secret = {"PENSTOCK_JOBS__AUTH_SECRET": SECRET}
        super().__init__(directory, name, ("scheduler", *options), {**secret, **(settings or {})})

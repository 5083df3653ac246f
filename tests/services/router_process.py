"""A real router in its own process."""

import json
from pathlib import Path

from tests.services.served_part import ServedPart


class RouterProcess(ServedPart):
    """`penstock serve router` with a configuration file, allowed to deliver to loopback."""

    def __init__(self, directory: Path, configuration: object, *options: str) -> None:
        file = directory / "router.json"
        file.write_text(json.dumps(configuration))
        arguments = ("router", "--config", str(file), *options)
        super().__init__(directory, "router", arguments, {"PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8"})

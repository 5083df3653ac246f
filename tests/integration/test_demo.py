"""The demo as `make demo` runs it, only smaller."""

import json
import subprocess

from tests.services.sqs_server import PENSTOCK


def test_the_demo_delivers_everything_in_order() -> None:
    ran = subprocess.run(
        [str(PENSTOCK), "demo", "--orders", "20", "--json"], capture_output=True, text=True, timeout=200, check=False
    )

    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    assert [result["name"] for result in results] == [
        "billing",
        "warehouse-slow",
        "partner-flaky",
        "mailer-limited",
    ]
    for result in results:
        assert result["delivered"] == 140
        assert result["in_order"]
        assert result["complete"]
        assert result["signed"]

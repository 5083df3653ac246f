"""The Python blocks of docs/howto/publish-and-receive.md, one after the other, against one real `penstock up`."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Event
from penstock.client.event import encode_event
from penstock.domain.signing import sign
from penstock.edge.clock import wall_seconds
from tests.rigs.penstock_process import Machine

pytestmark = pytest.mark.xdist_group("up")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "publish-and-receive.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_do_what_the_page_says(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in BLOCK.findall(PAGE.read_text()):
        exec(block.replace("http://127.0.0.1:8080", machine.addresses["api"]), names)

    assert names["receipt"].is_new
    assert capsys.readouterr().out
    body = encode_event(Event(type="orders:placed", key="order-1", data={"total": 12}))
    made = sign([names["made"].secret], "job-1", int(wall_seconds()), body)
    headers = {
        "webhook-id": made.message_id,
        "webhook-timestamp": made.timestamp,
        "webhook-signature": made.signatures,
    }
    assert names["receive"](headers, body) == 200
    assert capsys.readouterr().out == "job-1 order-1 {'total': 12}\n"
    assert names["receive"](headers, body + b" ") == 401

"""A lake for tests of its readers, written without Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow

from penstock.history.lake.delta import LakeFiles, TableState
from penstock.history.lake.schema import DELIVERIES

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def delivery(place: int, **fields: Any) -> dict[str, Any]:
    """A row of `deliveries`: delivered at once, to one of two subscriptions, of one of three keys."""
    at = NOON + timedelta(minutes=place)
    key, subscription = f"key-{place % 3}", ("billing", "mail")[place % 2]
    usual = {
        "attempted_at": at, "job_id": f"j{place:05}", "attempt": 1, "outcome": "DELIVERED", "status": 200,
        "response_ms": 10 + place, "was_sent": True, "waited_ms": place, "tenant": "", "subscription_id": subscription,
        "subscription": subscription, "event_id": f"e{place:05}", "event_type": "orders:created", "key": key,
        "group_key": f"{subscription}:{key}", "pool": subscription, "endpoint": f"https://{subscription}.example/hook",
        "endpoint_host": f"{subscription}.example", "event_time": at, "event_bytes": 100, "created_at": at,
        "was_repaired": False, "position": place, "date": at.date(),
    }  # fmt: skip
    return {**dict.fromkeys(DELIVERIES.names), **usual, **fields}


def add_deliveries(lake: str, rows: Sequence[dict[str, Any]]) -> LakeFiles:
    """Add rows in one commit."""
    files = LakeFiles(lake, DELIVERIES)
    files.current()
    before: TableState = files.state()
    table = pyarrow.Table.from_pylist(list(rows), DELIVERIES.arrow)
    files.commit(files.write(table, f"part-{rows[0]['position']}"), rows[-1]["position"], before)
    return files

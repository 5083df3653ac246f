"""Jobs as a database would hand them out, for tests that need no database."""

from typing import Any

from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.pointer import DispatchMode

NOW_MS = 1_700_000_000_000
JOB_ID = "0HZXEQ5Y8JY5Z"


def dispatch_job(**fields: Any) -> DispatchJob:
    """A job whose first delivery has begun; `fields` are what is special about it."""
    usual: dict[str, Any] = {
        "id": JOB_ID,
        "tenant": "",
        "type": "orders:created",
        "event_id": None,
        "subscription_id": None,
        "group": None,
        "group_key": "orders:created:default",
        "sequence": 99,
        "mode": DispatchMode.BLOCK_ON_ERROR,
        "status": JobStatus.PROCESSING,
        "target": "https://orders.example/hook",
        "pool": "DISPATCH-POOL",
        "payload": b"{}",
        "content_type": "application/json",
        "headers": NO_ATTRIBUTES,
        "idempotency_key": None,
        "scheduled_for_ms": None,
        "due_at_ms": NOW_MS,
        "expires_at_ms": None,
        "attempt_count": 0,
        "delivery_count": 1,
        "publish_round": 0,
        "owner": "api",
        "lease_until_ms": NOW_MS + 60_000,
        "last_error": None,
        "created_at_ms": NOW_MS,
        "updated_at_ms": NOW_MS,
        "finished_at_ms": None,
    }
    return DispatchJob(**{**usual, **fields})

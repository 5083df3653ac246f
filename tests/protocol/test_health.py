"""`/health` of a served API: the verdict on everything, the same as its metrics say."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.console.front import WebFront
from penstock.edge.pause import pause
from penstock.events.statistics.inline import InlineCounter
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.server import HttpServer, Receive, Scope, Send, accept_lifespan, send_answer
from penstock.ops.config import FanOutBy
from penstock.testing.receiver import Reply
from tests.rigs.dispatch import DispatchRig, dispatch_rig
from tests.rigs.job_database import with_tables

NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def served(directory: Path, fan_out: FanOutBy = FanOutBy.INLINE, **addresses: str) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(with_tables(directory / "jobs.db"), durability="survives-process-crash-only")
    given: dict[str, Any] = {"router": "", "queues": "", "pipeline": "", **addresses}
    front = WebFront.at(**given)
    async with dispatch_rig(repository, front, data_dir=directory, fan_out=fan_out) as rig:
        yield rig


async def health(rig: DispatchRig) -> Any:
    """A verdict that is made now."""
    rig.clock.advance(3)
    answer = await rig.ask("GET", "/health")
    assert answer.status == 200, answer
    return answer.body


async def samples(rig: DispatchRig) -> dict[str, float]:
    """The metrics of subscriptions and of the verdict."""
    rig.clock.advance(3)
    text = (await rig.ask("GET", "/metrics")).body.decode()
    found = re.findall(r"^penstock_((?:subscription|health)_\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_an_outage_is_told_alike_by_health_and_metrics(tmp_path: Path) -> None:
    async with served(tmp_path) as rig:
        await rig.subscribe("billing", retryDelaysS=[])
        await rig.subscribe("quiet", pattern="invoices:**")
        fine = await health(rig)
        assert (fine["status"], fine["reasons"]) == ("HEALTHY", [])

        rig.receiver.script(*[Reply(503)] * 12)
        for number in range(12):
            await rig.publish(number, partitionkey=f"customer-{number}")
        await rig.publish(12, partitionkey="customer-0")
        await rig.dispatch_all()
        await InlineCounter(rig.repository.statistics, rig.clock, pause).count_some(100)

        found = await health(rig)
        assert found["status"] == "DEGRADED"
        codes = {reason["code"]: reason for reason in found["reasons"]}
        assert set(codes) == {"GROUPS_BLOCKED", "SUBSCRIPTION_FAILING", "BREAKER_OPEN"}
        assert codes["GROUPS_BLOCKED"]["message"].startswith("10 keys wait for a job of billing")
        assert [(each["name"], each["status"]) for each in found["subscriptions"]] == [
            ("billing", "DEGRADED"),
            ("quiet", "HEALTHY"),
        ]
        assert found["subscriptions"][0]["breaker"] == "OPEN"

        told = await samples(rig)
        assert told["health_status"] == 2
        assert told['health_reasons{code="GROUPS_BLOCKED",status="DEGRADED"}'] == 1
        assert told['subscription_blocked_groups{subscription="billing"}'] == 10
        assert told['subscription_breaker_state{subscription="billing"}'] == 2
        assert told['subscription_backlog_jobs{subscription="billing"}'] == found["subscriptions"][0]["backlog"]
        failed = 'subscription_deliveries_total{outcome="FAILED",subscription="billing"}'
        assert told[failed] == found["subscriptions"][0]["failed"]
        assert told['subscription_backlog_jobs{subscription="quiet"}'] == 0


async def test_a_part_that_does_not_answer_is_a_reason(tmp_path: Path) -> None:
    async with served(tmp_path, FanOutBy.PIPELINE, router=NOWHERE, queues=NOWHERE, pipeline=NOWHERE) as rig:
        found = await health(rig)
    assert found["status"] == "DEGRADED"
    assert [reason["code"] for reason in found["reasons"]] == ["PART_UNREACHABLE"] * 3
    assert {part["name"]: part["status"] for part in found["parts"]} == dict.fromkeys(
        ("router", "sqs", "pipeline"), "DEGRADED"
    )
    assert found["parts"][0]["url"] == NOWHERE
    assert found["reasons"][0]["message"].startswith(f"the router at {NOWHERE} cannot be reached: ")


async def test_without_spark_no_pipeline_is_missed(tmp_path: Path) -> None:
    async with served(tmp_path, pipeline=NOWHERE) as rig:
        assert (await health(rig))["status"] == "HEALTHY"


POOL = {
    "code": "billing",
    "concurrency": 10,
    "rateLimitPerMinute": None,
    "queueCapacity": 20,
    "queued": 20,
    "active": 10,
    "backingOff": 0,
    "availablePermits": 0,
    "groups": 3,
    "rateLimited": False,
    "draining": False,
    "oldestWaitingS": 7.0,
    **dict.fromkeys(("succeeded", "failed", "transient", "deferred", "rateLimitWaits", "submitted", "judged"), 0),
    "successRate": 1.0,
    "averageProcessingMs": 1.0,
}
QUEUE = {
    "uri": "http://127.0.0.1/q",
    **dict.fromkeys(("connections", "polls", "received", "acked", "nacked", "malformed", "inFlight"), 0),
    "lastPollAgeS": 1.0,
    "draining": False,
}
OVERVIEW = {
    "health": {"status": "HEALTHY", "reasons": []},
    "totals": dict.fromkeys(
        (
            *("pools", "queues", "queued", "active", "inFlight", "submitted", "succeeded", "failed", "transient"),
            *("deferred", "received", "acked", "nacked", "malformed"),
        ),
        0,
    ),
    "openBreakers": 0,
    "unacknowledgedWarnings": {"INFO": 4, "WARN": 2, "ERROR": 1, "CRITICAL": 0},
    "sync": {"initialised": True, "consuming": True},
}
ANSWERS: dict[str, object] = {
    "/monitoring": OVERVIEW,
    "/monitoring/pools": {"pools": [POOL], "cursor": None},
    "/monitoring/queues": {
        "queues": [
            {"name": "gone", "healthy": False, "paused": False, **QUEUE},
            {"name": "busy", "healthy": True, "paused": True, **QUEUE},
        ],
        "cursor": None,
    },
    "/monitoring/circuit-breakers": {"circuitBreakers": [], "cursor": None},
    "/api/pipeline": {
        "master": "local",
        "queries": [
            {"name": "fan-out", "status": "RUNNING", "lag": 20_000},
            {"name": "facts", "status": "WAITING", "lag": 0, "lastError": "the lake refuses"},
        ],
    },
    "/health/ready": {"status": "ready", "checks": {}},
}


async def test_what_the_router_says_becomes_reasons(tmp_path: Path) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        await send_answer(scope, send, 200, msgspec.json.encode(ANSWERS[scope["path"]]), {})

    async with (
        HttpServer(answer, "127.0.0.1", 0) as parts,
        served(tmp_path, FanOutBy.PIPELINE, router=parts.url, queues=parts.url, pipeline=parts.url) as rig,
    ):
        found = await health(rig)
    assert {reason["code"]: reason["status"] for reason in found["reasons"]} == {
        "QUEUE_UNREACHABLE": "DEGRADED",
        "PIPELINE_FAILING": "DEGRADED",
        "QUEUE_PAUSED": "WARNING",
        "POOL_FULL": "WARNING",
        "ROUTER_WARNINGS": "WARNING",
        "PIPELINE_LAGS": "WARNING",
    }
    assert found["pipelineLag"] == 20_000
    assert {part["name"]: part["status"] for part in found["parts"]} == {
        "router": "DEGRADED",
        "sqs": "HEALTHY",
        "pipeline": "DEGRADED",
    }

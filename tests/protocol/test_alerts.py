"""Penstock's own events reach a subscription to them, as an event or as a text for a chat, and no other one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.delivery.breakers import Breakers
from penstock.edge.pause import pause
from penstock.events.api.health.alerts import AlertRules, AlertWatch
from penstock.events.api.health.watch import HealthWatch, NoParts
from penstock.events.store.sqlite import sqlite_repository
from penstock.testing.receiver import Reply
from tests.rigs.dispatch import DispatchRig, dispatch_rig
from tests.rigs.job_database import with_tables


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    async with dispatch_rig(repository) as rig:
        yield rig


def watch_of(rig: DispatchRig) -> AlertWatch:
    health = HealthWatch(rig.repository, Breakers(rig.clock), rig.clock, NoParts())
    return AlertWatch(rig.repository, health, AlertRules(), rig.clock, lambda: rig.ids.next_id(rig.now_ms), pause)


async def blocked(rig: DispatchRig) -> str:
    """A subscription whose only key waits for a job in ERROR."""
    subscription_id, _ = await rig.subscribe(retryDelaysS=[])
    rig.receiver.script(Reply(500))
    await rig.publish(1)
    await rig.dispatch_all()
    return subscription_id


async def test_an_alert_is_delivered_as_an_event_once_and_again_when_it_is_over(rig: DispatchRig) -> None:
    await rig.subscribe("oncall", pattern="penstock:**")
    await blocked(rig)
    await rig.subscribe("everything", pattern="**", mode="IMMEDIATE")
    before = len(rig.receiver.requests)
    watch, restarted = watch_of(rig), watch_of(rig)
    await watch.look()
    await restarted.look()
    await rig.dispatch_all()
    (request,) = rig.receiver.requests[before:]
    assert request.path == "/oncall", "a subscription to all events gets no alerts"
    event = json.loads(request.body)
    assert (event["type"], event["source"]) == ("penstock:group.blocked", "penstock")
    assert event["data"]["subscription"] == "billing"
    assert "1 key waits for a job of billing" in event["data"]["text"]

    (failed,) = await rig.jobs("?status=ERROR")
    await rig.ask("POST", f"/api/v1/jobs/{failed['id']}/retry")
    await rig.dispatch_all()
    rig.clock.advance(5)
    await watch.look()
    await rig.dispatch_all()
    assert json.loads(rig.receiver.requests[-1].body)["type"] == "penstock:warning.cleared"


async def test_a_chat_gets_a_text(rig: DispatchRig) -> None:
    await rig.subscribe("chat", pattern="penstock:**", body="slack")
    await blocked(rig)
    await watch_of(rig).look()
    await rig.dispatch_all()
    request = rig.receiver.requests[-1]
    assert request.headers["content-type"] == "application/json"
    body = json.loads(request.body)
    assert list(body) == ["text"]
    assert body["text"].startswith("DEGRADED: 1 key waits for a job of billing that was given up")


async def test_a_failing_subscription_to_alerts_causes_no_alert_and_tenants_see_their_own(rig: DispatchRig) -> None:
    await rig.subscribe("oncall", pattern="penstock:**", retryDelaysS=[])
    await rig.subscribe("theirs", pattern="penstock:**", tenant="acme")
    await blocked(rig)
    rig.receiver.script(Reply(500))
    watch = watch_of(rig)
    await watch.look()
    await rig.dispatch_all()
    paths = [request.path for request in rig.receiver.requests]
    assert paths == ["/billing", "/oncall"], "billing is not of acme"
    rig.clock.advance(5)
    before = len(await rig.jobs())
    await watch.look()
    assert len(await rig.jobs()) == before


async def test_an_event_without_a_text_is_sent_as_it_is_and_calls_no_one(rig: DispatchRig) -> None:
    await rig.subscribe("chat", body="slack")
    await rig.publish(1, data={"to": "<!channel>"})
    await rig.dispatch_all()
    assert json.loads(rig.receiver.requests[-1].body) == {"text": 'orders:created: {"to":"&lt;!channel&gt;"}'}

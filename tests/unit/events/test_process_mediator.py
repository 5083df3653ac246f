"""A router that has the database processes its jobs itself, with the outcome that a request would have had."""

import asyncio
import time
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from penstock.delivery import Breakers
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import (
    SUCCESS,
    Deferred,
    HttpError,
    MediationOutcome,
    MediationResult,
    is_retryable,
)
from penstock.domain.pointer import MessagePointer
from penstock.events.process import PATH, TOKEN_LIFETIME_S, AuthTokens, LocalProcessing, ProcessSettings
from penstock.events.store.sqlite import sqlite_repository
from penstock.ops.telemetry import Metrics
from penstock.router import Permits, StagedMediator
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.job_database import with_tables
from tests.rigs.jobs import JobRig

SECRET = b"a secret for tests only"
BY_HTTP = MediationOutcome(MediationResult.SUCCESS, status=299)


class Others:
    """The mediator of everything else: remembers what it got."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        self.got.append(pointer.id)
        return BY_HTTP


class MediatorRig(JobRig):
    """A router's mediator on a database, and a receiver of webhooks."""

    def __init__(self, path: Path, receiver: RecordingReceiver) -> None:
        super().__init__(sqlite_repository(path, durability="survives-process-crash-only"))
        self.receiver = receiver
        self.others = Others()
        self.tokens = AuthTokens([SECRET])
        self.breakers = Breakers(self.clock)
        self.metrics = Metrics("router")
        self.mediator: StagedMediator

    def pointer(
        self, job_id: str, target: str = f"http://127.0.0.1:8080{PATH}", token: str | None = None
    ) -> MessagePointer:
        given = self.tokens.token(job_id, self.now_ms) if token is None else token
        return MessagePointer(id=job_id, mediation_target=target, auth_token=given or None)

    async def attempt(self, pointer: MessagePointer) -> MediationOutcome | None:
        permits = Permits(1, time.monotonic, lambda: None, lambda group, answer: None)
        return await self.mediator.attempt_in_stages(pointer, 1, permits.prepare())

    async def queued(self, **fields: Any) -> str:
        job_id = await self.make(target=f"{self.receiver.url}/hook", payload=b"{}", **fields)
        await self.queue_all()
        return job_id


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MediatorRig]:
    async with RecordingReceiver() as receiver:
        rig = MediatorRig(with_tables(tmp_path / "jobs.db"), receiver)
        settings = ProcessSettings(secrets=(SECRET,), egress_allow=(ip_network("127.0.0.0/8"),))
        local = LocalProcessing(rig.repository, rig.clock, settings)
        async with local.mediator(rig.others, rig.breakers, rig.metrics) as rig.mediator:
            yield rig


async def test_a_job_of_this_database_is_delivered_without_a_request_to_the_api(rig: MediatorRig) -> None:
    job_id = await rig.queued()

    assert await rig.attempt(rig.pointer(job_id)) == SUCCESS

    assert await rig.status(job_id) is JobStatus.COMPLETED
    assert [request.headers["penstock-job"] for request in rig.receiver.requests] == [job_id]
    assert rig.others.got == []


async def test_counts_and_breakers_are_those_of_the_router(rig: MediatorRig) -> None:
    await rig.attempt(rig.pointer(await rig.queued()))

    assert b'penstock_job_deliveries_total{outcome="DELIVERED"} 1.0' in rig.metrics.exposition()
    assert [view.endpoint for view in rig.breakers.views()] == [f"{rig.receiver.url}/hook"]


@pytest.mark.parametrize(
    ("target", "token"),
    [
        ("https://elsewhere.example/hook", None),
        (f"http://127.0.0.1:8080{PATH}", "v1.99999999999.forged"),
        (f"http://127.0.0.1:8080{PATH}", ""),
        ("http://[not a url/api/dispatch/process", None),
    ],
)
async def test_what_is_not_proven_to_be_ours_goes_by_http(rig: MediatorRig, target: str, token: str | None) -> None:
    job_id = await rig.queued()

    assert await rig.attempt(rig.pointer(job_id, target, token)) == BY_HTTP

    assert rig.others.got == [job_id]
    assert await rig.status(job_id) is JobStatus.QUEUED


async def test_an_expired_token_is_left_to_the_endpoint(rig: MediatorRig) -> None:
    pointer = rig.pointer(await rig.queued())
    rig.clock.advance(TOKEN_LIFETIME_S)

    assert await rig.attempt(pointer) == BY_HTTP


async def test_a_job_that_this_database_does_not_have_is_left_to_the_endpoint(rig: MediatorRig) -> None:
    assert await rig.attempt(rig.pointer("nobody")) == BY_HTTP


async def test_the_pointer_of_a_job_under_way_returns_later(rig: MediatorRig) -> None:
    job_id = await rig.queued()

    first, second = await asyncio.gather(*(rig.attempt(rig.pointer(job_id)) for _ in range(2)))

    assert first == SUCCESS
    assert second is not None
    assert (second.error, second.delay_s, second.status) == (Deferred(), 10, 200)


async def test_a_failed_delivery_is_acknowledged_because_the_database_has_it(rig: MediatorRig) -> None:
    job_id = await rig.queued()
    rig.receiver.script(Reply(500))

    assert await rig.attempt(rig.pointer(job_id)) == SUCCESS
    assert await rig.status(job_id) is JobStatus.PENDING


async def test_a_database_that_fails_is_an_answer_of_503_that_is_tried_again(rig: MediatorRig) -> None:
    job_id = await rig.queued()
    await rig.repository.close()

    outcome = await rig.attempt(rig.pointer(job_id))

    assert outcome == MediationOutcome(MediationResult.ERROR_PROCESS, error=HttpError(503), status=503)
    assert is_retryable(outcome.error)

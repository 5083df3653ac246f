"""Processes the pointers of this installation in the router's own process, without a request to the endpoint."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from penstock.delivery import Breakers
from penstock.domain.errors import PenstockError
from penstock.domain.outcome import SUCCESS, MediationOutcome, outcome_of
from penstock.domain.pointer import PROCESS_PATH, MessagePointer
from penstock.edge.clock import Clock
from penstock.events.process.processor import Processor
from penstock.events.process.server import ProcessSettings, open_processor
from penstock.events.process.tokens import AuthTokens
from penstock.events.store import JobRepository
from penstock.http.problems import problem_of
from penstock.ops.telemetry import Metrics
from penstock.router import Mediator, MessageLeaseEnded, Permit, StagedMediator

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class ProcessMediator:
    """Hands pointers with a token of this installation to its processor, and all others to another mediator.

    The outcome is the one that the answer of the process endpoint would have (JOB-PROCESS-1). A job that this database
    does not have, and a token that is not valid, are left to the endpoint that the pointer names.
    """

    def __init__(self, processor: Processor, tokens: AuthTokens, clock: Clock, others: Mediator) -> None:
        self._processor = processor
        self._tokens = tokens
        self._clock = clock
        self._others = others
        self._is_endpoint: dict[str, bool] = {}

    async def attempt_in_stages(self, pointer: MessagePointer, attempt: int, permit: Permit) -> MediationOutcome | None:
        """Deliver the job of a pointer here; the permit is held during the request to the subscriber."""
        if not self._is_ours(pointer):
            return await self._by_http(pointer, attempt, permit)
        try:
            processed = await self._processor.process_known(pointer.id, permit)
        except MessageLeaseEnded:
            raise
        except Exception as error:
            return self._failed(pointer, attempt, error)
        if processed is None:
            return await self._by_http(pointer, attempt, permit)
        if processed.ack:
            return SUCCESS
        return outcome_of(HTTPStatus.OK, None, _encode(processed), self._clock.now_ms())

    async def _by_http(self, pointer: MessagePointer, attempt: int, permit: Permit) -> MediationOutcome | None:
        await permit.take()
        return await self._others.attempt(pointer, attempt)

    def _failed(self, pointer: MessagePointer, attempt: int, error: Exception) -> MediationOutcome:
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR
        if isinstance(error, PenstockError):
            status = problem_of(error).status
            log.info("not processed: %s", error.message, extra={"message_id": pointer.id, "attempt": attempt})
        else:
            log.error("processing failed unexpectedly", exc_info=error, extra={"message_id": pointer.id})
        return outcome_of(status, None, b"", self._clock.now_ms())

    def _is_ours(self, pointer: MessagePointer) -> bool:
        target, token = pointer.mediation_target, pointer.auth_token
        is_endpoint = self._is_endpoint.get(target)
        if is_endpoint is None:
            is_endpoint = _names_endpoint(target)
            if len(self._is_endpoint) < _KNOWN_TARGETS:
                self._is_endpoint[target] = is_endpoint
        return is_endpoint and token is not None and self._tokens.check(token, pointer.id, self._clock.now_ms())


_KNOWN_TARGETS = 1000


def _names_endpoint(target: str) -> bool:
    try:
        return urlsplit(target).path.endswith(PROCESS_PATH)
    except ValueError:
        return False


class LocalProcessing:
    """Gives a router the processor of a database (`penstock.router.server.LocalMediation`)."""

    def __init__(self, repository: JobRepository, clock: Clock, settings: ProcessSettings) -> None:
        self._repository = repository
        self._clock = clock
        self._settings = settings

    @asynccontextmanager
    async def mediator(self, others: Mediator, breakers: Breakers, metrics: Metrics) -> AsyncIterator[StagedMediator]:
        """Open the database, and return a mediator that processes its jobs here."""
        clock, settings = self._clock, self._settings
        await self._repository.open(clock.now_ms())
        try:
            async with open_processor(self._repository, clock, settings, metrics, breakers, part="router") as parts:
                for subscription in await self._repository.list_subscriptions():
                    parts.courier.secret_box.opened(subscription)  # or it does not start
                yield ProcessMediator(parts.processor, AuthTokens(settings.secrets), clock, others)
        finally:
            await self._repository.close()

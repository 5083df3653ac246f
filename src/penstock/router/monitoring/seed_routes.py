"""`POST /api/seed/messages`: publish test messages to a queue (ROUTER-LOAD-1)."""

from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.domain.errors import FailedPrecondition, NotFound
from penstock.domain.message import partition_of
from penstock.domain.pointer import DEFAULT_POOL_CODE, MessagePointer, encode_pointer
from penstock.http.api import Call, NoBody, route
from penstock.ops.telemetry import mask_secrets
from penstock.queues import Publication, Publisher, QueueSpec
from penstock.router.config.sync import ConfigSync
from penstock.router.monitoring.test_endpoints import NAMES, PREFIX

MAX_SEEDED = 10_000
# A test endpoint's name, or a URL. The lookahead rejects a final line break, which `$` alone would accept.
ENDPOINT = rf"^({'|'.join(NAMES)}|https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?([/?][!-~]*)?)$(?!\n)"


class GroupMode(StrEnum):
    """How messages are assigned to groups."""

    UNIQUE = "unique"
    ONE_OF_EIGHT = "1of8"
    SINGLE = "single"


class SeedQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Number of messages, endpoint, queue and pool; the default is the first queue and pool of the configuration."""

    count: Annotated[int, Meta(ge=1, le=MAX_SEEDED)] = 10
    endpoint: Annotated[str, Meta(pattern=ENDPOINT)] = "fast"
    queue: str | None = None
    message_group_mode: GroupMode = GroupMode.UNIQUE
    pool: str | None = None


class Seeded(msgspec.Struct, frozen=True, rename="camel"):
    """The result of publishing test messages."""

    queue: str
    endpoint: str
    published: int
    failed: int
    first_failure: str | None


class SeedRoutes:
    """The route that publishes test messages. `own_url` is the URL of the test endpoints, None if disabled."""

    def __init__(
        self,
        sync: ConfigSync,
        publisher_for: Callable[[str], Publisher],
        new_id: Callable[[], str],
        own_url: Callable[[], str | None],
    ) -> None:
        self._sync = sync
        self._publisher_for = publisher_for
        self._new_id = new_id
        self._own_url = own_url

    @route(
        "POST",
        "/api/seed/messages",
        summary="Publish test messages to a queue.",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def _seed(self, call: Call[SeedQuery, NoBody]) -> Seeded:
        query = call.query
        queue, target = self._queue(query.queue), self._target(query.endpoint)
        pool = query.pool or self._first_pool()
        messages = [self._publication(query.message_group_mode, target, pool, n) for n in range(query.count)]
        results = await _published(self._publisher_for(queue.queue_uri), messages)
        failures = [error for error in results if error is not None]
        first = mask_secrets(str(failures[0])) if failures else None
        return Seeded(queue.queue_name, target, len(results) - len(failures), len(failures), first)

    def _queue(self, name: str | None) -> QueueSpec:
        configuration = self._sync.configuration
        queues = configuration.queues if configuration is not None else ()
        for queue in queues:
            if name in (None, queue.queue_name):
                return queue
        names = ", ".join(queue.queue_name for queue in queues) or "it has none"
        raise NotFound(
            f"the configuration has no queue {name!r} ({names})" if name else "the configuration has no queue"
        )

    def _first_pool(self) -> str:
        configuration = self._sync.configuration
        pools = configuration.processing_pools if configuration is not None else ()
        return pools[0].code if pools else DEFAULT_POOL_CODE

    def _target(self, endpoint: str) -> str:
        if endpoint not in NAMES:
            return endpoint
        own_url = self._own_url()
        if own_url is None:
            raise FailedPrecondition("the test endpoints are disabled; set router.test_endpoints = true, or give a URL")
        return own_url + PREFIX + endpoint

    def _publication(self, mode: GroupMode, target: str, pool: str, number: int) -> Publication:
        message_id = self._new_id()
        group = _group(mode, message_id, number)
        pointer = MessagePointer(id=message_id, mediation_target=target, pool_code=pool, message_group_id=group)
        return Publication(encode_pointer(pointer), group, message_id)


def _group(mode: GroupMode, message_id: str, number: int) -> str:
    match mode:
        case GroupMode.UNIQUE:
            return f"msg-{number}"
        case GroupMode.ONE_OF_EIGHT:
            return f"group-{partition_of(message_id, 8)}"
        case GroupMode.SINGLE:
            return "single-group"


async def _published(publisher: Publisher, messages: list[Publication]) -> list[Exception | None]:
    try:
        await publisher.open()
        return await publisher.publish(messages)
    finally:
        await publisher.close()

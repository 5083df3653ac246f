"""The admin endpoints: list, describe, peek, purge, redrive, snapshot and retire, as JSON over HTTP."""

from base64 import b64encode
from collections.abc import Mapping

import msgspec

from penstock.client.types import WholeOrPageQuery
from penstock.engine import Entry, EntryState
from penstock.http.api import Call, NoBody, NoQuery, RouteTable, parse_query, route, routes_of, whole_or_page_of
from penstock.http.errors import BadCursor
from penstock.http.problems import Refused
from penstock.ops.telemetry import mask_json_secrets
from penstock.sqs.actions.dead_letters import start_message_move_task
from penstock.sqs.actions.queues import live_counters, purge
from penstock.sqs.admin.shapes import (
    MAX_DEAD_LETTER_SOURCES,
    PeekedMessage,
    PeekedPage,
    PeekQuery,
    Purged,
    QueueDescription,
    QueueSummaries,
    QueueSummary,
    RedriveRequest,
    RedriveStarted,
    Retired,
)
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, queue_does_not_exist
from penstock.sqs.model import StartMessageMoveTaskRequest
from penstock.sqs.queue.attributes import shown
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.snapshot import QueueStanding, SnapshotPage, SnapshotQuery, retire, snapshot, standing
from penstock.sqs.service import SqsService

ADMIN_PREFIX = "/admin/queues"
_ONE = f"{ADMIN_PREFIX}/{{name}}"
_SHOWN_TASKS = 10
_encode = msgspec.json.Encoder().encode


class AdminSurface:
    """Answers the admin endpoints."""

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self.table = RouteTable(*routes_of(self))

    async def answer(self, method: str, raw_path: bytes, query_string: bytes, content: bytes) -> tuple[int, bytes]:
        """Return the status and the JSON body of the answer."""
        found = self.table.find(raw_path.rstrip(b"/"))
        route = None if found is None else found.routes.get(method)
        if found is None or route is None:
            return 404, _encode({"error": f"no such admin endpoint: {method} {raw_path.decode('latin-1')[:200]}"})
        try:
            query = parse_query(query_string, route.query)
            body = msgspec.json.decode(content or b"{}", type=route.body) if route.takes_body else NoBody()
            return 200, _encode(await route.answered(Call(found.path, query, body, content)))
        except Refused as refused:
            raise invalid_parameter(refused.problem.detail) from None
        except BadCursor as error:
            raise invalid_parameter(error.message) from None
        except msgspec.DecodeError as error:
            raise SqsError(ErrorKind.SERIALIZATION, str(error)) from None

    @route("GET", ADMIN_PREFIX, summary="All queues, by name.")
    def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> QueueSummaries:
        queues, asked = self._service.queues, call.query
        names, cursor = page_of_names(sorted(queues), asked)
        return QueueSummaries([self._summary(queues[name]) for name in names], cursor)

    def _summary(self, queue: SqsQueue) -> QueueSummary:
        live = live_counters(self._service, queue)
        return QueueSummary(
            name=queue.name,
            fifo=queue.fifo,
            partitions=len(queue.partitions),
            visible=live.visible,
            not_visible=live.not_visible,
            delayed=live.delayed,
            waiting_receivers=len(queue.waiters) + len(queue.waiters.watchers),
        )

    @route("GET", _ONE, summary="A queue with its attributes, tags and dead-letter sources.")
    async def _description(self, call: Call[NoQuery, NoBody]) -> QueueDescription:
        service, queue = self._service, self._find(call.path)
        live = live_counters(service, queue)
        sources = await service.transfers.dead_letter_sources(queue)
        return QueueDescription(
            **msgspec.structs.asdict(self._summary(queue)),
            arn=live.queue_arn,
            attributes=shown(queue.attributes, ["All"], live, admin=True),
            tags=queue.record.tags,
            dead_letter_sources=sources[:MAX_DEAD_LETTER_SOURCES],
            dead_letter_source_count=len(sources),
            move_tasks=service.moves.listed(queue, _SHOWN_TASKS),
            partition_messages=[counters.total for counters in queue.counters()],
            throttle_tokens={
                str(level.action): level.tokens for level in queue.throttle.levels(service.clock.now_ms())
            },
        )

    @route("GET", f"{_ONE}/messages", summary="Messages of a queue, without receiving them.")
    async def _peek(self, call: Call[PeekQuery, NoBody]) -> PeekedPage:
        """Return messages in the order of each partition, one partition after another; nothing is leased or changed."""
        queue, limit = self._find(call.path), call.query.limit
        index, after_seq = _place(call.query.cursor)
        messages: list[PeekedMessage] = []
        while index < len(queue.partitions) and len(messages) < limit:
            partition = queue.partitions[index]
            for entry in await partition.shell.peek(partition.queue, after_seq, limit - len(messages)):
                messages.append(_peeked(index, entry))
                after_seq = entry.seq
            if len(messages) < limit:
                index, after_seq = index + 1, 0
        return PeekedPage(messages, f"{index}.{after_seq}" if index < len(queue.partitions) else None)

    @route("GET", f"{_ONE}/partitions", summary="The sequence numbers and counts of a queue's partitions.")
    def _standing(self, call: Call[NoQuery, NoBody]) -> QueueStanding:
        return standing(self._find(call.path))

    @route(
        "GET",
        f"{_ONE}/partitions/{{index}}/messages",
        summary="Messages of a partition, with everything their senders set.",
    )
    async def _snapshot(self, call: Call[SnapshotQuery, NoBody]) -> SnapshotPage:
        queue, index = self._find(call.path), call.path["index"]
        if not (index.isascii() and index.isdecimal()):
            raise invalid_parameter(f"a partition must be a number, not {index[:100]!r}")
        return await snapshot(queue, int(index), call.query.after, call.query.limit)

    @route("POST", f"{_ONE}/retire", summary="Delete a queue if it has not changed since it was read.")
    async def _retire(self, call: Call[NoQuery, QueueStanding]) -> Retired:
        name = call.path["name"]
        await retire(self._service, name, call.body)
        return Retired(name)

    @route("POST", f"{_ONE}/purge", summary="Delete all messages of a queue.")
    async def _purge(self, call: Call[NoQuery, NoBody]) -> Purged:
        queue = self._find(call.path)
        await purge(self._service, queue)
        return Purged(queue.name)

    @route("POST", f"{_ONE}/redrive", summary="Move dead letters back to where they came from.")
    async def _redrive(self, call: Call[NoQuery, RedriveRequest]) -> RedriveStarted:
        service, queue, request = self._service, self._find(call.path), call.body
        destination = None if request.destination is None else service.arn_of(request.destination)
        if destination is not None and not (await service.transfers.describe(destination)).exists:
            raise queue_does_not_exist()
        move = StartMessageMoveTaskRequest(service.arn_of(queue.name), destination, request.per_second)
        return RedriveStarted((await start_message_move_task(service, SqsCaller(b""), move)).task_handle)

    def _find(self, path: Mapping[str, str]) -> SqsQueue:
        return self._service.find(path["name"])


def page_of_names(names: list[str], asked: WholeOrPageQuery) -> tuple[list[str], str | None]:
    """Return the names on a page of the list of queues, and the cursor of the next page."""
    return whole_or_page_of(names, lambda name: (name,), tuple[str], asked.limit, asked.cursor)


def _place(cursor: str | None) -> tuple[int, int]:
    """Return the partition and the sequence number after which a peek continues."""
    try:
        index, after_seq = (int(part) for part in (cursor or "0.0").split("."))
    except ValueError:
        raise invalid_parameter("cursor must be one that the previous page returned") from None
    if index < 0 or after_seq < 0:
        raise invalid_parameter("cursor must be one that the previous page returned")
    return index, after_seq


def _peeked(partition: int, entry: Entry) -> PeekedMessage:
    return PeekedMessage(
        message_id=entry.message.id,
        partition=partition,
        sequence=entry.seq,
        group=entry.message.group or None,
        state=EntryState(entry.state).name.lower(),
        sent_ms=entry.message.sent_ms,
        receive_count=entry.receive_count,
        body=mask_json_secrets(entry.message.body.decode(errors="replace")),
        attributes={
            name: value if isinstance(value, str) else _shown_value(value.type, value.value)
            for name, value in entry.message.attributes.items()
        },
    )


def _shown_value(type_name: str, value: bytes) -> str:
    return b64encode(value).decode() if type_name.startswith("Binary") else value.decode()

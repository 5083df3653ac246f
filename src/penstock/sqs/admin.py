"""The admin surface: list, describe, peek, purge and redrive, as JSON over HTTP.

GET  /admin/queues
GET  /admin/queues/NAME
GET  /admin/queues/NAME/messages?cursor=…&limit=…
POST /admin/queues/NAME/purge
POST /admin/queues/NAME/redrive      {"destination": "NAME", "per_second": 10}, both optional

and those of `snapshot`.
"""

from base64 import b64encode
from urllib.parse import parse_qs, unquote

import msgspec

from penstock.queue.entry import EntryState
from penstock.sqs.actions.dead_letters import start_message_move_task
from penstock.sqs.actions.queues import live_counters, purge
from penstock.sqs.attributes import shown
from penstock.sqs.caller import Caller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import StartMessageMoveTaskRequest
from penstock.sqs.queue import SqsQueue
from penstock.sqs.service import SqsService
from penstock.sqs.snapshot import QueueStanding, retire, snapshot, standing

MAX_PEEK = 100


class RedriveOrder(msgspec.Struct):
    """The body of a redrive."""

    destination: str | None = None
    per_second: int | None = None


_encode = msgspec.json.Encoder().encode
_decode_order = msgspec.json.Decoder(RedriveOrder).decode
_decode_standing = msgspec.json.Decoder(QueueStanding).decode


class AdminSurface:
    """Answers the admin endpoints."""

    def __init__(self, service: SqsService) -> None:
        self._service = service

    async def answer(self, method: str, path: str, query_string: bytes, body: bytes) -> tuple[int, bytes]:
        """Status and JSON body."""
        parts = [unquote(part) for part in path.strip("/").split("/")][1:]
        match method, parts:
            case "GET", ["queues"]:
                return 200, _encode({"queues": [self._summary(queue) for queue in self._sorted()]})
            case "GET", ["queues", name]:
                return 200, _encode(self._description(self._service.find(name)))
            case "GET", ["queues", name, "messages"]:
                return 200, _encode(
                    await self._peek(self._service.find(name), parse_qs(query_string.decode("latin-1")))
                )
            case "GET", ["queues", name, "partitions"]:
                return 200, _encode(standing(self._service.find(name)))
            case "GET", ["queues", name, "partitions", index, "messages"]:
                return 200, _encode(
                    await self._snapshot(self._service.find(name), index, parse_qs(query_string.decode("latin-1")))
                )
            case "POST", ["queues", name, "retire"]:
                await self._retire(name, body)
                return 200, _encode({"retired": name})
            case "POST", ["queues", name, "purge"]:
                await purge(self._service, self._service.find(name))
                return 200, _encode({"purged": name})
            case "POST", ["queues", name, "redrive"]:
                return 200, _encode({"task": await self._redrive(self._service.find(name), body)})
        return 404, _encode({"error": f"no such admin endpoint: {method} {path}"})

    def _sorted(self) -> list[SqsQueue]:
        return [self._service.queues[name] for name in sorted(self._service.queues)]

    def _summary(self, queue: SqsQueue) -> dict[str, object]:
        live = live_counters(self._service, queue)
        return {
            "name": queue.name,
            "fifo": queue.fifo,
            "partitions": len(queue.partitions),
            "visible": live.visible,
            "not_visible": live.not_visible,
            "delayed": live.delayed,
            "waiting_receivers": len(queue.waiters),
        }

    def _description(self, queue: SqsQueue) -> dict[str, object]:
        service = self._service
        live = live_counters(service, queue)
        return {
            **self._summary(queue),
            "arn": live.queue_arn,
            "attributes": shown(queue.attributes, ["All"], live, admin=True),
            "tags": queue.record.tags,
            "dead_letter_sources": service.dead_letter_sources(queue),
            "move_tasks": [msgspec.to_builtins(task) for task in service.moves.listed(queue, 10)],
            "partition_messages": [counters.total for counters in queue.counters()],
            "throttle_tokens": {
                str(level.action): level.tokens
                for level in service.throttles.tokens_remaining(service.clock.now_ms())
                if level.queue_name == queue.name
            },
        }

    async def _peek(self, queue: SqsQueue, query: dict[str, list[str]]) -> dict[str, object]:
        """Messages in the order of each partition, one partition after another; nothing is leased or changed."""
        try:
            limit = int(query.get("limit", ["10"])[0])
            index, after_seq = (int(part) for part in query.get("cursor", ["0.0"])[0].split("."))
        except ValueError:
            raise invalid_parameter("limit is a number, cursor is what the last page gave") from None
        if index < 0 or after_seq < 0:
            raise invalid_parameter("cursor is what the last page gave")
        if not 1 <= limit <= MAX_PEEK:
            raise invalid_parameter(f"limit is between 1 and {MAX_PEEK}, got {limit}")
        messages: list[dict[str, object]] = []
        while index < len(queue.partitions) and len(messages) < limit:
            partition = queue.partitions[index]
            entries = await partition.shell.peek(partition.queue, after_seq, limit - len(messages))
            for entry in entries:
                messages.append(
                    {
                        "message_id": entry.message.id,
                        "partition": index,
                        "sequence": entry.seq,
                        "group": entry.message.group or None,
                        "state": EntryState(entry.state).name.lower(),
                        "sent_ms": entry.message.sent_ms,
                        "receive_count": entry.receive_count,
                        "body": entry.message.body.decode(errors="replace"),
                        "attributes": {
                            name: value if isinstance(value, str) else _shown_value(value.type, value.value)
                            for name, value in entry.message.attributes.items()
                        },
                    }
                )
                after_seq = entry.seq
            if len(messages) < limit:
                index, after_seq = index + 1, 0
        return {"messages": messages, "cursor": f"{index}.{after_seq}" if index < len(queue.partitions) else None}

    async def _snapshot(self, queue: SqsQueue, index: str, query: dict[str, list[str]]) -> object:
        try:
            after, limit = int(query.get("after", ["0"])[0]), int(query.get("limit", ["100"])[0])
            return await snapshot(queue, int(index), after, limit)
        except ValueError:
            raise invalid_parameter("a partition, after and limit are numbers") from None

    async def _retire(self, name: str, body: bytes) -> None:
        try:
            expected = _decode_standing(body)
        except msgspec.DecodeError as error:
            raise SqsError(ErrorKind.SERIALIZATION, str(error)) from None
        await retire(self._service, name, expected)

    async def _redrive(self, queue: SqsQueue, body: bytes) -> str:
        try:
            order = _decode_order(body or b"{}")
        except msgspec.DecodeError as error:
            raise SqsError(ErrorKind.SERIALIZATION, str(error)) from None
        destination = (
            None if order.destination is None else self._service.arn_of(self._service.find(order.destination).name)
        )
        request = StartMessageMoveTaskRequest(self._service.arn_of(queue.name), destination, order.per_second)
        return (await start_message_move_task(self._service, Caller(b""), request)).task_handle


def _shown_value(type_name: str, value: bytes) -> str:
    return b64encode(value).decode() if type_name.startswith("Binary") else value.decode()

"""What the HTTP interface answers from: the queues of this process, or those of all nodes of a cluster."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from penstock.edge.clock import Clock
from penstock.http.server import Exchange
from penstock.sqs.actions.answer import Answer
from penstock.sqs.actions.table import ACTIONS
from penstock.sqs.admin.routes import AdminSurface
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.metrics import SqsMetrics
from penstock.sqs.model import Shape
from penstock.sqs.names import Scope
from penstock.sqs.service import ServiceSettings, SqsService
from penstock.sqs.watch import watch_queues


class Front(Protocol):
    """Answers the requests of callers that are known."""

    settings: ServiceSettings
    home: Scope
    clock: Clock
    metrics: SqsMetrics

    def new_request_id(self) -> str:
        """Return the id of the next request."""
        ...

    def require_owned(self) -> None:
        """Raise Unavailable if this process can answer nothing now."""

    def act(self, action: str, caller: SqsCaller, request: Shape) -> Answer:
        """Answer one of AWS's actions."""
        ...

    def watch(self, caller: SqsCaller, body: bytes) -> Awaitable[Shape]:
        """Wait until a queue of several has messages."""
        ...

    async def act_between(self, caller: SqsCaller, body: bytes) -> Shape:
        """Answer what a shard of another node asks one of this node."""
        ...

    async def administer(self, caller: SqsCaller, method: str, target: bytes, body: bytes) -> tuple[int, bytes]:
        """Answer a request to the admin endpoints, or to that of the cluster, of a caller that may use them."""
        ...

    def is_hop(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether another node of the cluster passed a request on."""
        ...

    def caller_of_hop(self, headers: Mapping[bytes, bytes], exchange: Exchange, json: bytes | None) -> SqsCaller:
        """Return who sent a request to the other node; SqsError if that node did not send this."""
        ...


class LocalFront:
    """Answers from the queues of this process, which is not a node of a cluster."""

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._admin = AdminSurface(service)
        self.settings = service.settings
        self.home = service.home
        self.clock = service.clock
        self.metrics = service.metrics
        self.new_request_id = service.new_request_id
        self.require_owned = service.require_owned

    def act(self, action: str, caller: SqsCaller, request: Shape) -> Answer:
        """Answer one of AWS's actions."""
        return ACTIONS[action](self._service, caller, request)

    def watch(self, caller: SqsCaller, body: bytes) -> Awaitable[Shape]:
        """Wait until a queue of several has messages."""
        return watch_queues(self._service, caller, body)

    async def act_between(self, caller: SqsCaller, body: bytes) -> Shape:
        """Refuse: there are no other nodes."""
        raise _no_cluster()

    async def administer(self, caller: SqsCaller, method: str, target: bytes, body: bytes) -> tuple[int, bytes]:
        """Answer a request to the admin endpoints."""
        path, _, query = target.partition(b"?")
        if path == b"/cluster":
            return 404, b'{"error":"this server is not a node of a cluster: start it with --node NAME"}'
        return await self._admin.answer(method, path, query, body)

    def is_hop(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return False: there are no other nodes."""
        return False

    def caller_of_hop(self, headers: Mapping[bytes, bytes], exchange: Exchange, json: bytes | None) -> SqsCaller:
        """Refuse: there are no other nodes."""
        raise _no_cluster()


def _no_cluster() -> SqsError:
    return SqsError(ErrorKind.ACCESS_DENIED, "This server is not a node of a cluster.")

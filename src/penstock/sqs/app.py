"""The HTTP interface: both of AWS's protocols, health and the admin endpoints on one port."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from urllib.parse import unquote

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.signing import AWS_ALGORITHM
from penstock.edge.clock import wall_ms
from penstock.http.api import PATHS, Probes
from penstock.http.auth import is_sent_by_another_site
from penstock.http.server import Exchange, Headers, Receive, Scope, Send
from penstock.ops.config import QueueScopes
from penstock.sqs.actions.answer import AfterCommit
from penstock.sqs.actions.message_attributes import TRACE_HEADER
from penstock.sqs.auth.caller import ANONYMOUS, CallerGone, SqsCaller
from penstock.sqs.auth.credentials import Credentials, KeyRole
from penstock.sqs.auth.proxies import TrustedProxies
from penstock.sqs.auth.sigv4 import names_known_key, scope_of, scope_of_open_request, verify
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.front import Front
from penstock.sqs.model import Shape
from penstock.sqs.queue.other_shards import SHARD_ACTION, SHARD_TARGET
from penstock.sqs.watch import WATCH_ACTION, WATCH_TARGET
from penstock.sqs.wire import json_protocol, query_json, query_protocol
from penstock.sqs.wire.protocol import SignedRequest, WireProtocol

log = logging.getLogger(__name__)

# A batch holds at most 1 MiB of messages; JSON may write a byte as six (backslash, u, four digits).
MAX_REQUEST_BYTES = 8 * 1024 * 1024

_MAX_TRACE_BYTES = 1024

_PROBES = frozenset(path.encode() for path in PATHS)

_READING = ("Get", "List")
_ALGORITHM = AWS_ALGORITHM.encode()


class _Call:
    """An AWS request that is being answered."""

    __slots__ = ("action", "exchange", "request_id", "started_s", "wire")

    def __init__(self, exchange: Exchange, wire: WireProtocol, request_id: str, started_s: float) -> None:
        self.exchange = exchange
        self.wire = wire
        self.request_id = request_id
        self.started_s = started_s
        self.action = "-"


class SqsApp:
    """Answers requests, and turns every failure into one of AWS's errors."""

    def __init__(
        self, front: Front, credentials: Credentials | None, seconds: Callable[[], float], probes: Probes
    ) -> None:
        self._front = front
        self._seconds = seconds
        self._credentials = credentials
        self._probes = probes
        self._proxies = TrustedProxies(front.settings.trusted_proxies)
        self._health = msgspec.json.encode({"status": "ok", "capabilities": list(front.settings.capabilities)})
        self._one_scope = front.settings.scopes is QueueScopes.ONE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what comes through ASGI: the probes, and the start and the end of the app."""
        await self._probes(scope, receive, send)

    def take_on(self, exchange: Exchange) -> bool:
        """Answer any request but a probe: immediately, after a commit, or in a task if it has to wait."""
        headers = dict(exchange.headers)
        target = headers.get(b"x-amz-target", b"")
        if not target:
            path = exchange.target.partition(b"?")[0]
            if path in _PROBES:
                return False
            if path == b"/sqs_health":
                self._answer_health(exchange)
                return True
            if path == b"/cluster" or path.startswith(b"/admin/"):
                exchange.run_in_task(self._answer_admin(exchange, headers))
                return True
        self._begin(exchange, target, headers)
        return True

    def body_limit(self, headers: Headers) -> int:
        """Return how long a body may be: signatures cover it, but only a known access key may send a long one."""
        if self._credentials is None or self._front.is_hop(dict(headers)):
            return MAX_REQUEST_BYTES
        authorization = dict(headers).get(b"authorization", b"").decode("latin-1")
        return MAX_REQUEST_BYTES if names_known_key(authorization, self._credentials) else 0

    # AWS requests

    def _begin(self, exchange: Exchange, target: bytes, headers: Mapping[bytes, bytes]) -> None:
        wire: WireProtocol = json_protocol if target else _query_wire(headers)
        call = _Call(exchange, wire, self._front.new_request_id(), self._seconds())
        try:
            self._front.require_owned()
            if target in (WATCH_TARGET, SHARD_TARGET):
                self._begin_own(call, target, self._caller(exchange, headers, json=exchange.body))
                return
            if target:
                call.action = json_protocol.action_of(target)
                caller = self._caller(exchange, headers, json=exchange.body)
                request = json_protocol.decode(call.action, exchange.body)
            else:
                caller = self._caller(exchange, headers)
                call.action, request = _read_query(exchange, caller)
                if self._credentials is None and exchange.method != "POST" and not _is_signed(headers):
                    _require_reading(call.action)
            response = self._front.act(call.action, caller, request)
            if isinstance(response, AfterCommit):
                response.when_done(partial(self._answer_committed, call, response))
            elif isinstance(response, Shape):
                self._answer(call, response)
            else:
                exchange.run_in_task(self._answer_later(call, response))
        except Exception as error:
            self._refuse(call, error)

    def _begin_own(self, call: _Call, target: bytes, caller: SqsCaller) -> None:
        """Answer one of the actions that AWS does not have."""
        exchange = call.exchange
        if target == WATCH_TARGET:
            call.action = WATCH_ACTION
            answer = self._front.watch(caller, exchange.body)
        else:
            call.action = SHARD_ACTION
            answer = self._front.act_between(caller, exchange.body)
        exchange.run_in_task(self._answer_later(call, answer))

    def _answer(self, call: _Call, response: Shape) -> None:
        wire, request_id = call.wire, call.request_id
        body = wire.encode(call.action, response, request_id)
        self._front.metrics.observe(call.action, self._seconds() - call.started_s)
        call.exchange.respond(200, wire.headers(request_id), body)

    def _answer_committed(self, call: _Call, response: AfterCommit) -> None:
        try:
            self._answer(call, response.result())
        except Exception as error:
            self._refuse(call, error)

    async def _answer_later(self, call: _Call, response: Awaitable[Shape]) -> None:
        try:
            self._answer(call, await response)
        except CallerGone:
            return
        except Exception as error:
            self._refuse(call, error)

    def _refuse(self, call: _Call, error: Exception) -> None:
        refusal = self._refusal(call.action, error)
        self._front.metrics.observe(call.action, self._seconds() - call.started_s)
        wire, request_id = call.wire, call.request_id
        headers, body = wire.error_headers(refusal, request_id), wire.encode_error(refusal, request_id)
        call.exchange.respond(refusal.kind.status, headers, body)

    def _caller(self, exchange: Exchange, headers: Mapping[bytes, bytes], json: bytes | None = None) -> SqsCaller:
        """Return who sent the request; SqsError if it is too large, is not properly signed or comes from a web page."""
        if exchange.is_too_long and self.body_limit(exchange.headers):
            raise SqsError(ErrorKind.REQUEST_TOO_LARGE, f"A request is at most {MAX_REQUEST_BYTES} bytes.")
        host, secure = self._proxies.address_of(exchange.peer, headers, secure=exchange.secure)
        if self._front.is_hop(headers):
            return self._front.caller_of_hop(headers, exchange, json)
        path, _, query = exchange.target.partition(b"?")
        if self._credentials is None:
            if is_sent_by_another_site(headers, may_change=exchange.method != "GET"):
                raise SqsError(ErrorKind.ACCESS_DENIED, "Without credentials, pages of other sites are not answered.")
            scope = None
            if not self._one_scope:
                scope = scope_of_open_request(headers.get(b"authorization"), query, self._front.home)
            notes = _with_trace(ANONYMOUS, headers)
            return SqsCaller(host, exchange.hung_up, json=json, notes=notes, scope=scope, secure=secure)
        received = exchange.headers
        if host != headers.get(b"host"):
            received = [(name, host if name == b"host" else value) for name, value in received]
        request = SignedRequest(exchange.method, path, query, received, exchange.body)
        principal, region = verify(request, self._credentials, wall_ms(self._front.clock))
        notes = _with_trace({"SenderId": principal.access_key}, headers)
        scope = None
        if not self._one_scope:
            scope = scope_of(region, principal.account, principal.access_key, self._front.home)
        admin = principal.role is KeyRole.ADMIN
        return SqsCaller(host, exchange.hung_up, admin=admin, notes=notes, json=json, scope=scope, secure=secure)

    def _refusal(self, action: str, error: Exception) -> SqsError:
        """Turn any failure into one of AWS's errors."""
        if isinstance(error, SqsError):
            refusal = error
        elif isinstance(error, PenstockError):
            log.error("%s failed: %s", action, error)
            refusal = SqsError(ErrorKind.SERVICE_UNAVAILABLE, error.message)
        else:
            log.error("%s failed unexpectedly", action, exc_info=error)
            refusal = SqsError(ErrorKind.INTERNAL_FAILURE, "The request failed because of an unknown error.")
        self._front.metrics.count_error(action, refusal.kind.name_in_json)
        return refusal

    def _answer_health(self, exchange: Exchange) -> None:
        wants_json = any(name == b"accept" and b"application/json" in value for name, value in exchange.headers)
        status, content_type, body = 200, b"text/plain", b"ok"
        if wants_json:
            content_type, body = b"application/json", self._health
        try:
            self._front.require_owned()
        except PenstockError as error:
            status, content_type, body = 503, b"text/plain", error.message.encode()
        exchange.respond(status, [(b"content-type", content_type)], body)

    # Admin

    async def _answer_admin(self, exchange: Exchange, headers: Mapping[bytes, bytes]) -> None:
        try:
            self._front.require_owned()
            caller = self._caller(exchange, headers)
            if not caller.admin:
                raise SqsError(ErrorKind.ACCESS_DENIED, "The admin surface is for principals of the role admin.")
            status, body = await self._front.administer(caller, exchange.method, exchange.target, exchange.body)
        except Exception as error:
            refusal = self._refusal("admin", error)
            status, body = refusal.kind.status, json_protocol.encode_error(refusal, "")
        exchange.respond(status, [(b"content-type", b"application/json"), (b"cache-control", b"no-store")], body)


def _with_trace(notes: Mapping[str, str], headers: Mapping[bytes, bytes]) -> Mapping[str, str]:
    """Add the trace that a message sent by this request belongs to."""
    trace = headers.get(b"x-amzn-trace-id")
    return notes if trace is None else {**notes, TRACE_HEADER: trace[:_MAX_TRACE_BYTES].decode("latin-1")}


def _query_wire(headers: Mapping[bytes, bytes]) -> WireProtocol:
    """Return the form of the Query protocol's answers: JSON only for a client that accepts nothing else."""
    return query_json if headers.get(b"accept") == query_json.CONTENT_TYPE else query_protocol


def _read_query(exchange: Exchange, caller: SqsCaller) -> tuple[str, Shape]:
    """Return the action and the request of the Query protocol, where the path may name the queue."""
    path, _, query = exchange.target.partition(b"?")
    path_queue_url = f"{caller.base_url}{_decoded(path)}" if path.count(b"/") >= 2 else None
    return query_protocol.parse(query, exchange.body, path_queue_url)


def _is_signed(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a header has a signature, which no link and no page of another site can add."""
    return headers.get(b"authorization", b"").startswith(_ALGORITHM)


def _require_reading(action: str) -> None:
    """Raise AccessDenied if a GET would change something: a browser opens a link without naming its origin."""
    if not action.startswith(_READING):
        raise SqsError(ErrorKind.ACCESS_DENIED, f"Without credentials, sign {action} in a header or send it by POST.")


def _decoded(path: bytes) -> str:
    return unquote(path.decode("latin-1"))

"""The HTTP surface: both of AWS's protocols on one port, health, metrics and the admin endpoints. Raw ASGI."""

import logging
from collections.abc import Callable

from penstock.core.errors import PenstockError
from penstock.sqs.actions.table import ACTIONS
from penstock.sqs.admin import AdminSurface
from penstock.sqs.caller import Caller, ClientGone
from penstock.sqs.credentials import Credentials, Role
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.ownership import CAPABILITIES
from penstock.sqs.service import SqsService
from penstock.sqs.sigv4 import verify
from penstock.sqs.wire import json_protocol, query_protocol
from penstock.sqs.wire.headers import Headers
from penstock.sqs.wire.request import SignedRequest
from penstock.telemetry.asgi import Receive, Scope, Send, accept_lifespan, answer
from penstock.telemetry.probes import PATHS, Probes

log = logging.getLogger(__name__)

# A batch holds at most 1 MiB of messages; JSON may write a byte as six (backslash, u, four digits).
MAX_REQUEST_BYTES = 8 * 1024 * 1024


class SqsApp:
    """Answers requests; everything that can go wrong is one of AWS's errors."""

    def __init__(
        self, service: SqsService, credentials: Credentials | None, seconds: Callable[[], float], probes: Probes
    ) -> None:
        self._service = service
        self._seconds = seconds
        self._credentials = credentials
        self._admin = AdminSurface(service)
        self._probes = probes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        target = host = b""
        for name, value in scope["headers"]:
            if name == b"x-amz-target":
                target = value
            elif name == b"host":
                host = value
        if not target:
            path = scope["path"]
            if path in PATHS:
                await self._probes(scope, receive, send)
                return
            if path == "/sqs_health":
                await self._health(scope, send)
                return
            if path.startswith("/admin/"):
                await self._answer_admin(scope, receive, send)
                return
        request_id = self._service.new_request_id()
        try:
            body = await _read_body(receive)
        except ClientGone:
            return
        base_url = f"{scope['scheme']}://{host.decode('latin-1') or 'localhost'}"
        if target:
            await self._answer_json(scope, receive, send, target, body, base_url, request_id)
        else:
            await self._answer_query(scope, receive, send, body, base_url, request_id)

    async def _answer_json(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        target: bytes,
        body: bytes | None,
        base_url: str,
        request_id: str,
    ) -> None:
        action = "-"
        started = self._seconds()
        try:
            action = json_protocol.action_of(target)
            caller = self._caller(scope, receive, body, base_url)
            request = json_protocol.decode(action, body or b"")
            response = await ACTIONS[action](self._service, caller, request)
            status, headers, answer_body = 200, json_protocol.headers(request_id), json_protocol.encode(response)
        except ClientGone:
            return
        except Exception as error:
            refusal = self._refusal(action, error)
            status, headers = refusal.kind.status, json_protocol.error_headers(refusal, request_id)
            answer_body = json_protocol.encode_error(refusal)
        self._service.metrics.observe(action, self._seconds() - started)
        await _respond(send, status, headers, answer_body)

    async def _answer_query(
        self, scope: Scope, receive: Receive, send: Send, body: bytes | None, base_url: str, request_id: str
    ) -> None:
        action = "-"
        started = self._seconds()
        try:
            caller = self._caller(scope, receive, body, base_url)
            path = scope["path"]
            path_queue_url = f"{base_url}{path}" if path.count("/") >= 2 else None
            action, request = query_protocol.parse(scope["query_string"], body or b"", path_queue_url)
            response = await ACTIONS[action](self._service, caller, request)
            status, headers = 200, query_protocol.headers(request_id)
            answer_body = query_protocol.encode(action, response, request_id)
        except ClientGone:
            return
        except Exception as error:
            refusal = self._refusal(action, error)
            status, headers = refusal.kind.status, query_protocol.error_headers(refusal, request_id)
            answer_body = query_protocol.encode_error(refusal, request_id)
        self._service.metrics.observe(action, self._seconds() - started)
        await _respond(send, status, headers, answer_body)

    def _caller(self, scope: Scope, receive: Receive, body: bytes | None, base_url: str) -> Caller:
        """Who asks; SqsError when the request is too large or its signature does not hold."""
        if body is None:
            raise SqsError(ErrorKind.REQUEST_TOO_LARGE, f"A request is at most {MAX_REQUEST_BYTES} bytes.")
        if self._credentials is None:
            return Caller(base_url, receive)
        request = SignedRequest(scope["method"], scope["raw_path"], scope["query_string"], list(scope["headers"]), body)
        principal = verify(request, self._credentials, self._service.clock.now_ms())
        notes = {"SenderId": principal.access_key}
        return Caller(base_url, receive, admin=principal.role is Role.ADMIN, notes=notes)

    def _refusal(self, action: str, error: Exception) -> SqsError:
        """The one place where everything that can go wrong becomes one of AWS's errors."""
        if isinstance(error, SqsError):
            refusal = error
        elif isinstance(error, PenstockError):
            log.error("%s failed: %s", action, error)
            refusal = SqsError(ErrorKind.SERVICE_UNAVAILABLE, error.message)
        else:
            log.error("%s failed in a way nobody thought of", action, exc_info=error)
            refusal = SqsError(ErrorKind.INTERNAL_FAILURE, "The request failed because of an unknown error.")
        self._service.metrics.count_error(action, refusal.kind.json_type)
        return refusal

    async def _answer_admin(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _read_body(receive)
        except ClientGone:
            return
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        try:
            if not self._caller(scope, receive, body, "").admin:
                raise SqsError(ErrorKind.ACCESS_DENIED, "The admin surface is for principals of the role admin.")
            status, answer_body = await self._admin.answer(
                scope["method"], scope["path"], scope["query_string"], body or b""
            )
        except Exception as error:
            refusal = self._refusal("admin", error)
            status, answer_body = refusal.kind.status, json_protocol.encode_error(refusal)
        await answer(scope, send, status, answer_body, headers)

    async def _health(self, scope: Scope, send: Send) -> None:
        wants_json = any(name == b"accept" and b"application/json" in value for name, value in scope["headers"])
        if wants_json:
            names = ",".join(f'"{capability}"' for capability in CAPABILITIES)
            body = f'{{"status":"ok","capabilities":[{names}]}}'.encode()
            await answer(scope, send, 200, body, {"content-type": "application/json"})
        else:
            await answer(scope, send, 200, b"ok", {"content-type": "text/plain"})


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None when it is too large, after reading it to its end so that the connection stays usable.

    ClientGone when it breaks off: the beginning of a form may be a valid request that nobody meant.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body if len(body) <= MAX_REQUEST_BYTES else None
    chunks = [body]
    size_bytes = len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes <= MAX_REQUEST_BYTES:
            chunks.append(chunk)
    return b"".join(chunks) if size_bytes <= MAX_REQUEST_BYTES else None


async def _respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})

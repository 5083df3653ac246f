"""An ASGI app that serves a table of routes as JSON and reports every failure as a problem (RFC 9457)."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from penstock.client.types import PROBLEM_MEDIA_TYPE, Problem
from penstock.domain.errors import PenstockError
from penstock.domain.event import BINARY_HEADER
from penstock.http.api.changes import ChangeLog, LoggedChanges, shown
from penstock.http.api.query import parse_query
from penstock.http.api.routes import AnyRoute, Call, NoBody, RouteTable
from penstock.http.auth import LOCAL, Caller, RequestGuard, bearer_token, media_type_of
from penstock.http.change import Change
from penstock.http.problems import Refused, problem, problem_of
from penstock.http.server import ClientGone, Message, Receive, Scope, Send, accept_lifespan, read_body, send_answer

log = logging.getLogger(__name__)

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_encode = msgspec.json.Encoder().encode


class ScopedCallers(Protocol):
    """Callers to whom only a part of the API exists, and of that only what is theirs."""

    async def caller(self, token: str) -> Caller | None:
        """Return who holds a token; None if it is none of theirs, Refused if it is not valid."""
        ...

    def check_route(self, route: AnyRoute) -> None:
        """Raise Refused unless they may call an operation at all."""
        ...

    async def check(self, route: AnyRoute, call: Call[Any, Any]) -> None:
        """Raise Refused or a NotFound unless a call is about what belongs to its caller."""
        ...


class ApiApp:
    """Answers the routes of a table for callers whom the guard admits, and for scoped ones what is theirs."""

    def __init__(
        self,
        table: RouteTable,
        guard: RequestGuard,
        changes: ChangeLog | None = None,
        scoped: ScopedCallers | None = None,
    ) -> None:
        self._table = table
        self._guard = guard
        self._scoped = scoped
        self._changes = changes or LoggedChanges()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        try:
            value = await self._value(scope, receive)
        except ClientGone:
            return
        except Refused as refused:
            await _send_problem(scope, send, refused.problem, refused.headers)
        except PenstockError as error:
            await _send_problem(scope, send, problem_of(error), {})
        except Exception:
            log.exception("a request failed unexpectedly", extra={"path": scope["path"]})
            failed = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug; the log has its stack trace")
            await _send_problem(scope, send, failed, {})
        else:
            await send_answer(scope, send, 200, _encode(value), {**_HEADERS, "content-type": "application/json"})

    async def _value(self, scope: Scope, receive: Receive) -> object:
        headers = _headers(scope)
        method = scope["method"]
        found = self._table.find(scope["raw_path"])
        route = None if found is None else found.routes.get("GET" if method == "HEAD" else method)
        caller = LOCAL if route is not None and route.open else await self._caller(headers)
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"nothing exists at {scope['path'][:200]!r}")
        if route is None:
            raise _not_allowed(found.routes)
        scoped = None if caller.scope is None else self._scoped
        if scoped is None:
            self._guard.check_role(caller, route.allowed_roles)
        else:
            scoped.check_route(route)
        if route.changes:
            self._guard.check_change(headers)
        query = parse_query(scope["query_string"], route.query)
        content = await _given(route, headers, receive) if route.takes_body else b""
        body = _decoded(route, content) if route.takes_body else NoBody()
        call = Call(found.path, query, body, content, headers, caller)
        if scoped is not None:
            await scoped.check(route, call)
        value = await route.answered(call)
        if route.is_decision:
            await self._record(route, {**found.path, **call.noted}, content, caller)
        return value

    async def _caller(self, headers: Mapping[str, str]) -> Caller:
        # First: without keys everyone on this machine is an administrator, but not who shows a scoped token.
        token = bearer_token(headers.get("authorization", "")).decode("latin-1")
        scoped = None if self._scoped is None or not token else await self._scoped.caller(token)
        return self._guard.caller(headers) if scoped is None else scoped

    async def _record(self, route: AnyRoute, target: Mapping[str, str], content: bytes, caller: Caller) -> None:
        change = Change(
            who=caller.name,
            role=caller.role,
            action=f"{route.method} {route.path}",
            target=target,
            detail=shown(content),
        )
        try:
            await self._changes.record(change)
        except PenstockError as error:
            # The change has been made, and the caller must not think that it has not.
            log.error(
                "a change could not be recorded", extra={"change": msgspec.to_builtins(change), "error": str(error)}
            )


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _not_allowed(routes: Mapping[str, AnyRoute]) -> Refused:
    allowed = ", ".join(sorted({*routes, *(["HEAD"] if "GET" in routes else [])}))
    return Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed} can be used here", {"allow": allowed})


async def _given(route: AnyRoute, headers: Mapping[str, str], receive: Receive) -> bytes:
    """Return the body as JSON."""
    if route.binary is None or BINARY_HEADER not in headers:
        return await _content(route, headers, receive)
    _check_size(int(headers.get("content-length", "0")), route.max_body_bytes)
    return route.binary(headers, await _read(receive, route.max_body_bytes))


async def _content(route: AnyRoute, headers: Mapping[str, str], receive: Receive) -> bytes:
    if media_type_of(headers.get("content-type", "")) not in route.media_types:
        known = " or ".join(f"`Content-Type: {name}`" for name in route.media_types)
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be JSON, with {known}")
    # Refused by its length, a long body is not read at all.
    _check_size(int(headers.get("content-length", "0")), route.max_body_bytes)
    return await _read(receive, route.max_body_bytes)


def _decoded(route: AnyRoute, content: bytes) -> object:
    try:
        return msgspec.json.decode(content, type=route.body)
    except msgspec.ValidationError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body is wrong: {in_words(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error


def in_words(error: msgspec.ValidationError) -> str:
    """Return what is wrong and with which field: `mode: Invalid enum value 'X'`, not a path into a document."""
    what, at, place = str(error).partition(" - at `")
    field = place.rstrip("`").removeprefix("key in ").removeprefix("$").lstrip(".").replace("[...]", "[]")
    return f"{field}: {what}" if at and field else what


async def _read(receive: Receive, max_bytes: int) -> bytes:
    """Return the whole body; if it is too large, read no more of it."""
    size_bytes = 0

    async def receive_checked() -> Message:
        nonlocal size_bytes
        message = await receive()
        size_bytes += len(message.get("body", b""))
        _check_size(size_bytes, max_bytes)
        return message

    return await read_body(receive_checked)


def _check_size(size_bytes: int, max_bytes: int) -> None:
    if size_bytes > max_bytes:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have up to {max_bytes} bytes, not {size_bytes}")


async def _send_problem(scope: Scope, send: Send, problem: Problem, headers: Mapping[str, str]) -> None:
    await send_answer(
        scope, send, problem.status, _encode(problem), {**_HEADERS, **headers, "content-type": PROBLEM_MEDIA_TYPE}
    )

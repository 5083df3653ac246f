"""A table of routes: an HTTP API's operations, declared once for serving and for the OpenAPI document.

A handler is a function or method with the decorator `route`. It gets a `Call` with everything checked and typed, and
returns the answer or is a coroutine that does. It refuses a request by raising one of Penstock's errors.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec

from penstock.domain.limits import MIB
from penstock.http.api.query import NoQuery
from penstock.http.auth import ADMIN_ONLY, LOCAL, MAY_LOOK, Caller, Role

MAX_BODY_BYTES = MIB
JSON = ("application/json",)

_DECLARED = "declared_route"

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")
A = TypeVar("A")


class NoBody(msgspec.Struct, frozen=True):
    """The body of a route without one."""


@dataclass(frozen=True)
class Call(Generic[Q, B]):
    """A request to a route: the variable parts of its path, its query, its body, the raw content, the caller.

    A handler puts into `noted` what the log of changes should name beside the variable parts of the path, such as the
    name that an id stands for.
    """

    path: Mapping[str, str]
    query: Q
    body: B
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    caller: Caller = LOCAL
    noted: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Route(Generic[Q, B, A]):
    """An operation of an API. Its types are values, so that they can be decoded into and described."""

    method: str
    path: str  # with variable parts in braces, each a whole segment
    summary: str
    answer: type[A]
    handler: Callable[[Call[Q, B]], A | Awaitable[A]]
    query: type[Q] = NoQuery  # type: ignore[assignment]  # the default of a type parameter
    body: type[B] = NoBody  # type: ignore[assignment]
    media_types: tuple[str, ...] = JSON
    max_body_bytes: int = MAX_BODY_BYTES
    # Returns the JSON form of a body in CloudEvents' binary mode.
    binary: Callable[[Mapping[str, str], bytes], bytes] | None = None
    # Errors it may answer with, beyond those of every route.
    refusals: tuple[HTTPStatus, ...] = ()
    # Whether it authenticates its callers itself and requires no API key.
    open: bool = False
    # Roles that may call it; by default viewers too for what only reads, administrators for what changes something.
    roles: frozenset[Role] | None = None

    @property
    def takes_body(self) -> bool:
        """Return whether a JSON body is required."""
        return self.body is not NoBody

    @property
    def changes(self) -> bool:
        """Return whether the operation changes something."""
        return self.method != "GET"

    @property
    def allowed_roles(self) -> frozenset[Role]:
        """Return the roles whose keys may call the operation."""
        return self.roles or (ADMIN_ONLY if self.changes else MAY_LOOK)

    @property
    def is_decision(self) -> bool:
        """Return whether a change is to be recorded with the caller's name, as a person's decision."""
        return self.changes and not self.open and self.allowed_roles == ADMIN_ONLY

    @property
    def path_names(self) -> list[str]:
        """Return the names of the variable parts."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    async def answered(self, call: Call[Q, B]) -> A:
        """Return the handler's answer."""
        result = self.handler(call)
        return await result if inspect.isawaitable(result) else result


AnyRoute = Route[Any, Any, Any]
Handler = TypeVar("Handler", bound=Callable[[Any, Call[Any, Any]], object] | Callable[[Call[Any, Any]], object])


def route(
    method: str,
    path: str,
    *,
    summary: str,
    media_types: tuple[str, ...] = JSON,
    max_body_bytes: int = MAX_BODY_BYTES,
    binary: Callable[[Mapping[str, str], bytes], bytes] | None = None,
    refusals: tuple[HTTPStatus, ...] = (),
    open: bool = False,
    roles: frozenset[Role] | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a function or a method as the handler of an operation; `routes_of` collects the routes.

    The types of query, body and answer are those of its annotations: `Call[Query, Body]` and the return type.
    """

    def declare(handler: Handler) -> Handler:
        query, body, answer = _types_of(handler)
        vars(handler)[_DECLARED] = partial(
            Route,
            method=method,
            path=path,
            summary=summary,
            answer=answer,
            query=query,
            body=body,
            media_types=media_types,
            max_body_bytes=max_body_bytes,
            binary=binary,
            refusals=refusals,
            open=open,
            roles=roles,
        )
        return handler

    return declare


def routes_of(*owners: object) -> tuple[AnyRoute, ...]:
    """Return the routes that functions, or the methods of objects, declare, in the order of their definition."""
    return tuple(each for owner in owners for each in _routes_of(owner))


def _routes_of(owner: object) -> list[AnyRoute]:
    functions = [(owner, owner)]
    if not inspect.isfunction(owner):
        members = vars(type(owner)).items()
        functions = [(member, getattr(owner, name)) for name, member in members if inspect.isfunction(member)]
    found = [vars(each)[_DECLARED](handler=handler) for each, handler in functions if _DECLARED in vars(each)]
    if not found:
        raise TypeError(f"{owner!r} declares no route")
    return found


def _types_of(handler: Callable[..., object]) -> tuple[Any, Any, Any]:
    hints = get_type_hints(handler, include_extras=True)
    answer = hints.pop("return", None)
    calls = [get_args(hint) for hint in hints.values() if get_origin(hint) is Call]
    if answer is None or len(calls) != 1:
        raise TypeError(f"{handler.__qualname__} needs annotations: one Call[Query, Body], and the type of its answer")
    return (*calls[0], answer)


@dataclass(frozen=True)
class MatchedRoute:
    """The routes of a path by method, and the values of its variable parts."""

    routes: Mapping[str, AnyRoute]
    path: Mapping[str, str]


class RouteTable:
    """Finds routes by path; a literal path takes precedence over one with variable parts."""

    def __init__(self, *routes: AnyRoute) -> None:
        self.routes = routes
        self._fixed: dict[tuple[str, ...], dict[str, AnyRoute]] = {}
        self._variable: dict[tuple[str, ...], dict[str, AnyRoute]] = {}
        for route in routes:
            kind = self._variable if route.path_names else self._fixed
            methods = kind.setdefault(tuple(route.path.split("/")), {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is in the table twice")
            methods[route.method] = route

    def find(self, raw_path: bytes) -> MatchedRoute | None:
        """Return the routes of a path as it was sent; a slash inside a variable part is written %2F."""
        segments = tuple(unquote(part) for part in raw_path.decode("latin-1").split("/"))
        if segments in self._fixed:
            return MatchedRoute(self._fixed[segments], {})
        for template, routes in self._variable.items():
            variables = _matched(template, segments)
            if variables is not None:
                return MatchedRoute(routes, variables)
        return None


def _matched(template: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    if len(template) != len(segments):
        return None
    variables: dict[str, str] = {}
    for part, segment in zip(template, segments, strict=True):
        if part.startswith("{") and segment:
            variables[part[1:-1]] = segment
        elif part != segment:
            return None
    return variables

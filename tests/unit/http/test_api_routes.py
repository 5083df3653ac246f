"""The route table, the app that serves it and the document made from it, without a socket."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from penstock.domain import errors
from penstock.domain.errors import NotFound, PenstockError
from penstock.http.api.app import ApiApp
from penstock.http.api.openapi import openapi_document
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import MAX_BODY_BYTES, Call, NoBody, RouteTable, route, routes_of
from penstock.http.auth.guard import RequestGuard
from penstock.http.auth.keys import MAY_LOOK
from penstock.http.problems import problem_of
from penstock.http.server.asgi import Message


class Thing(msgspec.Struct, frozen=True):
    """A thing."""

    name: str
    size: int = 1


class ThingQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which things."""

    most_things: Annotated[int, Meta(ge=1)] = 5
    name: str | None = None
    must: bool | None = None


@route("GET", "/things/{name}", summary="Show.")
def show(call: Call[ThingQuery, NoBody]) -> Thing:
    return Thing(call.path["name"], 0 if call.query.must else call.query.most_things)


@route("POST", "/things/all", summary="Store.", refusals=(HTTPStatus.NOT_FOUND,))
async def store(call: Call[NoQuery, Thing]) -> Thing:
    if call.body.name == "none":
        raise NotFound("no such thing")
    return call.body


@route("DELETE", "/things/{name}", summary="Clear.")
def clear(_: Call[NoQuery, NoBody]) -> Thing:
    return Thing("x")


TABLE = RouteTable(*routes_of(show, store, clear))


async def ask(method: str, target: str, *chunks: bytes | None) -> tuple[int, Any] | None:
    """Status and decoded body; None if there was no answer. A chunk of None is the client's going."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"Content-Type", b"application/json; charset=utf-8")],
    }
    incoming = [
        {"type": "http.disconnect"}
        if chunk is None
        else {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await ApiApp(TABLE, RequestGuard())(scope, receive, send)
    return (sent[0]["status"], msgspec.json.decode(sent[1]["body"])) if sent else None


async def test_a_handler_gets_path_and_query() -> None:
    assert await ask("GET", "/things/a%2Fb?mostThings=7") == (200, {"name": "a/b", "size": 7})
    assert await ask("GET", "/things/x?must=true&name=%C3%A9") == (200, {"name": "x", "size": 0})


async def test_a_written_out_path_goes_before_a_variable_one() -> None:
    status_and_body = await ask("GET", "/things/all")
    assert status_and_body is not None
    assert status_and_body[0] == 405


async def test_a_body_may_come_in_pieces() -> None:
    assert await ask("POST", "/things/all", b'{"name":', b'"x"}') == (200, {"name": "x", "size": 1})


async def test_who_hangs_up_in_the_middle_is_not_answered() -> None:
    assert await ask("POST", "/things/all", b'{"name":', None) is None


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ((b'{"name":"none"}',), 404),
        ((b'{"name":1}',), 422),
        ((b'{"name":',), 400),
        ((b'{"later":' + b"[" * 100_000,), 400),
        ((b" " * MAX_BODY_BYTES, b"{}"), 413),
    ],
    ids=["raised by the handler", "of another type", "cut off", "nested without end", "too large"],
)
async def test_what_is_wrong_with_a_body_has_its_status(chunks: tuple[bytes, ...], status: int) -> None:
    answer = await ask("POST", "/things/all", *chunks)

    assert answer is not None
    assert (answer[0], answer[1]["status"]) == (status, status)


def test_a_route_stands_in_a_table_once() -> None:
    with pytest.raises(ValueError, match="is in the table twice"):
        RouteTable(*routes_of(show, show))


class Shelf:
    """Declares routes out of the order of the alphabet, with an ordinary method between them."""

    def __init__(self, name: str) -> None:
        self._name = name

    @route("PUT", "/shelf", summary="Put.", max_body_bytes=7, roles=MAY_LOOK, media_types=("text/x",), open=True)
    async def _put(self, call: Call[ThingQuery, list[Thing] | Thing]) -> Thing:
        return self._thing(call.query.most_things)

    def _thing(self, size: int) -> Thing:
        return Thing(self._name, size)

    @route("GET", "/shelf", summary="Get.")
    def _get(self, _: Call[NoQuery, NoBody]) -> list[Thing]:
        return [self._thing(0)]


async def test_the_methods_of_an_object_declare_its_routes_in_order() -> None:
    put, get = routes_of(Shelf("oak"))

    assert (put.method, put.path, put.summary, put.query, put.body, put.answer) == (
        "PUT",
        "/shelf",
        "Put.",
        ThingQuery,
        list[Thing] | Thing,
        Thing,
    )
    assert (put.max_body_bytes, put.allowed_roles, put.media_types, put.open) == (7, MAY_LOOK, ("text/x",), True)
    assert (get.method, get.query, get.body, get.answer) == ("GET", NoQuery, NoBody, list[Thing])
    assert await put.answered(Call({}, ThingQuery(3), [])) == Thing("oak", 3)
    assert await get.answered(Call({}, NoQuery(), NoBody())) == [Thing("oak", 0)]


def test_a_handler_without_annotations_is_refused_where_it_is_declared() -> None:
    def unsaid(call):  # type: ignore[no-untyped-def]
        return call

    def without_answer(call: Call[NoQuery, NoBody]):  # type: ignore[no-untyped-def]
        return call

    for handler in (unsaid, without_answer):
        with pytest.raises(TypeError, match="needs annotations"):
            route("GET", "/x", summary="X.")(handler)


def test_what_declares_no_route_is_refused() -> None:
    for owner in (object(), test_operation_ids_are_unique):
        with pytest.raises(TypeError, match="declares no route"):
            routes_of(owner)


@pytest.mark.parametrize(
    ("root", "status"),
    [
        ("InvalidArgument", 400),
        ("NotFound", 404),
        ("AlreadyExists", 409),
        ("FailedPrecondition", 409),
        ("ResourceExhausted", 429),
        ("Unavailable", 503),
        ("PenstockError", 500),
    ],
)
def test_every_root_of_errors_has_a_status(root: str, status: int) -> None:
    kind: type[PenstockError] = getattr(errors, root)
    told = problem_of(kind("what was wrong"))

    assert (told.status, told.detail) == (status, "what was wrong")


def test_the_document_describes_parameters_bodies_and_refusals() -> None:
    document = openapi_document(TABLE, "Things", "All about things.")

    shown = document["paths"]["/things/{name}"]["get"]
    assert [(each["name"], each["in"], each["required"]) for each in shown["parameters"]] == [
        ("name", "path", True),
        ("mostThings", "query", False),
        ("name", "query", False),
        ("must", "query", False),
    ]
    assert shown["parameters"][1]["schema"] == {"type": "integer", "minimum": 1, "default": 5}
    assert [each["schema"] for each in shown["parameters"][2:]] == [{"type": "string"}, {"type": "boolean"}]
    stored = document["paths"]["/things/all"]["post"]
    assert stored["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert set(stored["responses"]) == {"200", "400", "401", "403", "404", "413", "415", "422"}
    assert stored["responses"]["404"]["content"] == {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }
    cleared = document["paths"]["/things/{name}"]["delete"]
    assert cleared["parameters"][-1]["name"] == "X-Penstock"
    assert set(document["components"]["schemas"]) == {"Thing", "Problem"}


def test_operation_ids_are_unique() -> None:
    document = openapi_document(TABLE, "Things", "All about things.")
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]

    assert ids == ["get-things-by-name", "delete-things-by-name", "post-things-all"]
